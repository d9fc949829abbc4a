"""Dying inside a call of delta-rs: the kernel kills the process at its next rename, link or unlink, whoever makes it.

delta-rs writes a data file under another name and renames it, and makes a commit by linking a finished log entry to its name.
No Python runs in between, so a seccomp filter is armed before the call: the process ends with `SIGSYS` at the first such system
call, without a handler or a destructor having run. Linux on x86-64 and ARM only.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from enum import Enum


class SystemCall(str, Enum):
    """What the process dies of."""

    RENAME = "rename"
    """A data file, or a log checkpoint, is about to get its name."""
    LINK = "link"
    """A log entry is about to get its name: the commit."""
    UNLINK = "unlink"
    """A file is about to be removed: after a commit, the name the log entry was written under."""


_NUMBERS = {
    "x86_64": (
        0xC000003E,
        {SystemCall.RENAME: (82, 264, 316), SystemCall.LINK: (86, 265), SystemCall.UNLINK: (87, 263)},
    ),
    "aarch64": (0xC00000B7, {SystemCall.RENAME: (38, 276), SystemCall.LINK: (37,), SystemCall.UNLINK: (35,)}),
}
"""Per machine its name for the kernel's audit, and the numbers of the calls."""

_SECCOMP = {"x86_64": 317, "aarch64": 277}
_NO_NEW_PRIVILEGES = 38
_SET_FILTER, _ALL_THREADS = 1, 1
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_KILL_PROCESS, _ALLOW = 0x80000000, 0x7FFF0000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def possible() -> bool:
    """Whether this machine is one whose system calls are known here."""
    return platform.system() == "Linux" and platform.machine() in _NUMBERS


def die_at(call: SystemCall) -> None:
    """From now on this process ends at its next such call, in any of its threads. There is no way back.

    Raises:
        OSError: The kernel does not allow filters here.
    """
    machine = platform.machine()
    audit, numbers = _NUMBERS[machine]
    wanted = numbers[call]
    code = [
        (_LOAD, 0, 0, 4),  # the machine the call is made for
        (_JUMP_IF_EQUAL, 1, 0, audit),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, 0),  # the number of the call
        *((_JUMP_IF_EQUAL, len(wanted) - place, 0, number) for place, number in enumerate(wanted)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL_PROCESS),
    ]
    packed = b"".join(struct.pack("HBBI", *line) for line in code)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(code), packed)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.syscall(
        _SECCOMP[machine], _SET_FILTER, _ALL_THREADS, ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "seccomp is not allowed here")
