"""The files of a log: which of a directory are segments, and what stands in one. Knows no record.

Files may be compressed or dropped by their manager while they are read.
"""

from pathlib import Path
from stat import S_ISREG

from orbitkv.events.frame import SEGMENT_BYTES_MAX, LogError, NotALog, parse_segment_name


def segment_files(directory: Path) -> tuple[list[Path], list[str]]:
    """Segment files in log order, one for each segment; and what else should be known of the directory."""
    found: dict[tuple[int, int], Path] = {}
    notes: list[str] = []
    for entry in sorted(directory.iterdir(), reverse=True):
        name = parse_segment_name(entry.name)
        if name is not None:
            found[name.incarnation, name.number] = entry
        elif ".damaged" in entry.name:
            name_text = entry.name.encode(errors="backslashreplace").decode()
            notes.append(f"{name_text} was set aside by a manager that could not read it")
    if not found:
        raise NotALog(f"{directory} holds no log segment; name the log's directory (setting log_path)")
    return [found[place] for place in sorted(found)], notes


def segment_bytes(file: Path) -> tuple[Path, bytes] | None:
    """The segment's bytes and where they were found; it may have been compressed or dropped meanwhile."""
    for path in (file, file.with_name(f"{file.name}.zst")):
        try:
            found = path.stat()
            if not S_ISREG(found.st_mode):
                raise NotALog(f"{path} has a segment's name and is no file; move it away from the log")
            if found.st_size > SEGMENT_BYTES_MAX:
                raise NotALog(f"{path} is larger than any log segment; move it away from the log")
            return path, path.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unreadable(path, error) from error
    return None


def unreadable(path: Path, error: OSError) -> LogError:
    return LogError(
        f"{path} cannot be read: {error.strerror}; logs belong to the manager's user, run this as that user"
    )
