"""The secret of pseudonyms: drawn for one export, or kept in a file so that later exports can be joined.

Only here does `replay` draw a random number. A secret is never printed and never stands in an export.
"""

import os
import secrets
import stat
from pathlib import Path

from orbitkv.events.frame import LogError
from replay.export.names import SECRET_BYTES_MIN

SECRET_BYTES = 32
SECRET_FILE_BYTES_MAX = 4096


def drawn_secret() -> bytes:
    """For one export. Nobody keeps it."""
    return secrets.token_bytes(SECRET_BYTES)


def secret_of(path: Path) -> tuple[bytes, bool]:
    """The secret in the file, and whether the file was made now, with a new one in it. Raises LogError."""
    try:
        return _made(path), True
    except FileExistsError:
        return _read(path), False
    except OSError as error:
        raise LogError(
            f"the secret cannot be written to {path}: {error.strerror}; name a file in a directory that you"
            " may write"
        ) from error


def _made(path: Path) -> bytes:
    text = secrets.token_hex(SECRET_BYTES)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text + "\n")
    return text.encode()


def _read(path: Path) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise LogError(f"{path} is no file, and the secret is read from one; name a file, or a new one")
        if found.st_mode & 0o077:
            raise LogError(
                f"{path} can be read by other users, who could then try out guesses; run: chmod 600 {path}"
            )
        if found.st_size > SECRET_FILE_BYTES_MAX:
            raise LogError(f"{path} has {found.st_size} bytes: that is no secret; name another file")
        secret = path.read_bytes().strip()
    except OSError as error:
        raise LogError(
            f"the secret in {path} cannot be read: {error.strerror}; name a file that you may read"
        ) from error
    if len(secret) < SECRET_BYTES_MIN:
        raise LogError(
            f"the secret in {path} has {len(secret)} bytes, at least {SECRET_BYTES_MIN} are needed; name a"
            " file that does not exist, and one is drawn and written to it"
        )
    return secret
