"""Makes a report from a log: load, audit, ask, and tell."""

from pathlib import Path

from replay.auditor import Audit, audit_loaded
from replay.log import Progress
from replay.report.cited import cited_records
from replay.report.data import ask
from replay.report.page import cited_places, content_of, render
from replay.warehouse import load_log


def make_report(log: Path, progress: Progress | None = None) -> tuple[Audit, str]:
    """The audit, and the page. Goes through the log twice. Raises LogError."""
    with load_log(log, progress=progress) as warehouse:
        audit = audit_loaded(warehouse)
        data = ask(warehouse)
    content = content_of(log, audit, data)
    cited = cited_records(log, cited_places(content))
    return audit, render(content, cited)
