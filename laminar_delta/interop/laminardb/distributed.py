"""Reading checkpoints of the distributed ("V2") layout: ids that are UUIDs, one file per operator partition, full or delta.

Both forms of its paths are read, the documented one and the one 0.18 really writes (without the slash after the id). A
file is found by the path its manifest records, as long as that stays inside the tree, or else where the layout puts it.
Deltas are bytes that only their operator can apply, so a checkpoint with deltas is usable only if its parents are, down
to a full state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.errors import FormatError, InvalidInputError, LaminarDeltaError, NotFoundError
from laminar_delta.interop.laminardb.conversion import DELTA_PREFIX, manifest_from_v2, state_name
from laminar_delta.interop.source import (
    KEPT_BYTES,
    KEPT_BYTES_IN_ALL,
    Candidate,
    ForeignCheckpoint,
    ForeignState,
    Source,
    fatal,
    take_state,
)
from laminar_delta.model import CheckpointId, CheckpointManifestV2, PartitionSnapshotEntry, object_store_path

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place
    from laminar_delta.model import Finding

MANIFEST = "manifest.json"
LATEST = "_latest"
LONGEST_POINTER = 4096

_ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

Partition = tuple[str, int]


class DistributedSource(Source):
    """A tree of the distributed layout; the place is its prefix, the directory with `_latest`."""

    kind: ClassVar[str] = "laminardb-distributed"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._partitions: dict[str, set[Partition] | None] = {}
        """Of each checkpoint that proved usable: what state it reaches; None for one that is in the catalog already."""

    def candidates(self) -> list[Candidate]:
        """See `Source.candidates`."""
        found = set()
        for entry in self.place.entries():
            text = entry.name if entry.is_directory else entry.name.removesuffix(MANIFEST)
            number = _parsed(text)
            if number is None or (not entry.is_directory and text == entry.name):
                continue
            if entry.is_directory and self._is_missing(f"{entry.name}/{MANIFEST}"):
                continue
            found.add(number)
        return [Candidate(name=text, external_id=text) for text in sorted(found)]

    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """See `Source.read`. Parents have to be read before their children: in the order of `candidates` they are."""
        number = candidate.name
        try:
            v2 = CheckpointManifestV2.from_json(self._document(number))
        except LaminarDeltaError as error:
            message = f"corrupt manifest: {self.tolerated(error).message}"
            return ForeignCheckpoint(candidate=candidate, findings=(fatal("manifest-unreadable", message),))
        states: dict[Partition, ForeignState] = {}
        findings = [*self._examine_ids(number, v2), *self._take_states(number, v2, states)]
        if not findings:
            findings.extend(self._examine_chain(v2, states))
        if not findings:
            self._note(number, v2, states)
        return ForeignCheckpoint(
            candidate=candidate,
            manifest=manifest_from_v2(v2, {key: state.sha256 for key, state in states.items()}),
            states=states,
            parent=None if v2.parent_id is None else str(v2.parent_id),
            findings=tuple(findings),
        )

    def assume(self, external_ids: Iterable[str]) -> None:
        """Takes checkpoints as usable that the catalog has already, whether or not they are still in the tree."""
        for text in external_ids:
            self._partitions.setdefault(text, None)

    def pointer(self) -> str | None:
        """See `Source.pointer`."""
        try:
            return self.place.read(LATEST, limit=LONGEST_POINTER).decode("utf-8", "replace")
        except NotFoundError:
            return None
        except LaminarDeltaError as error:
            return f"unreadable: {error.message}"

    def _is_missing(self, path: str) -> bool:
        try:
            return self.place.size(path) is None
        except FormatError:
            return False  # there is something: reading it will say what

    def _document(self, number: str) -> bytes:
        """The manifest in either form. Raises `FormatError` when there are two that differ."""
        found = []
        for path in (f"{number}/{MANIFEST}", f"{number}{MANIFEST}"):
            try:
                found.append(self.place.document(path))
            except NotFoundError:
                continue
        if not found:
            raise NotFoundError("manifest not found", expected=number)
        if found[0] != found[-1]:
            raise FormatError(f"{number} has two manifests, with and without the slash after the id, that differ")
        return found[0]

    def _examine_ids(self, number: str, v2: CheckpointManifestV2) -> Iterator[Finding]:
        if str(v2.checkpoint_id) != number:
            message = f"the document is of checkpoint {v2.checkpoint_id}, its name says {number}: copied or renamed"
            yield fatal("other-id", message)
        if v2.epoch == 0:
            yield fatal("zero", "epoch is 0 — likely corrupted")

    def _take_states(
        self, number: str, v2: CheckpointManifestV2, states: dict[Partition, ForeignState]
    ) -> Iterator[Finding]:
        kept = 0
        used: set[str] = set()
        for operator, entry in v2.operators.items():
            for partition in entry.partitions:
                key = state_name(operator, is_delta=partition.is_delta), partition.partition_id
                if key in states:
                    yield fatal("partition-twice", f"partition {partition.partition_id} of {operator!r} is there twice")
                    continue
                try:
                    path = self._find(number, operator, partition)
                    if path in used:
                        # Or a short manifest could have one large file read as often as it likes.
                        raise FormatError(f"{path} is the file of another partition too", found=path)
                    used.add(path)
                    room = min(KEPT_BYTES, KEPT_BYTES_IN_ALL - kept)
                    states[key] = self._take(path, partition, keep=room)
                    kept += len(states[key].data or b"")
                except LaminarDeltaError as error:
                    what = f"partition {partition.partition_id} of operator {operator!r}"
                    yield fatal("state-unreadable", f"{what}: {self.tolerated(error).message}")

    def _take(self, path: str, entry: PartitionSnapshotEntry, *, keep: int) -> ForeignState:
        state = take_state(self.place, path, keep=keep)
        if state.size != entry.size_bytes:
            raise FormatError(f"{path} has {state.size} bytes instead of {entry.size_bytes}")
        if entry.sha256 is not None and entry.sha256 != state.sha256:
            raise FormatError(f"{path} is not what was written: expected SHA-256 {entry.sha256}, found {state.sha256}")
        return state

    def _find(self, number: str, operator: str, entry: PartitionSnapshotEntry) -> str:
        kind = "delta" if entry.is_delta else "snap"
        own = object_store_path(f"operators/{operator}/partition-{entry.partition_id}.{kind}")
        for path in (*recorded_paths(number, entry.path), f"{number}/{own}", f"{number}{own}"):
            if self.place.size(path) is not None:
                return path
        raise NotFoundError(f"{entry.path} is not there", expected=entry.path)

    def _examine_chain(self, v2: CheckpointManifestV2, states: Mapping[Partition, ForeignState]) -> Iterator[Finding]:
        """Whether every delta has a state to be applied to."""
        needed = _needed(states)
        if not needed:
            return
        parent = None if v2.parent_id is None else str(v2.parent_id)
        if parent is None:
            yield fatal("no-parent", "it has deltas and names no parent")
        elif parent not in self._partitions:
            yield fatal("parent-missing", f"its deltas are against {parent}, which is not there or not usable")
        else:
            reached = self._partitions[parent]
            for operator, partition in sorted(needed - reached) if reached is not None else []:
                message = f"{parent} has no state that the delta of {operator!r} partition {partition} is against"
                yield fatal("base-missing", message)

    def _note(self, number: str, v2: CheckpointManifestV2, states: Mapping[Partition, ForeignState]) -> None:
        reached = {key for key in states if not key[0].startswith(DELTA_PREFIX)}
        needed = _needed(states)
        parent = self._partitions.get(str(v2.parent_id)) if needed else set()
        # Against one that is in the catalog, what is reached is known only there.
        self._partitions[number] = None if parent is None else reached | needed


def recorded_paths(number: str, recorded: str) -> list[str]:
    """Where a path that a manifest records can lead: inside the tree, below the id it names, or its own.

    Raises:
        FormatError: It climbs out of the tree.
    """
    segments = recorded.split("/")
    if ".." in segments or "\0" in recorded:
        raise FormatError(f"{recorded!r} leads out of the tree", found=recorded)
    match = _ID.search(recorded)
    if match is not None:
        # 0.18 records the prefix too, which may be another one here: what counts begins with the id.
        inside = object_store_path(recorded[match.start() :])
        rest = inside[len(match[0]) :].lstrip("/")
        return [f"{match[0]}/{rest}", f"{match[0]}{rest}"] if rest else []
    inside = object_store_path(recorded)
    return [f"{number}/{inside}", f"{number}{inside}"] if inside else []


def _needed(states: Mapping[Partition, ForeignState]) -> set[Partition]:
    """The partitions that have a delta and no full state beside it."""
    deltas = {(name.removeprefix(DELTA_PREFIX), part) for name, part in states if name.startswith(DELTA_PREFIX)}
    return {key for key in deltas if key not in states}


def _parsed(text: str) -> str | None:
    try:
        return str(CheckpointId(text)) if _ID.fullmatch(text) else None
    except InvalidInputError:
        return None
