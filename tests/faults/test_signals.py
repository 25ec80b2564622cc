"""SIGTERM and SIGINT at named moments, from the first file that is opened to the last that is closed.

`tests/restart/test_stop.py` has signals at random moments, and in the middle of work.
"""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.restart.managers import PATIENCE_S, ROOT, Place, restore, save, until

INTERRUPTING = """
    import os, signal, sys
    from orbitkv.serve import {module} as module
    holder = {holder}
    honest = holder.{name}
    def interrupted(*arguments, **named):
        os.kill(os.getpid(), {number})
        return honest(*arguments, **named)
    holder.{name} = {wrapper}(interrupted)
    from orbitkv.__main__ import main
    sys.argv = ["orbitkv", *{arguments!r}]
    main()
"""
OPENING = {
    "before the socket": ("running", "module", "open_all", ""),
    "before the log directory": ("opening", "module.LogDirectory", "open", "staticmethod"),
    "before the pool": ("opening", "module", "_open_pool", ""),
    "before the SSD": ("opening", "module", "open_store", ""),
    "before the old chain is closed": ("opening", "module", "_close_old_chain", ""),
    "before the journal": ("opening", "module", "_begin", ""),
    "before the first line": ("running", "module", "greet", ""),
}
CLOSING = {
    "while it drains": (
        "wiring",
        "__import__('orbitkv.manager.shell.manager').manager.shell.manager.Manager",
        "drain",
        "",
    ),
    "before the SSD is closed": ("opening", "module", "_close_store", ""),
    "before the journal is closed": ("opening", "module", "_close_journal", ""),
}


def start(place: Place, moment: tuple[str, str, str, str], number: signal.Signals) -> "subprocess.Popen[str]":
    module, holder, name, wrapper = moment
    program = INTERRUPTING.format(
        module=module,
        holder=holder,
        name=name,
        wrapper=wrapper,
        number=int(number),
        arguments=place.command()[3:],
    )
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize(
    ("moment", "number"),
    list(zip(OPENING, itertools.cycle([signal.SIGTERM, signal.SIGINT]), strict=False)),
)
def test_a_signal_while_it_opens_is_an_orderly_stop(
    tmp_path: Path, moment: str, number: signal.Signals
) -> None:
    place = Place(tmp_path)
    process = start(place, OPENING[moment], number)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, "")
    assert place.leftovers() == set()
    assert "closed" in place.verify()


@pytest.mark.parametrize("moment", CLOSING)
def test_a_second_signal_while_it_closes_leaves_at_once(tmp_path: Path, moment: str) -> None:
    place = Place(tmp_path)
    shared_memory = set(os.listdir("/dev/shm"))
    process = start(place, CLOSING[moment], signal.SIGINT)
    try:
        assert process.stdout is not None
        assert all(process.stdout.readline() for _ in range(2))
        with place.client() as client:
            save(client, range(5))
            until(lambda: place.pages_on_ssd() == 5)
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGINT
    assert said == "orbitkv: second signal (SIGINT): leaving at once\n"
    assert place.leftovers() == set()
    assert set(os.listdir("/dev/shm")) == shared_memory
    place.verify()
    with place.manager() as manager, place.client() as client:
        assert restore(client, range(5), "after") == 5
        manager.stop()
    assert "verify: ok" in place.verify()
