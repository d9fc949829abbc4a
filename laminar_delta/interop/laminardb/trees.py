"""Writing LaminarDB's layouts: state first, then the manifest that refers to it, the latest pointer last of all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.errors import InvalidInputError
from laminar_delta.interop.laminardb.content import Content
from laminar_delta.interop.laminardb.conversion import connector_to_v2, original_v2
from laminar_delta.interop.laminardb.documents import document_of
from laminar_delta.interop.laminardb.layout import (
    LATEST_JSON,
    LATEST_TEXT,
    MANIFEST,
    STATE,
    Layout,
    checkpoint_name,
)
from laminar_delta.interop.laminardb.outgoing import Outgoing, numbered_form
from laminar_delta.interop.laminardb.partitions import Partition, partitions_of
from laminar_delta.model import (
    CheckpointId,
    CheckpointManifestV2,
    CheckpointPaths,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    object_store_path,
)

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.interop.writing import Output


_NO_PLACE = (
    "sink_epochs",
    "sink_commit_statuses",
    "table_offsets",
    "inflight_data",
    "source_watermarks",
    "pipeline_hash",
)
"""Fields of ours that a V2 manifest does not have."""


class Tree(ABC):
    """A layout being written."""

    name: ClassVar[str]
    source_kind: ClassVar[str]
    """What it is called when it is read."""

    def __init__(self, output: Output, prefix: str) -> None:
        self.output = output
        self.prefix = prefix

    def plan(self, heads: Sequence[Row]) -> list[str]:
        """Told what is to be written, ascending, before anything is; what the layout calls each."""
        return [str(head["checkpoint_id"]) for head in heads]

    def notes(self) -> tuple[str, ...]:
        """Remarks on what was written."""
        return ()

    @abstractmethod
    def write(self, outgoing: Outgoing) -> str:
        """Writes a checkpoint; what the layout calls it. Checkpoints come ascending."""

    @abstractmethod
    def point_to(self, latest: str) -> None:
        """Writes the latest pointer."""

    def _put(self, name: str, data: bytes, *, pointer: bool = False) -> None:
        self._write(name, Content.of(data), pointer=pointer)

    def _write(self, name: str, content: Content, *, pointer: bool = False) -> None:
        self.output.write(name, content.pieces(), sha256=content.sha256, replace=pointer)


class FileTree(Tree):
    """The layout of LaminarDB's file-system store."""

    name: ClassVar[str] = "files"
    source_kind: ClassVar[str] = "laminardb-files"

    def write(self, outgoing: Outgoing) -> str:
        """See `Tree.write`."""
        number = outgoing.manifest.checkpoint_id
        form = numbered_form(outgoing)
        manifest, state = self._paths(number)
        if form.sidecar is not None:
            self._write(state, form.sidecar)
        # A manifest may say more than it did: statuses of its sinks go on. LaminarDB replaces it then, and so does this.
        self._put(manifest, document_of(form.manifest, outgoing.row["vnode_count"]), pointer=True)
        return str(number)

    def point_to(self, latest: str) -> None:
        """See `Tree.point_to`."""
        name = Layout(self.prefix).in_checkpoints(LATEST_TEXT)
        self._put(name, checkpoint_name(int(latest)).encode(), pointer=True)

    def _paths(self, number: int) -> tuple[str, str]:
        directory = Layout(self.prefix).file_directory(number)
        return f"{directory}/{MANIFEST}", f"{directory}/{STATE}"


class ObjectTree(FileTree):
    """The layout of LaminarDB's object store."""

    name: ClassVar[str] = "objects"
    source_kind: ClassVar[str] = "laminardb-objects"

    def point_to(self, latest: str) -> None:
        """See `Tree.point_to`."""
        document = f'{{"checkpoint_id":{int(latest)}}}'
        self._put(f"{Layout(self.prefix).manifests}/{LATEST_JSON}", document.encode(), pointer=True)

    def _paths(self, number: int) -> tuple[str, str]:
        layout = Layout(self.prefix)
        return layout.object_manifest(number), layout.object_state(number)


class DistributedTree(Tree):
    """The distributed layout, with the slash after the id that its documentation promises."""

    name: ClassVar[str] = "distributed"
    source_kind: ClassVar[str] = "laminardb-distributed"
    slashless: ClassVar[bool] = False

    def __init__(self, output: Output, prefix: str) -> None:
        super().__init__(output, prefix)
        self._paths = CheckpointPaths(f"{prefix}checkpoints/", slashless=self.slashless)
        self._ids: dict[int, CheckpointId] = {}
        self._left_out: Counter[str] = Counter()

    def plan(self, heads: Sequence[Row]) -> list[str]:
        """See `Tree.plan`. UUIDs of checkpoints that have none are the same in every run, and in their order."""
        last_ms = 0
        for head in heads:
            number = head["checkpoint_id"]
            known = _as_id(head["external_id"])
            if known is None:
                # Time first, as in a UUID of version 7, but never back; the number where that has its random bits.
                last_ms = max(last_ms, head["timestamp_ms"] % 2**48)
                bits = (last_ms << 80) | (0x7 << 76) | (0b10 << 62) | (number % 2**62)
                known = CheckpointId(f"{bits:032x}")
            last_ms = max(last_ms, int(known.text.replace("-", "")[:12], 16))
            self._ids[number] = known
        return [str(known) for known in self._ids.values()]

    def notes(self) -> tuple[str, ...]:
        """See `Tree.notes`."""
        return tuple(
            f"{name} of {times} checkpoints is not exported: the distributed layout has no place for it"
            for name, times in sorted(self._left_out.items())
        )

    def write(self, outgoing: Outgoing) -> str:
        """See `Tree.write`."""
        manifest = outgoing.manifest
        number = self._ids[manifest.checkpoint_id]
        self._left_out.update(name for name in _NO_PLACE if getattr(manifest, name))
        operators = self._write_states(outgoing, number)
        parent = None
        if manifest.parent_id is not None and any(
            partition.is_delta for entry in operators.values() for partition in entry.partitions
        ):
            parent = self._ids.get(manifest.parent_id)
            if parent is None:
                raise InvalidInputError(
                    f"its deltas are against checkpoint {manifest.parent_id}, which is not exported",
                    next_step="Export that one too.",
                )
        original = original_v2(manifest)
        if original is not None:
            operators = {
                name: replace(entry, partitions=operators[name].partitions if name in operators else ())
                for name, entry in original.operators.items()
            }
        document = CheckpointManifestV2(
            version=2 if original is None else original.version,
            checkpoint_id=number,
            epoch=manifest.epoch,
            timestamp_ms=manifest.timestamp_ms,
            operators=operators,
            source_offsets={name: connector_to_v2(found) for name, found in manifest.source_offsets.items()},
            parent_id=parent if original is None else original.parent_id,
            watermark=manifest.watermark,
            total_size_bytes=manifest.size_bytes
            if original is not None
            else sum(entry.total_bytes for entry in operators.values()),
        )
        self._put(object_store_path(self._paths.manifest(number)), document.to_json())
        return str(number)

    def point_to(self, latest: str) -> None:
        """See `Tree.point_to`."""
        self._put(object_store_path(self._paths.latest_pointer()), latest.encode(), pointer=True)

    def _write_states(self, outgoing: Outgoing, number: CheckpointId) -> dict[str, OperatorSnapshotEntry]:
        found: dict[str, list[PartitionSnapshotEntry]] = {}
        for partition in partitions_of(outgoing):
            found.setdefault(partition.operator, []).append(self._write_partition(number, partition))
        return {
            operator: OperatorSnapshotEntry(
                partitions=tuple(entries), total_bytes=sum(entry.size_bytes for entry in entries)
            )
            for operator, entries in found.items()
        }

    def _write_partition(self, number: CheckpointId, partition: Partition) -> PartitionSnapshotEntry:
        make = self._paths.delta if partition.is_delta else self._paths.snapshot
        path = make(number, partition.operator, partition.number)
        self._write(object_store_path(path), partition.content)
        return PartitionSnapshotEntry(
            partition_id=partition.number,
            is_delta=partition.is_delta,
            path=path,
            size_bytes=partition.content.length,
            sha256=partition.content.sha256,
        )


class SlashlessTree(DistributedTree):
    """The distributed layout as 0.18 itself writes it and looks for it: without that slash."""

    name: ClassVar[str] = "distributed-0.18"
    slashless: ClassVar[bool] = True


TREES: dict[str, type[Tree]] = {tree.name: tree for tree in (FileTree, ObjectTree, DistributedTree, SlashlessTree)}


def _as_id(text: str | None) -> CheckpointId | None:
    try:
        return None if text is None else CheckpointId(text)
    except InvalidInputError:
        return None
