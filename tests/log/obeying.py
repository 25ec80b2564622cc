"""A condition for `replay fixture --keep call:tests.log.obeying:obeys`: the observer finds nothing wrong.

A script made smaller may do what no client does; with this condition it stays within the contract.
"""

from orbitkv.events.record import Record
from tests.models.observer import Observer
from tests.models.story import BrokenRuleError


def obeys(records: list[Record]) -> bool:
    observer = Observer()
    try:
        for record in records:
            observer.observe(record)
            observer.check()
    except BrokenRuleError:
        return False
    return True
