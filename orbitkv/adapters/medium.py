"""Which disk a folder lies on, in words, to be named beside every figure that depends on it."""

from pathlib import Path


def medium(path: Path) -> str:
    """The file system that `path` lies on, and the device below it."""
    best, words = "", "unknown"
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, mount, kind = line.split()[:3]
        if path.resolve().is_relative_to(mount) and len(mount) >= len(best):
            best, words = mount, f"{kind} on {device}"
    return words
