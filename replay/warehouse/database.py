"""The database that a log is loaded into: how it is opened, and how its failures are told."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

from orbitkv.events.frame import LogError
from replay.warehouse import book, sinks

DUCKDB_MEMORY = "640MiB"
"""Its tables beyond that go to a temporary folder; the whole process then stays below 1 GiB."""
DUCKDB_SPILL = "16GiB"
"""So much of it at most: a log that is questioned on a manager's host must not fill that host's disk."""
DUCKDB_THREADS = 2
INTERRUPTED = "Query interrupted"
"""What DuckDB makes of Ctrl-C, as a RuntimeError."""


class WarehouseError(LogError):
    """The log may be as it should; it cannot be loaded. The message says what mends that."""


def sql_text(name: str) -> str:
    """The text of the file `replay/sql/<name>.sql`."""
    return (files("replay") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@contextmanager
def opened(database: Path | None, *, large: bool = False) -> Iterator[Any]:
    """A connection to the warehouse in this file, which is made if it is not there; or to one for this time.

    `large`: one for this time stands in a temporary file, not in memory: DuckDB packs what stands in files,
    so that more of it stays in memory and a third less time goes into asking it.
    DuckDB's own errors become WarehouseErrors. A file that nothing was loaded into is not left behind.
    """
    is_new = database is not None and not database.exists()
    is_used = True
    try:
        with _connected(database, large=large) as connection:
            # Another process may have made it meanwhile.
            is_new = is_new and not _tables(connection)
            try:
                _prepare(connection, database)
                yield connection
            finally:
                is_used = _is_used(connection)
    finally:
        if is_new and not is_used and database is not None:
            database.unlink(missing_ok=True)


@contextmanager
def read_only(database: Path) -> Iterator[Any]:
    """A connection that can only ask the warehouse in this file."""
    if not database.is_file():
        what = "is no file" if database.exists() else "does not exist"
        raise WarehouseError(f"{database} {what}; name a database that `replay load` has made")
    with _connected(database, read_only=True) as connection:
        if "warehouse" not in _tables(connection):
            raise WarehouseError(f"{database} is a DuckDB file without a log in it; name another one")
        yield connection


@contextmanager
def _connected(database: Path | None, *, read_only: bool = False, large: bool = False) -> Iterator[Any]:
    duckdb = _duckdb()
    with tempfile.TemporaryDirectory(prefix="orbitkv-replay-") as spill:
        settings = {
            "memory_limit": DUCKDB_MEMORY,
            "threads": DUCKDB_THREADS,
            "temp_directory": spill,
            "max_temp_directory_size": DUCKDB_SPILL,
            "autoinstall_known_extensions": False,
        }
        try:
            for_this_time = Path(spill) / "log.duckdb" if large else ":memory:"
            connected = duckdb.connect(str(database or for_this_time), read_only, settings)
        except duckdb.Error as error:
            what = str(error).partition("\n")[0]
            raise WarehouseError(
                f"{database} cannot be opened: {what}; end whoever has it open, or name another file"
            ) from error
        try:
            with connected as connection:
                yield connection
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise WarehouseError(_gave_up(error, database)) from error
        except RuntimeError as error:
            if str(error) == INTERRUPTED:
                raise KeyboardInterrupt from None
            raise


def _gave_up(error: Exception, database: Path | None) -> str:
    if "No space left on device" in str(error) and database is not None:
        return (
            f"there is no room left where {database} stands, or in the folder for temporary files (TMPDIR);"
            " free some and run the same command again: it goes on where it stopped"
        )
    if isinstance(error, _duckdb().OutOfMemoryException):
        return (
            f"this needs more than {DUCKDB_MEMORY} of memory and {DUCKDB_SPILL} of temporary space, or than"
            " TMPDIR has; set that to a folder with more, or cut a piece of the log with `replay fixture`"
            f" ({error})"
        )
    if isinstance(error, _duckdb().OutOfRangeException):
        return f"the log has a number that no manager writes; `replay verify` says in which record ({error})"
    if "cannot encode str as UTF-8" in str(error):
        return f"the path of the log is no text in UTF-8, and DuckDB takes no other; rename it ({error})"
    return f"DuckDB gave up: {error}; if it lacks room, set TMPDIR to a folder that has more"


def _prepare(connection: Any, database: Path | None) -> None:
    """Create the tables of a new warehouse, or see whether those that are there are ours."""
    statements = [*sinks.statements(), *book.STATEMENTS]
    schema = blake2b("".join(statements).encode(), digest_size=8).hexdigest()
    there = _tables(connection)
    if not there:
        connection.execute("BEGIN")
        for statement in statements:
            connection.execute(statement)
        connection.execute("CREATE TABLE warehouse AS SELECT ? AS schema, '' AS derived_from", [schema])
        connection.execute("COMMIT")
    elif "warehouse" not in there:
        raise WarehouseError(
            f"{database} is a DuckDB file without a log in it; name another one, or one that is not there yet"
        )
    elif connection.execute("SELECT schema FROM warehouse").fetchone() != (schema,):
        raise WarehouseError(
            f"{database} was made by another version of OrbitKV, with other tables;"
            " load the log into a new file"
        )


def _tables(connection: Any) -> set[str]:
    return {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}


def _is_used(connection: Any) -> bool:
    """Whether something was loaded; also where the database can no longer say so."""
    duckdb = _duckdb()
    with suppress(duckdb.Error):
        connection.execute("ROLLBACK")
    try:
        return bool(connection.execute("SELECT count(*) FROM segments").fetchone()[0])
    except duckdb.CatalogException:
        return False
    except duckdb.Error:
        return True


def _duckdb() -> ModuleType:
    try:
        import duckdb
    except ImportError as error:
        raise WarehouseError(
            "this needs DuckDB, which is not installed; it comes with an extra: pip install 'orbitkv[replay]'"
        ) from error
    module: ModuleType = duckdb
    return module
