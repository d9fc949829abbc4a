"""Staging state: streamed, cut into blocks, and only those stored that the checkpoints before do not have.

What a state is stored upon is the layout of the same operator partition in a checkpoint before: its blocks are known by name,
so none of its bytes are read. Where too much changed, or the chain has grown too long, the state is stored whole and begins a
chain of its own. Never more than about one part of it is in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from laminar_delta.catalog.attempt import Attempt, Part
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.state.again import stored_blocks
from laminar_delta.catalog.state.appending import StateAppender
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.state.chunks import Measured, chunk_row
from laminar_delta.catalog.state.given import Key
from laminar_delta.catalog.state.layout import Layout, Origin, Store
from laminar_delta.catalog.state.packing import Packer, Pinned
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.state.progress import TELL_EVERY, StateProgress, TellProgress
from laminar_delta.catalog.state.upon import is_bounded, is_worth_a_delta, origins
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS
from laminar_delta.codec import BlockCutter
from laminar_delta.errors import InvalidInputError, LaminarDeltaError
from laminar_delta.logs import Event, log_event

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row
    from laminar_delta.codec import Block, StateSource
    from laminar_delta.engine.base import Engine

_LOG = logging.getLogger(__name__)

States = Mapping[Key, "StateSource | AppliedDelta"]
Layouts = Mapping[Key, Layout]
Frame: TypeAlias = Any
"""A DataFrame on Spark. The core does not know Spark: it hands frames on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedState:
    """State that was staged: its parts, and what the manifest says of it."""

    checkpoint_id: int
    parts: tuple[Part, ...]
    measured: Measured
    layouts: Layouts

    def joined(self, other: StagedState) -> StagedState:
        """This and state of other operator partitions, staged under the same attempt."""
        twice = sorted(self.layouts.keys() & other.layouts.keys())
        if twice:
            raise InvalidInputError(
                f"partition {twice[0][1]} of operator {twice[0][0]!r} has its state already",
                expected="once",
                found="twice",
            )
        layouts = {**self.layouts, **other.layouts}
        return StagedState(
            checkpoint_id=self.checkpoint_id,
            parts=(*self.parts, *other.parts),
            measured=_measure(layouts),
            layouts=layouts,
        )

    @property
    def needs(self) -> tuple[int, ...]:
        """The checkpoints before that store some of it, ascending."""
        needed = {number for layout in self.layouts.values() for number in layout.needs}
        return tuple(sorted(needed - {self.checkpoint_id}))


def stage_state(
    engine: Engine,
    attempt: Attempt,
    states: States,
    *,
    policy: StatePolicy = DEFAULT_POLICY,
    upon: Layouts | None = None,
    tell: TellProgress | None = None,
) -> StagedState:
    """Stages the state of one attempt, upon the layouts of a checkpoint before, if there are any."""
    return stage_all_state(engine, [(attempt, states, upon or {}, policy)], tell=tell)[0]


def stage_all_state(
    engine: Engine,
    saves: Sequence[tuple[Attempt, States, Layouts, StatePolicy]],
    *,
    tell: TellProgress | None = None,
) -> list[StagedState]:
    """The same for several attempts in shared commits, each by its own policy; the answer in their order."""
    layouts: list[dict[Key, Layout]] = []
    attempts = [attempt for attempt, _, _, _ in saves]
    # The parts are shared, so the smallest: it is what bounds memory.
    part_bytes = min((policy.part_bytes for _, _, _, policy in saves), default=DEFAULT_POLICY.part_bytes)
    with Packer() as packer, StateAppender(engine, attempts, part_bytes) as appender:
        for attempt, states, upon, policy in saves:
            found: dict[Key, Layout] = {}
            for (operator, partition), source in states.items():
                again = partial(stored_blocks, Reading(engine), attempt.pipeline)
                before = upon.get((operator, partition))
                cutting = Cutting(attempt, operator, partition, source, policy, before, again)
                for row in cutting.steps(packer):
                    if row is not None:
                        appender.add(cutting.table, row)
                    # Here, where no view of the source is held: whoever is told may raise, and close a mapped file then.
                    if tell is not None:
                        tell(StateProgress(operator, partition, cutting.done, None))
                assert cutting.layout is not None
                found[operator, partition] = cutting.layout
            layouts.append(found)
        parts = appender.finish()
    return [
        staged_state(engine, attempt, parts[attempt.attempt_id], found)
        for attempt, found in zip(attempts, layouts, strict=True)
    ]


def staged_state(engine: Engine, attempt: Attempt, parts: Sequence[Part], layouts: Layouts) -> StagedState:
    """State that was written, with all that is to be said of it."""
    return StagedState(
        checkpoint_id=attempt.checkpoint_id,
        parts=(*parts, *_reached(engine, parts, layouts)),
        measured=_measure(layouts),
        layouts=layouts,
    )


def _reached(engine: Engine, own: Sequence[Part], layouts: Layouts) -> list[Part]:
    """Tables that only checkpoints before have rows in: healing has to know which version still had them."""
    used = {found.table for layout in layouts.values() for found in layout.origins}
    used -= {part.table for part in own}
    return [Part(table=table, part_id="", version=engine.version(table), rows=0, digest="") for table in sorted(used)]


def _measure(layouts: Layouts) -> Measured:
    measured = Measured()
    for (operator, partition), layout in layouts.items():
        measured.add(operator, partition, checksum=layout.checksum, length=layout.length, apply=layout.apply)
    return measured


class Cutting:
    """One operator partition on its way into rows."""

    def __init__(
        self,
        attempt: Attempt,
        operator: str,
        partition: int,
        source: StateSource | AppliedDelta,
        policy: StatePolicy,
        upon: Layout | None,
        again: Callable[[Layout, set[bytes]], Iterator[Block]] | None = None,
    ) -> None:
        """`upon` is what it may be stored upon, and `again` reads blocks of that, where somebody can: see `state.again`."""
        self._attempt = attempt
        self._operator = operator
        self._partition = partition
        self._policy = policy
        self._applied = source if isinstance(source, AppliedDelta) else None
        self._origins = () if self._applied is None else origins(upon, attempt, (operator, partition), policy)
        self._beneath = () if self._applied is None or upon is None else (*upon.beneath, *upon.stores)
        self._source = source.data if isinstance(source, AppliedDelta) else source
        is_worth_it = self._applied is None and upon is not None and is_worth_a_delta(upon, self._source, policy)
        self._upon = upon if is_worth_it else None
        self._again = again
        is_delta = self._upon is not None or self._applied is not None
        self.table = OPERATOR_DELTAS.name if is_delta else OPERATOR_SNAPSHOTS.name
        self.done = 0
        self._since_step = 0
        self._uses_before = False
        self.layout: Layout | None = None
        """Known when the rows have come to their end: with the last of them."""

    def rows(self, packer: Packer) -> Iterator[Row]:
        """Its chunks, then its layout."""
        return (row for row in self.steps(packer) if row is not None)

    def steps(self, packer: Packer) -> Iterator[Row | None]:
        """The same, and None for each megabyte that was read and of which nothing is stored: it takes as long."""
        fixed = {
            "pipeline": self._attempt.pipeline,
            "checkpoint_id": self._attempt.checkpoint_id,
            "attempt_id": self._attempt.attempt_id,
            "generation": self._attempt.generation,
            "part_id": None,
        }
        own = {**fixed, "operator": self._operator, "partition": self._partition}
        cutter = BlockCutter(self._source, block_bytes=self._policy.block_bytes)
        names = bytearray()
        stored = 0
        chunks = self._chunks(cutter, names)
        for row in packer.ahead(lambda chunk: None if chunk is None else chunk_row(own, *chunk), chunks):
            stored += 0 if row is None else row["raw_length"]
            yield row
        self.layout = Layout(
            operator=self._operator,
            partition=self._partition,
            length=cutter.length,
            checksum=cutter.checksum,
            block_bytes=self._policy.block_bytes,
            names=bytes(names),
            stores=self._stores(stored),
            apply=None if self._applied is None else self._applied.apply,
            upon=self._origins,
            beneath=self._beneath,
            origin=Origin(
                table=self.table, checkpoint_id=self._attempt.checkpoint_id, attempt_id=self._attempt.attempt_id
            ),
        )
        yield self.layout.row(fixed)

    def _chunks(self, cutter: BlockCutter, names: bytearray) -> Iterator[tuple[tuple[int, list[Block]] | None, bool]]:
        """The blocks to store, numbered by chunk and whether it is full, or None as in `steps`; the names of all in `names`."""
        per_chunk = self._policy.chunk_bytes // self._policy.block_bytes
        pinned = Pinned(self._source, self._policy.chunk_bytes)
        fresh: list[Block] = []
        number = 0
        for block in self._to_store(cutter, names):
            if block is None:
                yield None, False
                continue
            fresh.append(pinned.kept(block))
            # A shorter block is the last of its chunk.
            if len(fresh) == per_chunk or len(block.data) < self._policy.block_bytes:
                yield (number, fresh), len(fresh) == per_chunk
                number, fresh = number + 1, []
                self._since_step = 0
                pinned.next_chunk()
        if fresh:
            yield (number, fresh), False

    def _to_store(self, cutter: BlockCutter, names: bytearray) -> Iterator[Block | None]:
        # Whether it is kept, too: another set would hold each name once more.
        before = dict.fromkeys(() if self._upon is None else self._upon.names_from(0, self._upon.blocks), False)
        known: set[bytes] = set()
        stored = 0
        for block in cutter:
            names += block.name
            self.done += len(block.data)
            self._since_step += len(block.data)
            if block.name in before:
                before[block.name] = True
            elif block.name not in known:
                known.add(block.name)
                stored += len(block.data)
                yield block
            if self._since_step >= TELL_EVERY:
                self._since_step = 0
                yield None
        self._uses_before = any(before.values())
        if not self._uses_before or self._upon is None or self._again is None:
            return
        if not is_bounded(self._upon.stored_bytes + stored, cutter.length, self._policy):
            kept = {name for name, is_kept in before.items() if is_kept}
            yield from self._stored_anew(self._upon, kept, self._again)

    def _stored_anew(
        self, upon: Layout, kept: set[bytes], again: Callable[[Layout, set[bytes]], Iterator[Block]]
    ) -> Iterator[Block]:
        try:
            yield from again(upon, kept)
        except LaminarDeltaError as error:
            # It is as good or bad upon its chain as it was before, and the next one is stored whole.
            log_event(
                _LOG,
                logging.WARNING,
                Event.STATE_NOT_STORED_ANEW,
                "the state of operator %r partition %d stays upon a chain that grew stale: %s",
                self._operator,
                self._partition,
                error,
                pipeline=self._attempt.pipeline,
                checkpoint_id=self._attempt.checkpoint_id,
                error=str(error),
            )
        else:
            self._uses_before = False

    def _stores(self, stored: int) -> tuple[Store, ...]:
        # A stream that turned out to be wholly another is stored upon nothing, and what was before is not kept for it.
        before = self._upon.stores if self._upon is not None and self._uses_before else ()
        if not stored:
            return before
        own = Store(
            table=self.table,
            checkpoint_id=self._attempt.checkpoint_id,
            attempt_id=self._attempt.attempt_id,
            raw_bytes=stored,
        )
        return (*before, own)
