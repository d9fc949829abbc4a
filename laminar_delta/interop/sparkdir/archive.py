"""Files of a checkpoint directory as one state: a tar archive without times and owners, so that equal files are equal bytes."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, cast

from laminar_delta.codec import StreamDigest
from laminar_delta.errors import CorruptionError, FormatError
from laminar_delta.interop.source import KEPT_BYTES, ForeignState
from laminar_delta.interop.sparkdir.states import STATE

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place
    from laminar_delta.interop.sparkdir.states import StateFile

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedState(ForeignState):
    """Files below the state directory, as one archive that is made while it is read."""

    files: tuple[StateFile, ...] = ()

    def pieces(self) -> Iterator[bytes]:
        """See `ForeignState.pieces`."""
        if self.data is not None:
            yield self.data
            return
        digest = hashlib.sha256()
        for piece in archive(self.place, self.files):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.sha256:
            raise CorruptionError(
                "state files changed while they were read", expected=self.sha256, found=digest.hexdigest()
            )


def take_files(place: Place, files: Sequence[StateFile]) -> ArchivedState:
    """Reads files to their end, as an archive. Raises like `Place.stream`."""
    digest, ours, size, kept = hashlib.sha256(), StreamDigest(), 0, bytearray()
    for piece in archive(place, files):
        digest.update(piece)
        ours.update(piece)
        size += len(piece)
        if size <= KEPT_BYTES:
            kept += piece
    return ArchivedState(
        place=place,
        path=STATE,
        size=size,
        sha256=digest.hexdigest(),
        checksum=ours.checksum,
        data=bytes(kept) if size <= KEPT_BYTES else None,
        files=tuple(files),
    )


def archive(place: Place, files: Iterable[StateFile]) -> Iterator[bytes]:
    """The archive in pieces. Raises `CorruptionError` for a file of another length than was listed."""
    for file in files:
        entry = tarfile.TarInfo(file.path)
        entry.size = file.size
        yield entry.tobuf(tarfile.PAX_FORMAT)
        seen = 0
        for piece in place.stream(f"{STATE}/{file.path}"):
            seen += len(piece)
            yield piece
        if seen != file.size:
            raise CorruptionError(f"{file.path} changed while it was read", expected=file.size, found=seen)
        yield bytes(-seen % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def unpack(data: IO[bytes]) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The files of an archive, each with its content in pieces, to be read before the next."""
    try:
        with tarfile.open(fileobj=data, mode="r|") as opened:
            for entry in opened:
                content = opened.extractfile(entry) if entry.isfile() else None
                if content is None:
                    raise FormatError(
                        f"{entry.name} in the archived state is no ordinary file", found=entry.type.decode()
                    )
                yield entry.name, iter(lambda file=content: cast("bytes", file.read(_PIECE)), b"")  # type: ignore[misc]
    except tarfile.TarError as error:
        raise CorruptionError(f"the archived state cannot be read: {error}") from error
