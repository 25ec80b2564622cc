"""How much memory this process can have at most: the machine's, or its control group's if that is less.

Used to refuse a pool that could only end in the out-of-memory killer. It looks at limits, not at what
is free right now: that changes while the pool fills.
"""

import os
from collections.abc import Iterator
from pathlib import Path


def memory_limit(
    cgroup_file: str = "/proc/self/cgroup", cgroup_root: str = "/sys/fs/cgroup"
) -> tuple[int, str]:
    """(bytes, whose limit it is in words). Limits that cannot be read are taken for none."""
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [(machine_bytes, "this machine's memory")]
    for file in _limit_files(cgroup_file, cgroup_root):
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append((int(text), f"the limit in {file}"))
    return min(limits, key=lambda limit: limit[0])


def _limit_files(cgroup_file: str, cgroup_root: str) -> Iterator[Path]:
    """The limit files of the process's control group (either version) and of all groups above it."""
    try:
        lines = Path(cgroup_file).read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            top, name = Path(cgroup_root), "memory.max"
        elif "memory" in controllers.split(","):
            top, name = Path(cgroup_root, "memory"), "memory.limit_in_bytes"
        else:
            continue
        group = top / path.lstrip("/")
        yield group / name
        for above in group.parents:
            if above.is_relative_to(top):
                yield above / name
