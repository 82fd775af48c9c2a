"""Processes by name: who holds the lease of a run, and whether it is still there."""

import os
import platform
from pathlib import Path


def this_process() -> str:
    """Return a name for this process that no other has, on any machine: machine, number, start."""
    return f"{_machine()}:{os.getpid()}:{_started(os.getpid())}"


def is_gone(name: str) -> bool:
    """Whether the process of that name is known to have ended; one of another machine is not known of."""
    machine, _, rest = name.partition(":")
    number, _, started = rest.partition(":")
    if machine != _machine() or not number.isdigit():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _started(int(number)) != started


def _machine() -> str:
    """Return a name for this machine, as processes see it: containers have numbers of their own."""
    try:
        space = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
        return f"{platform.node()}/{Path('/proc/sys/kernel/random/boot_id').read_text().strip()[:8]}/{space}"
    except OSError:
        return platform.node()


def _started(number: int) -> str:
    """Return when a process started, "" where the system does not tell, and "ended" for one that is only waited for."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return ""
    return "ended" if state in "ZX" else fields[18]
