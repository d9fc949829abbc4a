"""Filling in a checkpoint: a call for every field of the manifest, then commit or roll back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from laminar_delta.catalog.accepting import check_names, check_operators
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.state.given import given_key, given_source
from laminar_delta.codec import flat_view, is_buffer
from laminar_delta.errors import InvalidInputError, SessionStateError
from laminar_delta.model.manifest import (
    MANIFEST_VERSION,
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    now_ms,
)
from laminar_delta.model.status import SinkCommitStatus

if TYPE_CHECKING:
    from laminar_delta.catalog.saving import SavingWriter
    from laminar_delta.catalog.staged import Saved
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.progress import TellProgress
    from laminar_delta.catalog.state.staging import Frame
    from laminar_delta.codec import StateSource


class CheckpointBuilder:
    """A checkpoint in the making. Nothing of it is visible before `commit`."""

    def __init__(
        self, writer: SavingWriter, checkpoint_id: int, epoch: int, *, tell: TellProgress | None = None
    ) -> None:
        self._writer = writer
        self._tell = tell
        self._done = False
        self._sources: dict[str, ConnectorCheckpoint] = {}
        self._tables: dict[str, ConnectorCheckpoint] = {}
        self._watermarks: dict[str, int] = {}
        self._sinks: dict[str, int] = {}
        self._state: dict[Key, StateSource | AppliedDelta] = {}
        self._not_inline: set[str] = set()
        self._frames: list[Frame] = []
        self._inflight: dict[str, tuple[InFlightRecord, ...]] = {}
        self._fields: dict[str, Any] = {"checkpoint_id": checkpoint_id, "epoch": epoch}
        self.saved: Saved | None = None
        """The answer, once committed."""

    @property
    def id(self) -> int:
        """The checkpoint's id; taken for good, also when it is rolled back."""
        return int(self._fields["checkpoint_id"])

    def source(
        self,
        name: str,
        offsets: Mapping[str, str],
        *,
        watermark: int | None = None,
        metadata: Mapping[str, str] | None = None,
        epoch: int | None = None,
    ) -> None:
        """Where a source was."""
        self._sources[name] = self._connector(offsets, metadata, epoch)
        if watermark is not None:
            self._watermarks[name] = watermark

    def table(
        self,
        name: str,
        offsets: Mapping[str, str],
        *,
        metadata: Mapping[str, str] | None = None,
        epoch: int | None = None,
    ) -> None:
        """Where the source of a reference table was."""
        self._tables[name] = self._connector(offsets, metadata, epoch)

    def sink(self, name: str, *, epoch: int | None = None) -> None:
        """An exactly-once sink that has this checkpoint to deliver: Pending until said otherwise."""
        self._check_open()
        self._sinks[name] = self._fields["epoch"] if epoch is None else epoch

    def state(self, operator: str, data: StateSource, *, partition: int = 0, inline: bool = True) -> None:
        """What an operator knew.

        Args:
            operator: Whose.
            data: Bytes, an open file, or pieces of any size. Read when the checkpoint is committed.
            partition: Which.
            inline: Let small state travel in the manifest row, which costs no commit: that of an operator whose only partition
                is 0, given as bytes or another buffer. An open file or pieces, and the state of an operator that has several
                partitions or another one, go into the tables. Application deltas can only be put upon state that does.
        """
        key = self._take(operator, partition, data)
        if not inline:
            self._not_inline.add(key[0])

    def _take(self, operator: str, partition: int, data: StateSource | AppliedDelta) -> Key:
        self._check_open()
        key = given_key(operator, partition)
        check_operators([key[0]])
        if key in self._state:
            raise InvalidInputError(
                f"partition {key[1]} of operator {key[0]!r} has its state already", expected="once", found="twice"
            )
        self._state[key] = given_source(data)
        return key

    def state_frame(self, frame: Frame) -> None:
        """State of many operator partitions as a frame on Spark: executors cut, hash, compress and write it.

        Args:
            frame: With columns operator, partition and payload, a row for each operator partition; or, for states too large
                for a cell, several rows each, in the order of a further column `sequence`. It is run once, at the commit.
        """
        self._check_open()
        self._frames.append(frame)

    def state_delta(self, operator: str, data: StateSource, *, apply: str, partition: int = 0) -> None:
        """What changed in an operator's state, as the application says it; see `catalog.state.applying`.

        Args:
            operator: Whose.
            data: The delta, as for `state`.
            apply: The name of the function that puts it upon the state before: register it where state is read.
            partition: Which.

        Raises:
            ConflictError: At the commit: another checkpoint was committed since this was given.
        """
        self._take(operator, partition, AppliedDelta(data, apply, self._writer.basis.turn))

    def in_flight(self, operator: str, records: Sequence[InFlightRecord]) -> None:
        """Events that were between operators."""
        self._check_open()
        self._inflight[operator] = tuple(records)

    def describe(
        self,
        *,
        watermark: int | None = None,
        pipeline_hash: int | None = None,
        source_names: Sequence[str] | None = None,
        sink_names: Sequence[str] | None = None,
        table_store_checkpoint_path: str | None = None,
        wal_position: int | None = None,
        per_core_wal_positions: Sequence[int] | None = None,
        is_incremental: bool | None = None,
        parent_id: int | None = None,
    ) -> None:
        """The rest of the manifest; what is not given stays as it was.

        `is_incremental` and `parent_id` are what the application says of deltas of its own: how the catalog stores state does
        not show in a manifest. A parent is kept as long as the checkpoint is.
        """
        self._check_open()
        check_names(source_names=source_names, sink_names=sink_names)
        given = {
            "watermark": watermark,
            "pipeline_hash": pipeline_hash,
            "source_names": None if source_names is None else tuple(source_names),
            "sink_names": None if sink_names is None else tuple(sink_names),
            "table_store_checkpoint_path": table_store_checkpoint_path,
            "wal_position": wal_position,
            "is_incremental": is_incremental,
            "parent_id": parent_id,
            "per_core_wal_positions": None if per_core_wal_positions is None else tuple(per_core_wal_positions),
        }
        self._fields.update({name: value for name, value in given.items() if value is not None})

    def manifest(self) -> CheckpointManifest:
        """The manifest as filled in so far."""
        fields = {
            "source_names": tuple(sorted(self._sources)),
            "sink_names": tuple(sorted(self._sinks)),
            **self._fields,
        }
        return CheckpointManifest(
            version=MANIFEST_VERSION,
            timestamp_ms=now_ms(),
            source_offsets=self._sources,
            table_offsets=self._tables,
            source_watermarks=self._watermarks,
            sink_epochs=self._sinks,
            sink_commit_statuses={name: SinkCommitStatus.pending() for name in self._sinks},
            operator_states={operator: OperatorCheckpoint.inline(data) for operator, data in self._inline().items()},
            inflight_data=self._inflight,
            **fields,
        )

    def commit(self) -> Saved:
        """Makes the checkpoint exist.

        Raises:
            InvalidInputError: Two states come from one file or iterator.
            SessionStateError: Some state comes from a file or an iterator that was read from before, as when this was tried.
        """
        self._check_open()
        inline = self._inline()
        large = {key: data for key, data in self._state.items() if key[0] not in inline}
        self.saved = self._writer.save(self.manifest(), large, frames=self._frames, tell=self._tell)
        self._done = True
        return self.saved

    def roll_back(self) -> None:
        """Gives it up; nothing of it was ever visible."""
        self._done = True

    def __enter__(self) -> CheckpointBuilder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.roll_back()
        elif not self._done:
            self.commit()

    def _inline(self) -> dict[str, bytes]:
        """State small enough to travel inside the manifest row, all together: of operators with a single partition."""
        partitions = Counter(operator for operator, _ in self._state)
        policy = self._writer.state_policy
        views = {
            operator: flat_view(cast("Any", data))
            for (operator, partition), data in self._state.items()
            if partition == 0 and operator not in self._not_inline and partitions[operator] == 1 and is_buffer(data)
        }
        small = {operator: view for operator, view in views.items() if len(view) <= policy.inline_bytes}
        together = sum(map(len, small.values()))
        if together > max(policy.inline_bytes, policy.inline_together_bytes):
            return {}
        return {name: bytes(view) for name, view in small.items()}

    def _connector(
        self, offsets: Mapping[str, str], metadata: Mapping[str, str] | None, epoch: int | None
    ) -> ConnectorCheckpoint:
        self._check_open()
        return ConnectorCheckpoint(
            offsets=offsets, epoch=self._fields["epoch"] if epoch is None else epoch, metadata=metadata or {}
        )

    def _check_open(self) -> None:
        if self._done:
            raise SessionStateError(f"checkpoint {self.id} is committed or rolled back", next_step="Begin a new one.")
