"""A filter of system calls for bubblewrap: no new process or thread, no socket, no memory that is not counted.

Namespaces hide the host; they leave the kernel itself in reach, and a limit on the number of processes does not hold
for root. A program that computes needs none of the calls denied here. A call gets ``EPERM``; ``clone3`` gets
``ENOSYS``, as of an old kernel, because the C library then tries ``clone``.
"""

import errno
import platform
import struct

_DENIED = {
    # name: (x86_64, aarch64); None where the machine has no such call
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "open_by_handle_at": (304, 265),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "io_uring_setup": (425, 425),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "socket": (41, 198),
}
_CLONE3 = 435  # on every machine
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH_* of linux/audit.h
_X32 = 0x40000000  # x86_64 has each call a second time from here on

# linux/bpf_common.h and linux/seccomp.h
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCH = 0, 4  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


def seccomp_filter(machine: str | None = None) -> bytes | None:
    """Return the filter as bubblewrap's ``--seccomp`` reads it; ``None`` for a machine that it is not known for."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    column, arch = known
    numbers = [number for calls in _DENIED.values() if (number := calls[column]) is not None]
    return b"".join(
        [
            _step(_LOAD, _ARCH),
            _step(_EQUAL, arch, 1, 0),
            _step(_RETURN, _KILL),
            _step(_LOAD, _NUMBER),
            *_answer(_AT_LEAST, _X32, errno.ENOSYS),
            *_answer(_EQUAL, _CLONE3, errno.ENOSYS),
            *(step for number in numbers for step in _answer(_EQUAL, number, errno.EPERM)),
            _step(_RETURN, _ALLOW),
        ]
    )


def _answer(test: int, number: int, error: int) -> tuple[bytes, bytes]:
    """Return the steps that end a call with ``error`` if ``test`` holds for its number."""
    return _step(test, number, 0, 1), _step(_RETURN, _ERRNO | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return one ``struct sock_filter``; the jumps are numbers of steps to skip."""
    return struct.pack("=HBBI", code, if_true, if_false, value)
