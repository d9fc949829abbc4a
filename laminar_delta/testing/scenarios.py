"""What a program does to a catalog between two kills, as a table: a new operation that writes gets an entry here.

A scenario arranges what it needs, says `begin`, and from then on every storage step is a place to die. After each thing that an
application would have been told it says `done`: what readers see may change at most once between two of these.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from laminar_delta.catalog.attempt import stage_offsets
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.state.staging import stage_state
from laminar_delta.catalog.tables import MANIFESTS, SOURCE_OFFSETS, TABLES
from laminar_delta.codec import BLOCK_BYTES
from laminar_delta.engine.local.log import LOG_DIRECTORY
from laminar_delta.stores.batcher import CatalogTarget, CheckpointBatcher
from laminar_delta.stores.drasi import SourceCheckpointStore

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.writer import Writer

PIPELINE = "orders"
NEIGHBOUR = "returns"
"""A pipeline in the same tables that nobody touches."""
SINK = "warehouse"
STATE_BYTES = 20_000
"""More than fits into a manifest row: such state is staged."""


class Story(Protocol):
    """How a scenario speaks to whoever kills it."""

    def open(self) -> Catalog:
        """Opens the catalog, making it if it is new."""

    def begin(self) -> None:
        """What follows is to be survived."""

    def done(self, **said: object) -> None:
        """The application has been told: this must not be lost any more."""


def save(writer: Writer) -> int:
    """Saves the next checkpoint, with content that follows from its id; the id."""
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": str(cp.id * 100), "1": str(cp.id * 10)}, watermark=cp.id)
        cp.state("window", bytes([cp.id % 256]) * STATE_BYTES)
        cp.state("count", str(cp.id).encode())
        cp.sink(SINK)
    return cp.id


def prepare(catalog: Catalog) -> None:
    """The catalog that scenarios begin with: checkpoints with open and closed sinks, an orphan, a neighbour."""
    # So often that the next save but one brings `manifests` to a version at which its log is checkpointed.
    for _ in range(3):
        neighbour = catalog.writer(NEIGHBOUR, owner="neighbour")
    save(neighbour)
    # Not closed: as a killed writer leaves it.
    writer = catalog.writer(PIPELINE, owner="predecessor")
    for _ in range(3):
        save(writer)
    writer.sink_committed(1, SINK)
    writer.sink_committed(2, SINK)
    with writer.attempting(writer.next_id) as attempt:
        lost = writer.checkpoint(checkpoint_id=attempt.checkpoint_id)
        lost.source("kafka", {"0": "lost"})
        stage_offsets(catalog.engine, attempt, lost.manifest())
        stage_state(catalog.engine, attempt, {("window", 0): b"lost" * STATE_BYTES})


def creating(story: Story) -> None:
    """A catalog comes into being."""
    story.begin()
    story.open()
    story.done()


def taking_over(story: Story) -> None:
    """A writer takes a pipeline from one that was killed, and lets go of it."""
    catalog = story.open()
    story.begin()
    writer = catalog.writer(PIPELINE, owner="child")
    story.done(generation=writer.generation)
    writer.close()
    story.done(released=writer.generation)


def saving(story: Story) -> None:
    """A checkpoint with offsets and state: staged, then committed."""
    writer = story.open().writer(PIPELINE, owner="child")
    story.begin()
    story.done(saved=save(writer))


def saving_ahead(story: Story) -> None:
    """A state of several parts, written ahead of one commit; then one whose source breaks off, which leaves nothing."""
    policy = StatePolicy(chunk_bytes=BLOCK_BYTES, part_bytes=BLOCK_BYTES)
    writer = story.open().writer(PIPELINE, owner="child", state_policy=policy)
    chance = random.Random(7)

    def blocks(count: int, *, breaks: bool = False) -> Iterator[bytes]:
        yield from (chance.randbytes(BLOCK_BYTES) for _ in range(count))
        if breaks:
            raise InterruptedError

    story.begin()
    with writer.checkpoint() as cp:
        cp.state("window", blocks(3))
    story.done(saved=cp.id)
    with suppress(InterruptedError), writer.checkpoint() as broken:
        # Enough that some are written while later ones are still being packed.
        broken.state("window", blocks(18, breaks=True))
    story.done()


def settling_sinks(story: Story) -> None:
    """Statuses of a sink change."""
    writer = story.open().writer(PIPELINE, owner="child")
    story.begin()
    writer.sink_failed(3, SINK, "no route")
    story.done(failed=3)
    writer.sink_committed(3, SINK)
    story.done(committed=3)


def recovering(story: Story) -> None:
    """Recovery passes over a checkpoint that was not delivered, and says so for good."""
    writer = story.open().writer(PIPELINE, owner="child")
    story.begin()
    report = writer.recover()
    story.done(chosen=report.chosen_id)


def pruning(story: Story) -> None:
    """Checkpoints are retired, brought back, pinned and let go."""
    pipeline = story.open().pipeline(PIPELINE)
    story.begin()
    retired = pipeline.prune(RetentionPolicy(keep_last=1)).retire
    story.done(retired=retired)
    pipeline.restore(retired[0])
    story.done(restored=retired[0])
    pipeline.pin(retired[0], reason="crash")
    story.done(pinned=retired[0])
    pipeline.unpin(retired[0])
    story.done(released=retired[0])


def clearing_orphans(story: Story) -> None:
    """What an attempt left behind is removed."""
    catalog = story.open()
    catalog.writer(PIPELINE, owner="child")
    story.begin()
    orphans = catalog.pipeline(PIPELINE).remove_orphans()
    assert orphans
    story.done(removed=[orphan.attempt_id for orphan in orphans])


def saving_together(story: Story) -> None:
    """Two pipelines share the commits of one."""
    catalog = story.open()
    writers = [catalog.writer(name, owner="child") for name in (PIPELINE, NEIGHBOUR)]
    story.begin()
    built = [writer.checkpoint() for writer in writers]
    for cp in built:
        cp.source("kafka", {"0": "together"})
    state = {("window", 0): b"t" * STATE_BYTES}
    saves = [Save(writer, cp.manifest(), state) for writer, cp in zip(writers, built, strict=True)]
    answers = catalog.save_together(saves)
    assert all(isinstance(answer, Saved) for answer in answers)
    story.done(together=[cp.id for cp in built])


def saving_changes(story: Story) -> None:
    """State of which only a part changed: what is stored goes upon what is there, and the writer saves upon its own."""
    writer = story.open().writer(PIPELINE, owner="child")
    story.begin()
    for turn in range(3):
        with writer.checkpoint() as cp:
            blocks = [bytes([number if number else turn]) * BLOCK_BYTES for number in range(8)]
            cp.state("table", b"".join(blocks))
        story.done(saved=cp.id)


def committing_sessions(story: Story) -> None:
    """Positions of sources: changed together, staged by a task, committed again, cleared under another configuration."""
    store = SourceCheckpointStore(story.open(), PIPELINE, owner="child")
    store.take_generation()
    story.begin()
    for turn in (1, 2):
        with store.session() as session:
            session.stage("kafka", turn, b"position")
            session.stage("files", turn * 10)
            session.write_config_hash(turn)
            session.write_result_sequence("query", turn)
        story.done(session=turn)
    session = store.session()
    store.stage_steps(session.token, [{"source": "kafka", "sequence": 3}, {"source": "task", "sequence": 3}])
    story.done(staged=2)
    session.take_steps()
    session.commit()
    story.done(session=3)
    # Asked for again, as by a workflow that tries its last task twice: found, and not made.
    again = store.session(session.token)
    again.take_steps()
    assert again.commit().replayed
    story.done(repeated=3)
    started = store.start(3)
    story.done(resumed=started.resumed)
    store.remove_steps()
    story.done(removed=2)
    store.close()
    story.done()


def flushing_batches(story: Story) -> None:
    """Blobs that are collected and written together."""
    batcher = CheckpointBatcher(CatalogTarget(story.open(), PIPELINE, owner="child"))
    story.begin()
    for epoch in (3, 3, 4):
        batcher.add("agg", bytes([epoch]) * STATE_BYTES)
        batcher.flush(epoch)
        story.done(flushed=epoch)


def deriving(story: Story) -> None:
    """Checkpoints made from others: going back, moving an offset, taking that back, starting another pipeline."""
    catalog = story.open()
    writer = catalog.writer(PIPELINE, owner="child")
    story.begin()
    story.done(rewound=writer.rewind(1, reason="crash").checkpoint_id)
    story.done(edited=writer.edit_offsets({"kafka": {"0": "7"}}, reason="crash").checkpoint_id)
    story.done(undone=writer.undo(reason="crash").checkpoint_id)
    forked = catalog.writer("fork", owner="child")
    story.done(forked=forked.fork(PIPELINE, 2, reason="crash").checkpoint_id)


def maintaining(story: Story) -> None:
    """What was retired is removed for good, tables are compacted, logs shortened. Readers notice nothing of it."""
    catalog = story.open()
    assert catalog.pipeline(PIPELINE).prune(RetentionPolicy(keep_last=1)).retire
    for spec in TABLES:
        age_log(Path(catalog.engine.location) / spec.name)
    story.begin()
    report = catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0), compact_after=4))
    assert report.removed
    assert report.compacted
    story.done(removed=report.removed[PIPELINE])


def keeping_up(story: Story) -> None:
    """What an operator may do to a table by hand: rows put in order, put back, and every old file deleted."""
    engine = story.open().engine
    story.begin()
    before = engine.version(SOURCE_OFFSETS.name)
    assert engine.optimize(SOURCE_OFFSETS.name, order_by=("pipeline", "checkpoint_id")) is not None
    engine.restore(SOURCE_OFFSETS.name, before)
    for table in (MANIFESTS.name, SOURCE_OFFSETS.name):
        engine.optimize(table, order_by=("pipeline", "checkpoint_id"))
        assert engine.vacuum(table, older_than_hours=0, dry_run=False)
    story.done()


SCENARIOS: dict[str, Callable[[Story], None]] = {
    scenario.__name__: scenario
    for scenario in (
        creating,
        taking_over,
        saving,
        saving_ahead,
        settling_sinks,
        recovering,
        pruning,
        clearing_orphans,
        saving_together,
        saving_changes,
        committing_sessions,
        flushing_batches,
        deriving,
        maintaining,
        keeping_up,
    )
}
"""By name."""

FROM_NOTHING = frozenset({creating.__name__})
"""Scenarios that do not begin with what `prepare` makes."""


def age_log(table: Path, days: int = 30) -> None:
    """Makes the files of a table's log look old, so that cleaning it has something to do."""
    for path in (table / LOG_DIRECTORY).iterdir():
        moment = path.stat().st_mtime - days * 86_400
        os.utime(path, (moment, moment))
