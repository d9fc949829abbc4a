"""A place that files are read from: any Arrow filesystem, and never anything outside it.

What lies there was made by somebody else. So nothing is opened but ordinary files below the root, no file is read beyond
a limit that is known beforehand, names that climb out are refused, and on a local disk a link that leads out of the tree
is too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem, SubTreeFileSystem

from laminar_delta.engine.local.place import local_path
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, InvalidInputError, NotFoundError, StorageError
from laminar_delta.masking import masked

if TYPE_CHECKING:
    from pyarrow import NativeFile

PIECE_BYTES = 1 << 20
"""How much of a file is in memory while it is streamed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a source may ask for. Beyond these a file is reported, not read."""

    document_bytes: int = 64 << 20
    """Of one manifest or log entry."""
    document_values: int = 1_000_000
    """In one of those, counted by commas: parsed, a value can take a hundred times the room it has as text."""
    state_bytes: int = 16 << 30
    """Of one file with state; it is streamed, so this bounds time, not memory."""
    batch_bytes: int = 1 << 30
    """Of one batch, decompressed."""
    entries: int = 1_000_000
    """In one directory."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One name in a directory."""

    name: str
    is_directory: bool
    size: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, or a prefix of an object store, and everything below it."""

    filesystem: FileSystem
    root: str
    limits: Limits = Limits()

    @classmethod
    def of(cls, location: str | Path, filesystem: FileSystem | None = None, limits: Limits | None = None) -> Place:
        """The place a location names.

        Args:
            location: A path, or a URI such as `s3://bucket/prefix`; with a filesystem, a path on it.
            filesystem: Any Arrow filesystem.
            limits: How much of it may be read.
        """
        text = str(location)
        if filesystem is None:
            local = local_path(text)
            try:
                filesystem, text = (LocalFileSystem(), str(local)) if local else FileSystem.from_uri(text)
            except (OSError, ValueError) as error:
                raise InvalidInputError(
                    f"{masked(text)} is no place files can be read from: {masked(str(error))}"
                ) from error
        return cls(filesystem, text.rstrip("/"), limits or Limits())

    def below(self, name: str) -> Place:
        """A directory of this place as a place of its own."""
        return Place(self.filesystem, self.path(name), self.limits)

    @property
    def local_root(self) -> Path | None:
        """The root on the local disk, when that is where it is."""
        filesystem, path = self._innermost()
        return Path(path) if isinstance(filesystem, LocalFileSystem) else None

    @property
    def is_object_store(self) -> bool:
        """Whether there are no directories: Arrow would make empty objects in their place, which others trip over."""
        return self._innermost()[0].type_name in ("s3", "gcs", "abfs")

    def _innermost(self) -> tuple[FileSystem, str]:
        filesystem, path = self.filesystem, self.root
        while isinstance(filesystem, SubTreeFileSystem):
            path = f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
            filesystem = filesystem.base_fs
        return filesystem, path

    def path(self, name: str) -> str:
        """The full path of a name below the root. Raises `FormatError` for one that is no plain relative path."""
        segments = name.split("/")
        if "\0" in name or any(segment in ("", ".", "..") for segment in segments):
            raise FormatError(f"{name!r} is no path below {self.root}", expected="a relative path", found=name)
        return f"{self.root}/{name}" if self.root else name

    def entries(self, name: str = "") -> list[Entry]:
        """The names in a directory, sorted; none when it is not there. Names that are not UTF-8 are left out."""
        path = self.path(name) if name else self.root
        local = self.local_root
        if name:
            self._check_inside(name)
        with _translated(path):
            if local is not None:
                found = self._local_entries(local / name if name else local)
            else:
                infos = self.filesystem.get_file_info(FileSelector(path, allow_not_found=True))
                found = [
                    Entry(info.base_name, info.type == FileType.Directory, info.size)
                    for info in infos
                    if info.type in (FileType.Directory, FileType.File)
                ]
        if len(found) > self.limits.entries:
            raise FormatError(
                f"{path} has more than {self.limits.entries} entries",
                code=ErrorCode.FORMAT_TOO_LARGE,
                expected=self.limits.entries,
                found=len(found),
                next_step="Raise the limit if this is meant.",
            )
        return sorted(found)

    def size(self, name: str) -> int | None:
        """The size of a file; None when it is not there.

        Raises:
            FormatError: It is something else than an ordinary file, or a link that leads out of the tree.
        """
        path = self.path(name)
        with _translated(path):
            info = self.filesystem.get_file_info(path)
        if info.type == FileType.NotFound:
            return None
        self._check_inside(name)
        if info.type != FileType.File:
            raise FormatError(f"{name} is no ordinary file", expected="a file", found=str(info.type))
        return int(info.size)

    def read(self, name: str, *, limit: int | None = None) -> bytes:
        """A whole file. Raises `NotFoundError`, or `FormatError` when it is longer than the limit (of documents by default)."""
        most = self.limits.document_bytes if limit is None else limit
        size = self._existing_size(name)
        if size > most:
            raise too_large(name, most, size)
        with _translated(name), self.filesystem.open_input_file(self.path(name)) as file:
            # Arrow allocates what is asked for; one byte more, because it may have grown since it was measured.
            data = bytes(file.read(size + 1))
        if len(data) > size:
            raise FormatError(f"{name} grew while it was read", expected=size, found=len(data))
        return data

    def document(self, name: str) -> bytes:
        """A whole JSON document that can be parsed in bounded memory. Raises like `read`."""
        data = self.read(name)
        values = data.count(b",")
        if values > self.limits.document_values:
            raise FormatError(
                f"{name} holds more than {self.limits.document_values} values",
                code=ErrorCode.FORMAT_TOO_LARGE,
                expected=self.limits.document_values,
                found=values,
                next_step="Raise the limit if this is meant.",
            )
        return data

    def beginning(self, name: str, count: int) -> bytes:
        """The first bytes of a file, whatever its length. Raises like `read`."""
        self._existing_size(name)
        with _translated(name), self.filesystem.open_input_file(self.path(name)) as file:
            return bytes(file.read(count))

    def stream(self, name: str) -> Iterator[bytes]:
        """A file in pieces. Raises like `read`, with the limit of states."""
        size, most = self._existing_size(name), self.limits.state_bytes
        if size > most:
            raise too_large(name, most, size)
        with _translated(name), self.filesystem.open_input_file(self.path(name)) as file:
            yield from _pieces(name, file, most)

    def _existing_size(self, name: str) -> int:
        size = self.size(name)
        if size is None:
            raise NotFoundError(f"{name} is not there", expected=name)
        return size

    def _local_entries(self, directory: Path) -> list[Entry]:
        found: list[Entry] = []
        try:
            scan = os.scandir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return found
        with scan:
            for entry in scan:
                try:
                    entry.name.encode()
                    # Links are followed here and refused where they lead out, so that they show up in the report.
                    is_directory = entry.is_dir()
                    size = None if is_directory else entry.stat().st_size
                except (OSError, UnicodeEncodeError):
                    continue
                found.append(Entry(entry.name, is_directory, size))
                if len(found) > self.limits.entries:
                    break
        return found

    def _check_inside(self, name: str) -> None:
        root = self.local_root
        if root is None:
            return
        target = Path(os.path.realpath(root / name))
        if not target.is_relative_to(os.path.realpath(root)):
            raise FormatError(
                f"{name} is a symbolic link that leads out of the tree",
                expected=str(root),
                found=str(target),
                next_step="Copy what it points to into the tree if it is meant to be there.",
            )


def too_large(name: str, limit: int, size: int) -> FormatError:
    """A file that is longer than its reader is ready for."""
    return FormatError(
        f"{name} has {size} bytes, more than the limit of {limit}",
        code=ErrorCode.FORMAT_TOO_LARGE,
        expected=limit,
        found=size,
        next_step="Raise the limit if this is meant.",
    )


def _pieces(name: str, file: NativeFile, most: int) -> Iterator[bytes]:
    seen = 0
    while piece := bytes(file.read(PIECE_BYTES)):
        seen += len(piece)
        if seen > most:
            raise too_large(name, most, seen)
        yield piece


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFoundError(f"{what} is not there", expected=what) from error
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{what} holds a name that is not UTF-8", found=str(error)) from error
    except OSError as error:
        raise StorageError(f"{what} cannot be read: {error}") from error
