"""Reading checkpoints by the incremental manager of LaminarDB 0.18.

    checkpoint_000000000000000a/metadata.json, state.bin      the number is hexadecimal; without state.bin there is no state

Although it calls them incremental, each holds its whole state or none, so none needs the one before it: the manager itself
removes parents under their children. A directory without metadata is what a crash left. The document is kept as it was.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.catalog.sidecar import SIDECAR
from laminar_delta.errors import LaminarDeltaError, NotFoundError
from laminar_delta.interop.laminardb.layout import STATE
from laminar_delta.interop.source import Candidate, ForeignCheckpoint, ForeignState, Source, fatal, take_state, warning
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint
from laminar_delta.model.incremental import IncrementalMetadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laminar_delta.interop.place import Place
    from laminar_delta.model import Finding

METADATA = "metadata.json"
DOCUMENT = "__laminardb_incremental__"
"""The operator name under which the original document is kept; reserved."""

_NAME = re.compile("checkpoint_([0-9a-fA-F]{1,16})", re.ASCII)


class IncrementalSource(Source):
    """A directory of such checkpoints."""

    kind: ClassVar[str] = "laminardb-incremental"

    def candidates(self) -> list[Candidate]:
        """See `Source.candidates`."""
        named = []
        for entry in self.place.entries():
            match = _NAME.fullmatch(entry.name) if entry.is_directory else None
            if match is not None:
                number = int(match[1], 16)
                canonical = entry.name == incremental_name(number)
                named.append((number, Candidate(name=entry.name, number=number if canonical else None)))
        return [candidate for _, candidate in sorted(named, key=lambda pair: (pair[0], pair[1].name))]

    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """See `Source.read`."""
        number = candidate.number
        if number is None:
            return _unreadable(candidate, f"LaminarDB does not look for a checkpoint under {candidate.name}")
        state: ForeignState | None = None
        try:
            metadata = IncrementalMetadata.from_json(self.place.document(f"{candidate.name}/{METADATA}"))
            path = f"{candidate.name}/{STATE}"
            if self.place.size(path) is not None:
                state = take_state(self.place, path)
        except NotFoundError:
            return _unreadable(candidate, f"{METADATA} is not there: the checkpoint was never completed")
        except LaminarDeltaError as error:
            return _unreadable(candidate, f"corrupt checkpoint: {self.tolerated(error).message}")
        return ForeignCheckpoint(
            candidate=candidate,
            manifest=_manifest(metadata),
            states={} if state is None else {(SIDECAR, 0): state},
            findings=tuple(_examine(number, metadata, state)),
        )


def incremental_name(number: int) -> str:
    """What a checkpoint's directory is called."""
    return f"checkpoint_{number:016x}"


def is_incremental(place: Place, directory: str = "") -> bool:
    """Whether a directory holds such checkpoints; names alone do not tell them from those of the file-system store."""
    above = f"{directory}/" if directory else ""
    return any(
        len(entry.name) == len(incremental_name(0)) and _has_metadata(place, f"{above}{entry.name}")
        for entry in place.entries(directory)
        if entry.is_directory and _NAME.fullmatch(entry.name)
    )


def _has_metadata(place: Place, name: str) -> bool:
    try:
        return place.size(f"{name}/{METADATA}") is not None
    except LaminarDeltaError:
        return True  # there is something: reading it will say what


def _examine(number: int, metadata: IncrementalMetadata, state: ForeignState | None) -> Iterator[Finding]:
    found = 0 if state is None else state.size
    if metadata.id != number:
        yield fatal(
            "other-id", f"the document is of checkpoint {metadata.id}, its name says {number}: copied or renamed"
        )
    if metadata.id == 0:
        yield fatal("zero", "the id is 0 — likely corrupted")
    if found != metadata.size_bytes:
        what = "is not there" if state is None else f"has {found} bytes"
        yield fatal("state-length", f"{STATE} {what}, {metadata.size_bytes} were written")
    elif state is None:
        yield warning("no-state", "it holds no state: LaminarDB wrote none, and replays its log from wal_position")
    if metadata.epoch == 0:
        yield warning("no-epoch", "LaminarDB was told of no epoch: its id is taken for one")


def _manifest(metadata: IncrementalMetadata) -> CheckpointManifest:
    epoch = metadata.epoch or metadata.id
    return CheckpointManifest(
        version=1,
        checkpoint_id=metadata.id,
        epoch=epoch,
        # Beyond what fits, the number as it is: the catalog refuses it by name.
        timestamp_ms=min(metadata.timestamp * 1000, 2**64 - 1),
        source_offsets={
            name: ConnectorCheckpoint.with_offsets(epoch, {"offset": str(offset)})
            for name, offset in metadata.source_offsets.items()
        },
        operator_states={DOCUMENT: OperatorCheckpoint.inline(metadata.to_json(pretty=False))},
        wal_position=metadata.wal_position,
        watermark=metadata.watermark,
        source_names=tuple(sorted(metadata.source_offsets)),
        size_bytes=metadata.size_bytes,
    )


def _unreadable(candidate: Candidate, message: str) -> ForeignCheckpoint:
    return ForeignCheckpoint(candidate=candidate, findings=(fatal("manifest-unreadable", message),))
