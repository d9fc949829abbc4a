"""The process that delta-rs runs in: its threads do not come along into one that is forked from it.

There every call would panic, whatever engine it is made on and however often it is repeated. Linux forks by default in
`multiprocessing` before Python 3.14, so it is looked at before each use, and said what to do instead.
"""

from __future__ import annotations

import os

from laminar_delta.errors import SessionStateError

_used_in: int | None = None


def check_not_forked() -> None:
    """Raises `SessionStateError` in a process forked from one that had used delta-rs. To be called before each use of it."""
    global _used_in  # as long as the process, like the threads it is about
    here = os.getpid()
    if _used_in is None:
        _used_in = here
    if _used_in != here:
        raise SessionStateError(
            "this process was forked from one that had used Delta tables, whose threads did not come along",
            expected=f"process {_used_in}",
            found=f"process {here}",
            next_step='Start processes with `multiprocessing.get_context("spawn")`, or before anything is opened, '
            "and open the catalog in each of them.",
        )
