"""Exit codes, by the kind of problem, so that a script knows what to do without reading words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from laminar_delta.errors import (
    CommitUnknownError,
    ConflictError,
    CorruptionError,
    FormatError,
    InvalidInputError,
    LaminarDeltaError,
    NotFoundError,
    NotInstalledError,
    SessionStateError,
    StorageError,
)


class Exit(IntEnum):
    """What a command ends with. Append only; a number is never reused."""

    OK = 0
    FINDING = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    CORRUPTION = 5
    STORAGE = 6
    NOT_INSTALLED = 7
    UNKNOWN = 8
    DECLINED = 9
    INTERNAL = 70


MEANING: Mapping[Exit, str] = {
    Exit.OK: "done, and nothing is wrong",
    Exit.FINDING: "done, and something is wrong with what was looked at: an invalid checkpoint, something left out, a problem",
    Exit.USAGE: "the command is wrong: an option, a name, a value, the configuration",
    Exit.NOT_FOUND: "no such catalog, pipeline, checkpoint, version or file",
    Exit.CONFLICT: "someone else was first, holds the pipeline, or took it over",
    Exit.CORRUPTION: "stored data is damaged, or of a format this version does not read",
    Exit.STORAGE: "a disk, object store or Spark failed or did not answer; try again when it does",
    Exit.NOT_INSTALLED: "an optional part is missing; the message names the extra",
    Exit.UNKNOWN: "it may have been committed and that cannot be told; look before repeating",
    Exit.DECLINED: "you said no when asked; nothing was changed",
    Exit.INTERNAL: "a mistake of this program; --debug shows where",
}
"""What each means, for people."""

_BY_KIND: tuple[tuple[type[LaminarDeltaError], Exit], ...] = (
    (ConflictError, Exit.CONFLICT),
    (CommitUnknownError, Exit.UNKNOWN),
    (NotFoundError, Exit.NOT_FOUND),
    (InvalidInputError, Exit.USAGE),
    (SessionStateError, Exit.USAGE),
    (CorruptionError, Exit.CORRUPTION),
    (FormatError, Exit.CORRUPTION),
    (StorageError, Exit.STORAGE),
    (NotInstalledError, Exit.NOT_INSTALLED),
)


def exit_for(error: LaminarDeltaError) -> Exit:
    """The exit code of an error."""
    return next((code for kind, code in _BY_KIND if isinstance(error, kind)), Exit.INTERNAL)


BROKEN_PIPE = 141
"""As of a process that SIGPIPE ends: whoever was to read the answer went away, such as `head`."""


class Declined(Exception):  # noqa: N818  # not an error: an answer
    """The person who was asked said no."""
