"""The catalog's file lock: every write to a local table, by every engine, happens under it.

Spark's log store for local files checks that a log entry is absent and then renames over it, so two JVMs, or a JVM and
delta-rs, can overwrite a commit that was acknowledged. The lock makes such writers take turns. Five details matter:

- It is `flock` on one file per location. The descriptor is not passed on to children: `exec` closes it, and after a `fork`
  the child drops it (`filelock` does both), so a forked child cannot keep the lock of a parent that was killed.
- A JVM outlives its killed Python by seconds and may still finish a commit. An engine whose commits are made by a JVM writes
  that JVM's pid beside the lock while it holds it; the next holder of the lock waits for such a JVM to end.
- Whoever waits for the lock holds a second one, the turnstile, meanwhile. A busy writer that lets go and asks again has to
  pass the turnstile first, so it cannot starve the others (without it, one of two racing processes made every commit).
- An interrupt that lands just when the lock was got leaves it with the exception that it raised: it is let go when nobody keeps
  that any more, as an `except` block does at its end. Until then other writers wait as for any holder.
- NFS is not supported: its locks do not survive a server restart.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from laminar_delta.errors import ErrorCode, StorageError

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_FILE = ".laminar.lock"
TURN_FILE = ".laminar.turn"
HOLDER_FILE = ".laminar.jvm"

DEFAULT_TIMEOUT_S = 120.0
"""How long a write waits for its turn: longer than any one commit, shorter than a supervisor's patience."""
_POLL_S = 0.002
_JVM_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Process:
    """A process that cannot be mistaken for a later one with the same pid."""

    pid: int
    started: str
    """The kernel's start time of the process; empty where the system does not tell."""

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now."""
        return cls(pid, _start_time(pid))

    def alive(self) -> bool:
        """Whether this very process still runs. A zombie does not: it can no longer write."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return _start_time(self.pid) == self.started


def _start_time(pid: int) -> str:
    try:
        # Field 22 of stat; the command name before it is in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "ended" if fields[0] == "Z" else fields[19]


class CatalogLock:
    """The lock of one location. One object per engine; its threads take turns among themselves first."""

    def __init__(self, root: Path, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        self._root = root
        self._timeout_s = timeout_s
        self._threads = threading.Lock()

    @contextmanager
    def held(
        self, jvm: Process | None = None, *, still_at_work: Callable[[BaseException], bool] = lambda _: False
    ) -> Iterator[None]:
        """Holds the lock.

        Args:
            jvm: The JVM that will commit on the holder's behalf, remembered beside the lock meanwhile.
            still_at_work: Of an error that ends the turn: whether the JVM may go on committing after it. It then stays
                remembered, until it ends or its own process has the next turn.

        Raises:
            StorageError: Code `locked`: another process kept it for longer than the timeout.
        """
        deadline = time.monotonic() + self._timeout_s
        if not self._threads.acquire(timeout=self._timeout_s):
            raise self._locked("another thread of this process")
        try:
            self._acquire(deadline)
            try:
                self._wait_for_jvm(deadline, own=jvm)
                if jvm is not None:
                    self._remember(jvm)
                try:
                    yield
                except BaseException as error:
                    if jvm is not None and not still_at_work(error):
                        self._holder.unlink(missing_ok=True)
                    raise
                if jvm is not None:
                    self._holder.unlink(missing_ok=True)
            finally:
                self._file.release()
        finally:
            self._threads.release()

    @cached_property
    def _file(self) -> FileLock:
        # Late: whoever only reads never needs it.
        from filelock import FileLock

        return FileLock(self._root / LOCK_FILE, thread_local=False)

    @cached_property
    def _turnstile(self) -> FileLock:
        from filelock import FileLock

        return FileLock(self._root / TURN_FILE, thread_local=False)

    @property
    def _holder(self) -> Path:
        return self._root / HOLDER_FILE

    def _acquire(self, deadline: float) -> None:
        if not self._root.is_dir():
            # The lock would make it anew, and be in the way of whoever brings it back.
            raise StorageError(
                f"the catalog's directory {self._root} is gone",
                expected=str(self._root),
                found=None,
                next_step="Bring it back, then repeat the call: nothing was made in its place.",
            )
        from filelock import Timeout

        try:
            with self._turnstile.acquire(timeout=_left(deadline), poll_interval=_POLL_S):
                self._file.acquire(timeout=_left(deadline), poll_interval=_POLL_S)
        except Timeout:
            raise self._locked("another process") from None
        except OSError as error:
            denied = isinstance(error, PermissionError) or error.errno == errno.EROFS
            raise StorageError(
                f"the catalog's lock file {self._root / LOCK_FILE} cannot be used: {error}",
                next_step="Only who may write to the catalog's directory can change it; reading needs no lock."
                if denied
                else None,
                details={"path": str(self._root)},
            ) from error

    def _wait_for_jvm(self, deadline: float, own: Process | None) -> None:
        """Waits for a JVM that a killed holder left behind: it may still be committing."""
        left_behind = self._recall()
        if left_behind is None or left_behind == own:
            return
        while left_behind.alive():
            if time.monotonic() > deadline:
                raise self._locked(f"the JVM {left_behind.pid}, left behind by a Python process that was killed,")
            time.sleep(_JVM_POLL_S)
        self._holder.unlink(missing_ok=True)

    def _remember(self, jvm: Process) -> None:
        # Replaced in one step: a holder killed while writing must not leave a torn record.
        fresh = self._holder.with_suffix(f".{os.getpid()}.tmp")
        fresh.write_text(json.dumps(asdict(jvm)))
        fresh.replace(self._holder)

    def _recall(self) -> Process | None:
        try:
            return Process(**json.loads(self._holder.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"{self._holder} is not readable as a record of a JVM: {error}",
                code=ErrorCode.LOCKED,
                next_step="Make sure no JVM writes to this catalog, then delete that file.",
            ) from error

    def _locked(self, holder: str) -> StorageError:
        return StorageError(
            f"{holder} held the lock of {self._root} for more than {self._timeout_s:g} s",
            code=ErrorCode.LOCKED,
            expected=f"{self._timeout_s:g} s",
            found="still held",
            next_step="Let it finish or end it, then repeat the call: nothing was written.",
        )


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)
