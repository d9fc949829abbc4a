"""Writing files so that each is there whole or not at all, on any Arrow filesystem.

On a local disk a file is written under a temporary name, flushed, renamed, and its directory flushed: the way LaminarDB's
own store does it. On an object store a file appears when its upload is complete. A file that is there already with the
same bytes is left alone, so that what was interrupted can be run again; one with other bytes is never replaced, except
for pointers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow.fs import FileType

from laminar_delta.engine.local.durability import fsync_path, make_directory
from laminar_delta.errors import ConflictError, StorageError
from laminar_delta.model import new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

TEMPORARY = ".tmp"


@dataclass(slots=True)
class Output:
    """A tree being written."""

    place: Place
    dry_run: bool = False
    """Only count."""
    written: int = 0
    unchanged: int = 0

    def write(self, name: str, pieces: Iterable[bytes | memoryview], *, sha256: str, replace: bool = False) -> None:
        """Writes a file.

        Args:
            name: Below the place.
            pieces: Its content; not read when the file is there already.
            sha256: Of the content, to tell.
            replace: Also over a file with other content: for pointers.

        Raises:
            ConflictError: It is there with other content.
        """
        there = self._digest(name)
        if there == sha256:
            self.unchanged += 1
            return
        if there is not None and not replace:
            raise ConflictError(
                f"{self.place.path(name)} is there with other content",
                expected=sha256,
                found=there,
                next_step="Name an empty directory, or the one this pipeline was written to before.",
            )
        self.written += 1
        if not self.dry_run:
            with _translated(name):
                self._put(name, pieces)

    def create(self, name: str, data: bytes) -> bool:
        """Writes a file unless there is one; whether it did. Of several on one local disk exactly one does."""
        root = self.place.local_root
        with _translated(name):
            if root is None:
                if self.place.filesystem.get_file_info(self.place.path(name)).type != FileType.NotFound:
                    return False
                self._put(name, [data])
                return True
            target = root / name
            fresh = self._temporary(target, [data])
            try:
                os.link(fresh, target)
            except FileExistsError:
                return False
            finally:
                fresh.unlink()
                fsync_path(target.parent)
            return True

    def remove(self, name: str) -> None:
        """Removes a file, for good also after a power loss; one that is gone already is fine."""
        root = self.place.local_root
        path = self.place.path(name)
        with _translated(name):
            with suppress(FileNotFoundError):
                self.place.filesystem.delete_file(path)
            if root is not None:
                fsync_path((root / name).parent)

    def _put(self, name: str, pieces: Iterable[bytes | memoryview]) -> None:
        root = self.place.local_root
        if root is not None:
            target = root / name
            self._temporary(target, pieces).replace(target)
            fsync_path(target.parent)
            return
        filesystem, path = self.place.filesystem, self.place.path(name)
        # An object appears when its upload is complete; a file, while it is written.
        fresh = path
        if not self.place.is_object_store:
            directory = path.rpartition("/")[0]
            filesystem.create_dir(directory, recursive=True)
            fresh = f"{directory}/.{new_attempt_id()}{TEMPORARY}"
        try:
            # Left to itself, Arrow compresses what is called `.lz4` once more.
            with filesystem.open_output_stream(fresh, compression=None) as stream:
                for piece in pieces:
                    stream.write(piece)
        except BaseException:
            # Leaving the block completed what there was of it.
            with suppress(OSError):
                filesystem.delete_file(fresh)
            raise
        if fresh != path:
            filesystem.move(fresh, path)

    def _temporary(self, target: Path, pieces: Iterable[bytes | memoryview]) -> Path:
        """The content under a name of its own beside the target, flushed: a name that two shared would mix their content."""
        make_directory(target.parent)
        fresh = target.with_name(f".{new_attempt_id()}{TEMPORARY}")
        try:
            with fresh.open("wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        return fresh

    def _digest(self, name: str) -> str | None:
        if self.place.size(name) is None:
            return None
        digest = hashlib.sha256()
        for piece in self.place.stream(name):
            digest.update(piece)
        return digest.hexdigest()


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(f"{name} cannot be written: {error}") from error
