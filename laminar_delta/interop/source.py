"""What every kind of foreign source comes down to: checkpoints by name, each read and verified when it is its turn."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.codec import StreamDigest
from laminar_delta.errors import CorruptionError, StorageError
from laminar_delta.model import Finding, Severity

if TYPE_CHECKING:
    from laminar_delta.errors import LaminarDeltaError
    from laminar_delta.interop.place import Place
    from laminar_delta.model import CheckpointManifest

KEPT_BYTES = 1 << 20
"""State up to this size stays in memory between verifying and saving; a larger one is read a second time."""
KEPT_BYTES_IN_ALL = 32 * KEPT_BYTES
"""The same for all states of one checkpoint: it may have any number of small ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignState:
    """A file with state that was read once and verified."""

    place: Place
    path: str
    size: int
    sha256: str
    checksum: str
    """Of the same bytes, as a catalog has it."""
    data: bytes | None = None
    """The bytes, when they are few."""

    def pieces(self) -> Iterator[bytes]:
        """The bytes again. Raises `CorruptionError` in the end when they are no longer the ones that were verified."""
        if self.data is not None:
            yield self.data
            return
        digest = hashlib.sha256()
        for piece in self.place.stream(self.path):
            digest.update(piece)
            yield piece
        if digest.hexdigest() != self.sha256:
            raise CorruptionError(
                f"{self.path} changed while it was read", expected=self.sha256, found=digest.hexdigest()
            )


def take_state(place: Place, path: str, *, keep: int = KEPT_BYTES) -> ForeignState:
    """Reads a file with state to its end. Raises like `Place.stream`.

    Args:
        place: Where.
        path: Which.
        keep: Up to this size its bytes stay in memory.
    """
    digest, ours, size, kept = hashlib.sha256(), StreamDigest(), 0, bytearray()
    for piece in place.stream(path):
        digest.update(piece)
        ours.update(piece)
        size += len(piece)
        if size <= keep:
            kept += piece
    data = bytes(kept) if size <= keep else None
    return ForeignState(place=place, path=path, size=size, sha256=digest.hexdigest(), checksum=ours.checksum, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A checkpoint that a source lists, not yet read."""

    name: str
    """What the source calls it."""
    number: int | None = None
    """Its id, where the source numbers its checkpoints; otherwise the importer gives one, in order."""
    external_id: str | None = None
    """Its id in the source, where that is no number."""

    @property
    def label(self) -> str:
        """What reports call it: its number, where the source has numbers."""
        return self.name if self.number is None or self.external_id is not None else str(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignCheckpoint:
    """A checkpoint as it was read. Problems are data; only a place that cannot be read at all raises."""

    candidate: Candidate
    manifest: CheckpointManifest | None = None
    """Under its own id, or 0 where the importer gives one; None when it cannot be read."""
    states: Mapping[tuple[str, int], ForeignState] = field(default_factory=dict)
    vnode_count: int | None = None
    parent: str | None = None
    """The external id of the checkpoint its deltas are against."""
    findings: tuple[Finding, ...] = ()
    passing: frozenset[str] = frozenset()
    """Operators that tell of the source as it is now, such as a list of files: no difference when they change. Those whose
    names are below one of these too."""
    listed_bytes: int = 0
    """Of state that is listed and not taken."""

    @property
    def usable(self) -> bool:
        """Whether nothing found speaks against using it."""
        return self.manifest is not None and not any(finding.is_fatal for finding in self.findings)

    def passes(self, operator: str) -> bool:
        """Whether what an operator has is no difference when it changes."""
        return any(operator == name or operator.startswith(f"{name}/") for name in self.passing)

    @property
    def problems(self) -> tuple[str, ...]:
        """The findings in words."""
        return tuple(finding.message for finding in self.findings)

    @property
    def state_bytes(self) -> int:
        """Bytes of state in files of their own, taken or listed."""
        return sum(state.size for state in self.states.values()) + self.listed_bytes


class Source(ABC):
    """A tree of checkpoints that some other system wrote."""

    kind: ClassVar[str]
    batches: Sequence[str] = ()
    """Files with LCB1 batches beside the checkpoints."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @abstractmethod
    def candidates(self) -> list[Candidate]:
        """The checkpoints there are, ascending, by their names alone."""

    @abstractmethod
    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """One checkpoint, verified."""

    def tolerated(self, error: LaminarDeltaError) -> LaminarDeltaError:
        """An error that concerns one checkpoint only; raised again when it is the storage as a whole that fails.

        On a local disk one file may have rotted among good ones. A store behind a network that does not answer is not a source
        of which everything is damaged.
        """
        if isinstance(error, StorageError) and self.place.local_root is None:
            raise error
        return error

    def assume(self, external_ids: Iterable[str]) -> None:
        """Told which of its checkpoints a catalog has already."""
        self.assumed = frozenset(external_ids)

    def pointer(self) -> str | None:
        """What the source's own latest pointer says; recovery does not depend on it."""
        return None

    def details(self) -> Mapping[str, object]:
        """What else to tell of the source."""
        return {}

    def notes(self) -> tuple[str, ...]:
        """Remarks on what was read so far."""
        return ()


def fatal(code: str, message: str) -> Finding:
    """A finding that makes a checkpoint unusable."""
    return Finding(severity=Severity.FATAL, code=code, message=message)


def warning(code: str, message: str) -> Finding:
    """A finding that does not."""
    return Finding(severity=Severity.WARNING, code=code, message=message)
