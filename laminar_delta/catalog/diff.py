"""What differs between two checkpoints: offsets, watermarks, sinks, operator state, and every other field of the manifest.

State is compared by the checksums in its layouts; its bytes are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from laminar_delta.catalog.checkpoints import load_manifest
from laminar_delta.catalog.healing import healed
from laminar_delta.catalog.rows import SOURCE, TABLE
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.codec import xxh3_hex
from laminar_delta.model.display import Displayed

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.model.manifest import CheckpointManifest, ConnectorCheckpoint

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

OFFSET, WATERMARK, SINK, OPERATOR, INFLIGHT, FIELD = "offset", "watermark", "sink", "operator", "inflight", "field"

_COMPARED_APART = {
    "checkpoint_id",
    "source_offsets",
    "table_offsets",
    "watermark",
    "source_watermarks",
    "sink_epochs",
    "sink_commit_statuses",
    "operator_states",
    "inflight_data",
}
"""Fields that are compared entry by entry, or are what the diff is between."""

_COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("kind", "name", "detail", "change", "before", "after"), pa.string()),
    # Wide enough for the distance of any two offsets that are compared as numbers.
    "difference": pa.decimal128(38, 0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One difference."""

    kind: str
    """`source`, `table`, `offset`, `watermark`, `sink`, `operator`, `inflight` or `field`."""
    name: str
    """Of the source, sink, operator or field; empty for the watermark of the whole checkpoint."""
    detail: str | None = None
    """What of it: the partition of an offset, `epoch`, `status`, a partition of an operator."""
    change: str
    """`added`, `removed` or `changed`."""
    before: object = None
    """A JSON value; None on the side that lacks it. Of state the bytes and of in-flight data the records are counted."""
    after: object = None
    difference: int | None = None
    """`after - before` where both are whole numbers."""

    def __str__(self) -> str:
        about = " ".join(part for part in (self.kind, self.name, self.detail) if part)
        if self.change == "added":
            return f"+ {about}: {_text(self.after)}"
        if self.change == "removed":
            return f"- {about}: {_text(self.before)}"
        if self.before == self.after:
            return f"  {about}: other content, {self.after} as before"
        by = "" if self.difference is None else f" ({self.difference:+})"
        return f"  {about}: {_text(self.before)} → {_text(self.after)}{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDiff(Displayed):
    """What changed from one checkpoint to another."""

    pipeline: str
    before: int
    """The checkpoint that is compared."""
    other_pipeline: str
    after: int
    """The checkpoint it is compared to."""
    changes: tuple[Change, ...]

    def of(self, kind: str) -> tuple[Change, ...]:
        """The changes of one kind."""
        return tuple(change for change in self.changes if change.kind == kind)

    def to_dict(self) -> dict[str, object]:
        """As plain JSON values."""
        return asdict(self)

    def rows(self) -> pa.Table:
        """As a table, a row per change; what is no text is JSON. For notebooks."""
        return pa.Table.from_pylist(
            [{**asdict(c), "before": _text(c.before), "after": _text(c.after)} for c in self.changes],
            schema=pa.schema(_COLUMNS),
        )

    def __str__(self) -> str:
        other = "" if self.other_pipeline == self.pipeline else f"{self.other_pipeline} "
        count = f"{len(self.changes)} difference{'' if len(self.changes) == 1 else 's'}"
        return "\n".join([f"{self.pipeline} {self.before} → {other}{self.after}: {count}", *map(str, self.changes)])


def diff_checkpoints(reading: Reading, before: Row, after: Row) -> CheckpointDiff:
    """The difference between the checkpoints of two rows of `manifests`."""
    (old, old_states), (new, new_states) = _loaded(reading, before), _loaded(reading, after)
    changes = [
        *offset_changes(old, new),
        *_watermarks(old, new),
        *_sinks(old, new),
        *_operators(old_states, new_states),
        *_inflight(old, new),
        *_fields(old, new),
    ]
    return CheckpointDiff(
        pipeline=before["pipeline"],
        before=before["checkpoint_id"],
        other_pipeline=after["pipeline"],
        after=after["checkpoint_id"],
        changes=tuple(changes),
    )


def _loaded(reading: Reading, row: Row) -> tuple[CheckpointManifest, _States]:
    """What is compared of a checkpoint, as it was saved."""

    def load(reading: Reading) -> tuple[CheckpointManifest, _States]:
        manifest = load_manifest(reading, row)
        return manifest, _States.of(reading, row, manifest)

    return healed(reading, row, load)


def offset_changes(old: CheckpointManifest, new: CheckpointManifest) -> Iterator[Change]:
    """Where two manifests differ in their sources and reference tables."""
    yield from _connectors(SOURCE, old.source_offsets, new.source_offsets)
    yield from _connectors(TABLE, old.table_offsets, new.table_offsets)


def _connectors(
    kind: str, old: Mapping[str, ConnectorCheckpoint], new: Mapping[str, ConnectorCheckpoint]
) -> Iterator[Change]:
    for name in _names(old, new):
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            yield _change(kind, name, None, None if a is None else a.epoch, None if b is None else b.epoch)
        else:
            if a.epoch != b.epoch:
                yield _change(kind, name, "epoch", a.epoch, b.epoch)
            for key, told in _differing(a.metadata, b.metadata):
                yield _change(kind, name, f"metadata {key}", *told)
        for key, told in _differing(a.offsets if a else {}, b.offsets if b else {}):
            yield _change(OFFSET, name, key, *told)


def _watermarks(old: CheckpointManifest, new: CheckpointManifest) -> Iterator[Change]:
    if old.watermark != new.watermark:
        yield _change(WATERMARK, "", None, old.watermark, new.watermark)
    for name, told in _differing(old.source_watermarks, new.source_watermarks):
        yield _change(WATERMARK, name, None, *told)


def _sinks(old: CheckpointManifest, new: CheckpointManifest) -> Iterator[Change]:
    for name, told in _differing(old.sink_epochs, new.sink_epochs):
        yield _change(SINK, name, "epoch", *told)
    for name, (a, b) in _differing(old.sink_commit_statuses, new.sink_commit_statuses):
        yield _change(SINK, name, "status", a and str(a), b and str(b))


@dataclass(frozen=True, slots=True)
class _States:
    """The state of a checkpoint: lengths, and what tells equal bytes from others."""

    lengths: Mapping[tuple[str, int], int]
    prints: Mapping[tuple[str, int], object]

    @classmethod
    def of(cls, reading: Reading, row: Row, manifest: CheckpointManifest) -> _States:
        """Reads layouts, which tell checksums; bytes only of what is inline."""
        prints: dict[tuple[str, int], object] = {}
        lengths: dict[tuple[str, int], int] = {}
        state = CheckpointState(reading, row)
        for layout in state.layouts():
            # An application delta says what changed and not what is: equal ones upon other states are not equal states.
            upon = tuple(origin.checkpoint_id for origin in layout.upon)
            key = layout.operator, layout.partition
            prints[key], lengths[key] = (layout.checksum, upon), layout.length
        for operator, inline in state.inline().items():
            prints.setdefault((operator, 0), (xxh3_hex(inline), ()))
            lengths.setdefault((operator, 0), len(inline))
        # What is elsewhere, as in a sidecar, has a place and a length. So has text that never was base64.
        own = {operator for operator, _ in prints}
        for operator, entry in manifest.operator_states.items():
            if operator not in own:
                prints[operator, 0] = entry
                lengths[operator, 0] = entry.external_length or len(entry.state_b64 or "")
        return cls(lengths, prints)


def _operators(old: _States, new: _States) -> Iterator[Change]:
    for operator, partition in sorted(old.lengths.keys() | new.lengths.keys()):
        key = operator, partition
        if old.prints.get(key) != new.prints.get(key):
            yield _change(OPERATOR, operator, f"partition {partition}", old.lengths.get(key), new.lengths.get(key))


def _inflight(old: CheckpointManifest, new: CheckpointManifest) -> Iterator[Change]:
    for operator, (a, b) in _differing(old.inflight_data, new.inflight_data):
        yield _change(INFLIGHT, operator, None, None if a is None else len(a), None if b is None else len(b))


def _fields(old: CheckpointManifest, new: CheckpointManifest) -> Iterator[Change]:
    told = {name: value for name, value in old.to_dict().items() if name not in _COMPARED_APART}
    for name, values in _differing(told, {name: new.to_dict()[name] for name in told}):
        yield _change(FIELD, name, None, *values)


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> Iterator[tuple[K, tuple[V | None, V | None]]]:
    """The keys under which two mappings do not have the same, in order of the first and then of the second."""
    for key in _names(old, new):
        if old.get(key) != new.get(key):
            yield key, (old.get(key), new.get(key))


def _names(old: Mapping[K, V], new: Mapping[K, V]) -> list[K]:
    return list(dict.fromkeys([*old, *new]))


def _change(kind: str, name: str, detail: str | None, before: object, after: object) -> Change:
    numbers = _whole(before), _whole(after)
    return Change(
        kind=kind,
        name=name,
        detail=detail,
        change="added" if before is None else "removed" if after is None else "changed",
        before=before,
        after=after,
        difference=None if numbers[0] is None or numbers[1] is None else numbers[1] - numbers[0],
    )


def _whole(value: object) -> int | None:
    """A whole number, also one written as text: offsets are."""
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"-?[0-9]{1,37}", value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)
