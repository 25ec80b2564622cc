"""Tables that `replay/sql/derived` makes of the facts, and the views that `replay/sql/views` makes of both.

They are made anew, all together, whenever facts have come or their text has changed.
"""

from hashlib import blake2b
from typing import Any

from replay.warehouse.database import sql_text

TABLES = (
    "buffer_uses",
    "generation_lives",
    "slice_copies",
    "read_lives",
    "slot_writes",
    "slot_contents",
    "operations",
    "query_pages",
    "cohorts",
    "holds",
    "page_keys",
    "reservation_changes",
    "reservation_levels",
)
"""Each of those before it and of the facts."""
VIEWS = (
    *("reads", "read_pages", "ssd_slots", "pages", "evictions"),
    *("queries", "decisions", "hints", "leases", "restores", "gpu_syncs", "requests"),
    *("reservations", "budget_timeline", "sessions"),
)
"""Each of the tables and of the views before it."""


def derive(connection: Any) -> None:
    """Make what is derived fit the facts."""
    made_of = _made_of(connection)
    if connection.execute("SELECT derived_from FROM warehouse").fetchone() == (made_of,):
        return
    connection.execute("BEGIN")
    for name in reversed(VIEWS):
        connection.execute(f"DROP VIEW IF EXISTS {name}")
    for name in TABLES:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        connection.execute(sql_text(f"derived/{name}"))
    for name in VIEWS:
        connection.execute(sql_text(f"views/{name}"))
    connection.execute("UPDATE warehouse SET derived_from = ?", [made_of])
    connection.execute("COMMIT")


def _made_of(connection: Any) -> str:
    """Tells one state of the facts, and of the SQL, from any other."""
    texts = [sql_text(f"derived/{name}") for name in TABLES] + [sql_text(f"views/{name}") for name in VIEWS]
    digest = blake2b("".join(texts).encode(), digest_size=8).hexdigest()
    counts = connection.execute(
        "SELECT count(*), max(fact), (SELECT count(*) FROM stretches) FROM records"
    ).fetchone()
    return " ".join(map(str, (*counts, digest)))
