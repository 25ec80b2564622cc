"""Which machine this is, said the same way by a client and by the manager."""

import os


def this_host() -> str:
    """The kernel's boot id: equal in all containers of one machine, different after a reboot.

    Falls back to the node's name where /proc is not mounted.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def started_ticks(pid: int | None = None) -> int:
    """When a process (this one by default) started, in clock ticks since boot; 0 if that cannot be told.

    Together with the pid it names a process for as long as the machine runs.
    """
    try:
        with open(f"/proc/{pid or 'self'}/stat", "rb") as file:
            # The name in parentheses may hold anything, also parentheses: fields count from the last one.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0
