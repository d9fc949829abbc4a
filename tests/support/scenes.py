"""What the races are run on: a pipeline with a few checkpoints, and the ways to come to need one of them."""

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import replace

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, SinkCommitStatus
from laminar_delta.testing.invariants import assert_fences_rise

Opener = Callable[[], ld.Catalog]

AT_ONCE = MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)
SAVING = ["save with a parent", "save upon its state"]
DERIVING = ["rewind", "fork", "edit"]
NEEDING = [*SAVING, *DERIVING]
"""The ways to come to need checkpoint 1 of `orders`: by what the manifest says, by shared blocks, by all of its state."""
_LARGE = random.Random(1).randbytes(200_000)
_UPON = b"4" + _LARGE[1:]
"""Most of it is in the state of checkpoint 1 already."""


def manifest(number: int, offset: str = "1") -> CheckpointManifest:
    """A checkpoint with one source."""
    source = ConnectorCheckpoint(offsets={"0": offset}, epoch=number)
    return replace(CheckpointManifest.new(number, number, 1), source_offsets={"kafka": source}, source_names=("kafka",))


def save(writer: Writer, *, parent: int | None = None, sink: bool = False) -> int:
    """Saves the next checkpoint, with state of its own: nothing of it is stored with another."""
    number = writer.next_id
    made = CheckpointManifest.new(number, number, 1)
    if parent is not None:
        made = replace(made, parent_id=parent, is_incremental=True)
    if sink:
        pending = {"warehouse": SinkCommitStatus.pending()}
        made = replace(made, sink_epochs={"warehouse": number}, sink_commit_statuses=pending)
    writer.save(made, {("agg", 0): state_of(number)})
    return number


def state_of(number: int) -> bytes:
    """The state of the checkpoint saved under that number: the first one's is large, so that others can be stored upon it."""
    return _LARGE if number == 1 else f"state {number}".encode()


def begin(open_again: Opener) -> tuple[Writer, Writer]:
    """Three checkpoints of `orders`, none of `returns`; the writers of both."""
    writer, other = open_again().writer("orders"), open_again().writer("returns")
    for _ in range(3):
        save(writer)
    return writer, other


def needing(how: str, writer: Writer, other: Writer) -> Callable[[], object]:
    """Something that comes to need checkpoint 1 of `orders`: done by the other writer for a fork."""
    if how == "save with a parent":
        return lambda: save(writer, parent=1)
    if how == "save upon its state":
        # Staged as by a task that began when checkpoint 1 was the newest; its commit is what comes now.
        writer.basis.of(1)
        attempt = writer.committer.begin(writer.next_id)
        staged = writer.stage(attempt, CheckpointManifest.new(attempt.checkpoint_id, 1, 1), {("agg", 0): _UPON})
        return lambda: writer.commit(attempt, staged.manifest, staged.parts, state=staged.state)
    if how == "rewind":
        return lambda: writer.rewind(1, reason="back")
    if how == "fork":
        return lambda: other.fork("orders", 1, reason="try")
    return lambda: writer.edit_offsets({}, reason="skip", checkpoint_id=1)


def visible(open_again: Opener, pipeline: str = "orders") -> list[int]:
    """The ids a reader sees."""
    return [head.checkpoint_id for head in open_again().pipeline(pipeline).list()]


def assert_kept(open_again: Opener, how: str) -> None:
    """What came to need checkpoint 1 is there and whole, and so is checkpoint 1, also after maintenance."""
    pipeline = open_again().pipeline("returns" if how == "fork" else "orders")
    head = pipeline.list()[-1]
    newest = head.checkpoint_id
    assert 1 in visible(open_again)
    assert list(head.state_needs) == ([1] if how == "save upon its state" else [])
    open_again().maintain(AT_ONCE)
    assert pipeline.validate(newest).valid
    saved = {"save with a parent": state_of(newest), "save upon its state": _UPON}
    assert pipeline.state(newest).read("agg") == saved.get(how, state_of(1))
    assert open_again().pipeline("orders").validate(1).valid
    assert 1 not in open_again().pipeline("orders").prune(RetentionPolicy(keep_last=1)).retire


def assert_sound(catalog: ld.Catalog) -> None:
    """Every checkpoint once, whole, and no fence ever lowered."""
    rows = catalog.engine.read(MANIFESTS.name, columns=["pipeline", "checkpoint_id"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows})
    for name in catalog.pipelines():
        pipeline = catalog.pipeline(name)
        assert all(pipeline.validate(head.checkpoint_id).valid for head in pipeline.list())
    assert_fences_rise(catalog.engine, MANIFESTS.name)
