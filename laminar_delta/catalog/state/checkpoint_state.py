"""The state of a checkpoint as readers see it: every byte verified, or `CorruptionError` naming what is wrong."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from laminar_delta.catalog.checkpoints import child_rows, saved_children
from laminar_delta.catalog.healing import as_saved
from laminar_delta.catalog.reading import STATE_TABLES, raise_unless_damage
from laminar_delta.catalog.state.applying import applied
from laminar_delta.catalog.state.chunks import checksum_over
from laminar_delta.catalog.state.given import wanted_key
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK, Layout, Origin
from laminar_delta.catalog.state.lines import LAYOUT_COLUMNS, line, lines
from laminar_delta.catalog.state.progress import TellProgress, told
from laminar_delta.catalog.state.streaming import PieceFile, stream
from laminar_delta.catalog.state.together import check_all_there, stream_each
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, LaminarDeltaError, NotFoundError, StorageError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.staging import Frame
    from laminar_delta.engine.predicate import Predicate

_PAYLOADS = pa.schema(dict[str, pa.DataType](operator=pa.string(), partition=pa.int64(), payload=pa.large_binary()))
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The operator state of one checkpoint. Nothing is read before it is asked for."""

    reading: Reading
    row: Row
    heal: bool = False
    """Where rows were deleted or overwritten since, read them as they were saved: what `recover` chose can be read."""

    def partitions(self) -> dict[str, list[int]]:
        """The operators that have state, and their partitions, in order."""
        found: dict[str, set[int]] = {operator: {0} for operator in self.inline()}
        for layout in self.layouts():
            found.setdefault(layout.operator, set()).add(layout.partition)
        return {operator: sorted(numbers) for operator, numbers in sorted(found.items())}

    def read(self, operator: str, partition: int = 0, *, tell: TellProgress | None = None) -> bytes:
        """The whole state of one operator partition. Raises `NotFoundError` when the checkpoint has none."""
        return b"".join(self.pieces(operator, partition, tell=tell))

    def open(self, operator: str, partition: int = 0, *, tell: TellProgress | None = None) -> io.BufferedReader:
        """The state of one operator partition as a file to read from its beginning to its end, in bounded memory."""
        return io.BufferedReader(PieceFile(self.pieces(operator, partition, tell=tell)), buffer_size=1 << 16)

    def pieces(
        self, operator: str, partition: int = 0, *, tell: TellProgress | None = None
    ) -> Iterator[bytes | memoryview]:
        """The state of one operator partition in pieces, in order; `tell` is told how far it is, and may cancel by raising."""
        operator, partition = wanted_key(operator, partition)
        inline = self.inline().get(operator)
        if inline is not None and partition == 0:
            whole = iter((inline,))
            return whole if tell is None else told(whole, (operator, partition), len(inline), tell)
        try:
            layout = self._layout(operator, partition)
        except (CorruptionError, StorageError) as damage:
            if not self.heal:
                raise
            return self._as_saved(damage).pieces(operator, partition, tell=tell)
        return _told(layout, self._healing(layout) if self.heal else self._pieces(layout), tell)

    def _layout(self, operator: str, partition: int) -> Layout:
        found = self.layouts(col("operator").eq(operator) & col("partition").eq(partition))
        if not found:
            for table in STATE_TABLES:
                # Rows that were lost are damage, and no answer to whether there is such a state.
                saved_children(self.reading, self.row, table)
            raise NotFoundError(
                f"checkpoint {self.row['checkpoint_id']} has no state of operator {operator!r} partition {partition}",
                expected=(operator, partition),
                found=self.partitions(),
                next_step="See `partitions` for what there is.",
            )
        return found[0]

    def _healing(self, layout: Layout) -> Iterator[bytes | memoryview]:
        """Goes on from the rows as they were saved where those of now fail: what was handed out by then was verified."""
        done = 0
        try:
            for piece in self._pieces(layout):
                yield piece
                done += len(piece)
        except (CorruptionError, StorageError) as damage:
            for piece in self._as_saved(damage).pieces(layout.operator, layout.partition):
                if len(piece) > done:
                    yield memoryview(piece)[done:]
                done = max(0, done - len(piece))

    def _as_saved(self, damage: LaminarDeltaError) -> CheckpointState:
        raise_unless_damage(damage)
        number, pipeline = self.row["checkpoint_id"], self.row["pipeline"]
        log_event(
            _LOG,
            logging.WARNING,
            Event.STATE_HEALED,
            "state of checkpoint %d of pipeline %s is read as it was saved: %s",
            number,
            pipeline,
            damage.message,
            pipeline=pipeline,
            checkpoint_id=number,
            damage=damage.message,
        )
        return CheckpointState(as_saved(self.reading, self.row), self.row)

    def _pieces(self, layout: Layout) -> Iterator[bytes | memoryview]:
        members = [*self.line(layout), layout]
        return applied(members, (stream(self.reading, self.owner, member) for member in members))

    def line(self, layout: Layout) -> list[Layout]:
        """The layouts an application delta stands upon, in order. Raises `CorruptionError` when one is missing."""
        return line(self.reading, self.owner, layout)

    def resting(self, layout: Layout) -> Layout:
        """A layout that knows all it needs: also what stores the layouts it stands upon. Raises like `line`."""
        stores = (store for base in self.line(layout) for store in base.stores)
        return replace(layout, beneath=tuple(dict.fromkeys(stores)))

    def lines(self, layouts: Sequence[Layout]) -> Iterator[list[Layout]]:
        """Each of them behind those it stands upon. Raises like `line`."""
        found: Iterable[list[Layout]]
        try:
            found = lines(self.reading, self.owner, layouts)
        except (CorruptionError, StorageError) as damage:
            raise_unless_damage(damage)
            # One by one: only the line that is damaged is to fail.
            found = map(self.line, layouts)
        yield from ([*below, layout] for below, layout in zip(found, layouts, strict=True))

    def verify(self, *, tell: TellProgress | None = None) -> None:
        """Reads everything as it is now, keeping nothing. Raises `CorruptionError` where something is not as saved.

        Args:
            tell: Is told how far each state is, and may cancel by raising. Small states are read many at a time.
        """
        state = replace(self, heal=False)
        state.verify_all(state.layouts(), tell=tell)

    def verify_all(
        self,
        layouts: Sequence[Layout],
        take: Callable[[Layout, memoryview], None] = lambda _, __: None,
        *,
        tell: TellProgress | None = None,
    ) -> None:
        """Reads states, and what they stand upon, keeping nothing; `take` sees each piece of each state."""
        for members, states in stream_each(self.reading, self.owner, self.lines(layouts)):
            for layout, pieces in zip(members, states, strict=True):
                # What states stand upon is read too, and is not theirs.
                heard = tell if layout is members[-1] else None
                for piece in _told(layout, pieces, heard):
                    if layout is members[-1]:
                        take(layout, memoryview(piece))

    def to_arrow(self, *, tell: TellProgress | None = None) -> pa.Table:
        """All of it as a table of operator, partition and payload, for states that fit into memory; `tell` as in `verify`."""
        found = {(operator, 0): inline for operator, inline in self.inline().items()}
        state, layouts = self.whole()
        wanted = [layout for layout in layouts if (layout.operator, layout.partition) not in found]
        try:
            for members, states in stream_each(state.reading, state.owner, state.lines(wanted)):
                pieces = _told(members[-1], applied(members, states), tell)
                found[members[-1].operator, members[-1].partition] = b"".join(pieces)
        except (CorruptionError, StorageError):
            if not self.heal:
                raise
            for layout in wanted:
                # One by one: each as it is now or as it was saved.
                key = layout.operator, layout.partition
                found[key] = found[key] if key in found else self.read(*key, tell=tell)
        rows = [{"operator": key[0], "partition": key[1], "payload": payload} for key, payload in sorted(found.items())]
        return pa.Table.from_pylist(rows, schema=_PAYLOADS)

    def frame(self, spark: Any, *, piece_bytes: int | None = None) -> Frame:
        """All of it as a frame of operator, partition and payload, put together and verified by executors.

        Args:
            spark: Where.
            piece_bytes: Give each state as pieces of about this size, numbered in a column `sequence`. Needed for states that
                do not fit into a cell.
        """
        # By name: the core does not know Spark.
        load_frame = import_module("laminar_delta.distributed.loading").load_frame
        loaded: Frame = load_frame(self, spark, piece_bytes=piece_bytes)
        return loaded

    @property
    def owner(self) -> str:
        """The pipeline whose checkpoints store it: another's, for a fork."""
        return str(self.row["state_pipeline"] or self.row["pipeline"])

    def layouts(self, where: Predicate | None = None) -> list[Layout]:
        """What the state of each operator partition is made of, except for what is inline; or of some of them.

        Raises:
            CorruptionError: All were asked for, and some are lost: nobody is to take the rest for all there is.
        """
        return self.whole()[1] if where is None else self.present(where)

    def whole(self) -> tuple[CheckpointState, list[Layout]]:
        """All layouts, and the state they were read from: this one or, where some are lost and it heals, as it was saved."""
        try:
            found = self.present()
            self._check_all_there(found)
        except (CorruptionError, StorageError) as damage:
            if not self.heal:
                raise
            saved = self._as_saved(damage)
            return saved, saved.layouts()
        return self, found

    def with_all_chunks(self, layouts: list[Layout]) -> tuple[CheckpointState, list[Layout]]:
        """Where it heals and rows of its blocks are lost, the state as it was saved; otherwise this one. No block is read."""
        if not self.heal:
            return self, layouts
        try:
            members = (member for members in self.lines(layouts) for member in members)
            check_all_there(self.reading, self.owner, members)
        except (CorruptionError, StorageError) as damage:
            saved = self._as_saved(damage)
            return saved, saved.layouts()
        return self, layouts

    def _check_all_there(self, found: list[Layout]) -> None:
        checksums = {(layout.operator, layout.partition): layout.checksum for layout in found}
        if len(checksums) == len(found) and checksum_over(checksums) == self.row["state_checksum"]:
            return
        # A checksum that came with the manifest is of other things: then the rows are counted and compared.
        for table in STATE_TABLES:
            saved_children(self.reading, self.row, table)

    def present(self, where: Predicate | None = None) -> list[Layout]:
        """The layouts that are there now, all of them or not: for who counts the rows anyway."""
        only = col("chunk").eq(LAYOUT_CHUNK)
        chosen = only if where is None else only & where
        prefix = "" if self.row["state_attempt_id"] is None else "state_"
        attempt_id = self.row[f"{prefix}attempt_id"]
        return [
            replace(
                Layout.from_row(found),
                origin=Origin(table=table, checkpoint_id=found["checkpoint_id"], attempt_id=attempt_id),
            )
            for table in STATE_TABLES
            for found in child_rows(self.reading, self.row, table, where=chosen, columns=LAYOUT_COLUMNS)
        ]

    def inline(self) -> dict[str, bytes]:
        """State that travels in the manifest row, by operator."""
        return {entry["operator"]: entry["state"] for entry in self.row["operators"] if entry["state"] is not None}


def _told(
    layout: Layout, pieces: Iterator[bytes | memoryview] | Iterator[memoryview], tell: TellProgress | None
) -> Iterator[bytes | memoryview]:
    """Pieces of a state as they come, and `tell` hears how far they are."""
    # How long a state is that deltas make is known when they are applied.
    total = layout.length if layout.apply is None else None
    return pieces if tell is None else told(pieces, (layout.operator, layout.partition), total, tell)
