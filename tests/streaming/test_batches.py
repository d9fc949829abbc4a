"""What `foreach_batch` makes of batches, without a JVM: what it tells of sinks, of resets, of plans, of who may call it."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import PySparkException

import laminar_delta as ld
from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.sinks import SinkEpoch, Step, When
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError, SessionStateError, StorageError
from laminar_delta.streaming import (
    Batch,
    BatchResult,
    BatchStep,
    Delivery,
    DeltaSink,
    Line,
    Written,
    check_resume,
    files_read,
    restore_spark_checkpoint,
    schema_hash,
    starting_options,
)
from tests.support.stream_plans import (
    DeltaFrame,
    FailingFrame,
    Frame,
    KeptSink,
    Planned,
    TableSink,
    forget_commits,
    numbers_in,
    said_by,
)

WRITTEN, FOUND, NOTHING, FAILED = Written.WRITTEN, Written.FOUND, Written.NOTHING, Written.FAILED


@pytest.fixture
def catalog() -> ld.Catalog:
    return ld.open_catalog("memory", engine="memory")


@pytest.fixture
def query(tmp_path: Path) -> Planned:
    return Planned(tmp_path / "query")


def to_out(frame: Any, batch: Batch) -> Any:
    return {"out": frame}


def to_all(frame: Any, batch: Batch) -> Any:
    return {"out": frame, "files": frame}


def total(frame: Any, batch: Batch) -> None:
    before = 0 if batch.state is None else int(batch.state.read("total"))
    batch.checkpoint.state("total", str(before + sum(frame.numbers)).encode())


def test_nothing_for_a_sink_may_be_said_by_its_name(catalog: ld.Catalog, query: Planned) -> None:
    """So that a function can name all its sinks, and leave some out of a batch."""
    table, files = TableSink("out"), KeptSink("files")
    given = query.run(catalog, 0, Frame(1), lambda frame, batch: {"out": frame, "files": None}, [table, files])
    assert given.sinks == {"out": WRITTEN, "files": NOTHING}
    again = query.run(catalog, 0, Frame(1), to_out, [table, files])
    assert again.sinks == {"out": FOUND, "files": NOTHING}


def test_a_sink_that_is_given_nothing_is_not_told_to_have_it(catalog: ld.Catalog, query: Planned) -> None:
    table, files = TableSink("out"), KeptSink("files")
    fresh = query.run(catalog, 0, Frame(1), to_out, [table, files])
    assert (fresh.delivery, fresh.sinks) == (Delivery.FRESH, {"out": WRITTEN, "files": NOTHING})
    # The table has the next batch from a run that did not come to save it: nothing is left to be run for Spark.
    query.plan(1)
    table.batches[f"laminar:orders:{query.query_id}:0", 1] = (2,)
    frame = Frame(2)
    found = query.run(catalog, 1, frame, to_out, [table, files])
    assert (found.delivery, found.sinks) == (Delivery.REPLAYED_WRITTEN, {"out": FOUND, "files": NOTHING})
    assert (frame.ran, files.shown) == (1, [])
    assert query.run(catalog, 2, (given := Frame(3)), to_all, [table, files]).sinks == {
        "out": WRITTEN,
        "files": WRITTEN,
    }
    assert (given.ran, files.shown) == (0, [(3,)])


def test_of_a_batch_that_was_delivered_sinks_have_what_is_recorded(catalog: ld.Catalog, query: Planned) -> None:
    """Between the runs a sink is added, and it did not get the batch; another one had been given nothing of it."""
    sinks = [TableSink("out"), KeptSink("files")]
    query.run(catalog, 0, Frame(1), to_out, sinks)
    again = query.run(catalog, 0, Frame(1), to_out, [*sinks, TableSink("added")])
    assert again.delivery is Delivery.REPLAYED_DELIVERED
    assert again.sinks == {"out": FOUND, "added": NOTHING, "files": NOTHING}


def test_a_sink_that_failed_is_told_as_failed_when_that_is_accepted(catalog: ld.Catalog, query: Planned) -> None:
    table = TableSink("out")
    table.failing = RuntimeError("bad row")
    with pytest.raises(StorageError, match="was not delivered"):
        query.run(catalog, 0, Frame(1), to_out, [table])
    again = query.run(catalog, 0, Frame(1), to_out, [table], failed_sinks=FailedSinks.ACCEPT)
    assert (again.delivery, again.sinks) == (Delivery.REPLAYED_DELIVERED, {"out": FAILED})


def test_a_reset_query_says_what_becomes_of_the_state(catalog: ld.Catalog, tmp_path: Path) -> None:
    """With its directory deleted it reads the same records again: going on with the state would count them twice."""
    Planned(tmp_path / "first").run(catalog, 0, Frame(10), total)
    reset = Planned(tmp_path / "second")
    with pytest.raises(ConflictError, match=r"begins anew at batch 0.*\"fresh\".*\"continue\"") as caught:
        reset.run(catalog, 0, Frame(10), total)
    assert caught.value.details["operators"] == ("total",)

    def looking(frame: Any, batch: Batch) -> None:
        assert (batch.previous, batch.state) == (None, None)
        total(frame, batch)

    reset.plan(0)
    deliver = reset.deliver(catalog, looking, after_reset="fresh")
    deliver(Frame(10), 0)  # type: ignore[arg-type]
    assert deliver.last is not None
    assert catalog.pipeline("orders").state(deliver.last.checkpoint_id).read("total") == b"10"
    # From then on the state is that of the batch before, in this run and the next.
    again = reset.run(catalog, 1, Frame(5), total, after_reset="fresh")
    assert catalog.pipeline("orders").state(again.checkpoint_id).read("total") == b"15"
    begun = Planned(tmp_path / "third").run(catalog, 0, Frame(1), total, after_reset="continue")
    assert catalog.pipeline("orders").state(begun.checkpoint_id).read("total") == b"16"
    with pytest.raises(InvalidInputError, match="there is no 'begin'"):
        reset.deliver(catalog, total, after_reset="begin")


def test_a_reset_without_state_asks_nothing(catalog: ld.Catalog, tmp_path: Path) -> None:
    Planned(tmp_path / "first").run(catalog, 0, Frame(1), to_out, [TableSink("out")])
    again = Planned(tmp_path / "second").run(catalog, 0, Frame(1), to_out, [TableSink("out")])
    assert (again.delivery, again.sinks) == (Delivery.FRESH, {"out": WRITTEN})


@pytest.mark.parametrize("batch", [0, 9], ids=["in an entry", "in an entry with all before"])
def test_a_batch_planned_anew_is_refused_whatever_its_entry_is_like(
    catalog: ld.Catalog, query: Planned, batch: int
) -> None:
    for number in range(batch + 1):
        query.run(catalog, number, Frame(number), to_out, [TableSink("out")])
    same = query.run(catalog, batch, Frame(batch), to_out, [TableSink("out")])
    assert same.delivery is Delivery.REPLAYED_DELIVERED
    query.plan(batch, "file:///in/other.json")
    deliver = query.deliver(catalog, to_out, [TableSink("out")])
    with pytest.raises(ConflictError, match=f"batch {batch} of query .* was planned anew"):
        deliver(Frame(7), batch)  # type: ignore[arg-type]


def test_while_a_batch_is_at_work_no_other_query_gets_in(catalog: ld.Catalog, query: Planned) -> None:
    """The sink would take the second query's frame for the first one's, and the second would be recorded without."""
    at_work, go_on = threading.Event(), threading.Event()
    told: list[Exception] = []

    def slow(frame: Any, batch: Batch) -> Any:
        at_work.set()
        assert go_on.wait(60)
        return {"out": frame}

    query.plan(0)
    table = TableSink("out")
    deliver = query.deliver(catalog, slow, [table])
    first = threading.Thread(target=deliver, args=(Frame(1), 0))
    first.start()
    assert at_work.wait(60)
    try:
        deliver(Frame(2), 0)  # type: ignore[arg-type]
    except SessionStateError as error:
        told.append(error)
    finally:
        go_on.set()
        first.join()
    assert "is that of query" in str(told[0])
    assert list(table.batches.values()) == [(1,)]
    deliver(Frame(1), 0)  # type: ignore[arg-type]  # what ended lets the next one in
    assert deliver.last is not None
    assert deliver.last.delivery is Delivery.REPLAYED_DELIVERED


def test_of_two_drivers_the_first_is_told_that_it_is_fenced_off(catalog: ld.Catalog, query: Planned) -> None:
    table = TableSink("out")
    first, second = (query.deliver(catalog, to_out, [table]) for _ in range(2))
    query.plan(0)
    first(Frame(1), 0)  # type: ignore[arg-type]
    query.plan(1)
    second(Frame(2), 1)  # type: ignore[arg-type]
    with pytest.raises(FencedError):
        first(Frame(2), 1)  # type: ignore[arg-type]
    assert sorted(table.batches.values()) == [(1,), (2,)]


def test_a_checkpoint_tells_what_the_query_was(catalog: ld.Catalog, query: Planned) -> None:
    frame = Frame(1, schema="id long, amount long")
    query.run(catalog, 0, frame, total)
    assert check_resume(catalog, "orders", query_hash=schema_hash(frame)).ok
    look = check_resume(catalog, "orders", query_hash=schema_hash(Frame(1)))
    assert [finding.code for finding in look.findings if finding.severity.value == "fatal"] == ["query-changed"]
    # A query whose schema has grown goes on all the same.
    query.run(catalog, 1, Frame(2), total)
    assert check_resume(catalog, "orders", query_hash=schema_hash(Frame(1))).ok

    def knows_better(frame: Any, batch: Batch) -> None:
        batch.checkpoint.describe(pipeline_hash=7)

    query.run(catalog, 2, Frame(3), knows_better)
    assert check_resume(catalog, "orders", query_hash=7).ok


def test_a_query_begun_by_options_goes_on_behind_what_was_delivered(catalog: ld.Catalog, query: Planned) -> None:
    """The checkpoint that a run saved and did not deliver is not begun behind: no option leaves its records out."""
    table = TableSink("out")
    query.run(catalog, 0, Frame(1), to_out, [table])
    table.failing = RuntimeError("no such luck")
    with pytest.raises(StorageError):
        query.run(catalog, 1, Frame(2), to_out, [table])
    with pytest.raises(ConflictError, match="checkpoint 2 of pipeline 'orders' is not one to go on from"):
        starting_options(catalog, "orders", "source-0", 2)
    assert check_resume(catalog, "orders").checkpoint_id == 1


def test_offsets_that_were_moved_are_not_passed_over_by_a_query_in_its_own_directory(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    """Spark goes on from where its directory says. Moved in the catalog alone, an offset would change nothing."""
    table = TableSink("out")

    def kafka(name: str, query_id: str) -> Planned:
        return Planned(tmp_path / name, query_id, offset=lambda batch: f'{{"orders":{{"0":{batch + 1}0}}}}')

    query = kafka("query", "one")
    query.run(catalog, 0, Frame(1), to_out, [table])
    with catalog.writer("orders") as writer:
        writer.edit_offsets({"source-0": {"orders-0": "50"}}, reason="skip a poison pill")
    beside = restore_spark_checkpoint(catalog, "orders", 1, tmp_path / "before", new_query=True)
    for other, batch in ((query, 1), (query, 0), (kafka("before", beside.query_id), 1)):
        with pytest.raises(
            ConflictError, match=r"goes on from \{'orders-0': '10'\} of source-0.*checkpoint 2"
        ) as caught:
            other.run(catalog, batch, Frame(2), to_out, [table])
        assert caught.value.expected == {"source-0": {"orders-0": "50"}}
        assert caught.value.found == {"source-0": {"orders-0": "10"}}
        assert "from checkpoint 2 with `restore_spark_checkpoint`" in caught.value.next_step
    assert list(table.batches.values()) == [(1,)]
    # Where the directory is written from that checkpoint, or the change is taken back, the two agree.
    made = restore_spark_checkpoint(catalog, "orders", 2, tmp_path / "restored")
    moved = kafka("restored", made.query_id).run(catalog, 1, Frame(5), to_out, [table])
    assert (moved.delivery, moved.lineage) == (Delivery.FRESH, 2)
    with catalog.writer("orders") as writer:
        writer.rewind(2, reason="from there again")
        writer.undo(reason="no")
        writer.rewind(1, reason="as it was")
    assert query.run(catalog, 1, Frame(2), to_out, [table]).delivery is Delivery.FRESH
    assert list(table.batches.values()) == [(1,), (5,), (2,)]


class KilledError(BaseException):
    """Ends a batch where it is."""


def killed_before(step: Step) -> Any:
    def observe(at: Any, when: When) -> None:
        if (at, when) == (step, When.BEFORE):
            raise KilledError

    return observe


def test_a_query_begun_before_the_sinks_were_asked_is_begun_once_more(catalog: ld.Catalog, tmp_path: Path) -> None:
    """The run before died between a sink's commit and the record of it: options from before would give the batch again."""
    first, table = Planned(tmp_path / "first"), TableSink("out")

    def kept(frame: Any, batch: Batch) -> Any:
        total(frame, batch)
        return frame

    first.run(catalog, 0, Frame(1), kept, [table])
    behind = files_read(catalog, "orders", "source-0")
    with pytest.raises(KilledError):
        first.run(catalog, 1, Frame(2), kept, [table], observe=killed_before(Step.RECORD))
    with pytest.raises(ConflictError, match="checkpoint 2 may be in its sinks"):
        files_read(catalog, "orders", "source-0")

    def begin(name: str, *numbers: int, after_reset: str) -> Any:
        query = Planned(tmp_path / name, query_id=name)
        return query.run(catalog, 0, Frame(*numbers), kept, [table], after_reset=after_reset)

    for _ in range(2):  # also when it is started again: Spark has its first batch written down
        with pytest.raises(ConflictError, match="found only when it started that sinks have checkpoint 2") as caught:
            begin("second", 2, 3, after_reset="continue")
        assert "Delete the directory of the new query" in caught.value.next_step
        assert "once more in its own directory" not in caught.value.next_step
    assert files_read(catalog, "orders", "source-0") > behind
    begun = begin("third", 3, after_reset="continue")
    assert begun.delivery is Delivery.FRESH
    assert sorted(table.batches.values()) == [(1,), (2,), (3,)]
    assert catalog.pipeline("orders").state(begun.checkpoint_id).read("total") == b"6"
    assert begin("fourth", 1, 2, 3, after_reset="fresh").delivery is Delivery.FRESH


def test_what_only_some_sinks_have_is_completed_before_a_query_is_begun_behind_it(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    first, tables = Planned(tmp_path / "first"), [TableSink("out"), TableSink("more")]

    def both(frame: Any, batch: Batch) -> Any:
        return {"out": frame, "more": frame}

    first.run(catalog, 0, Frame(1), both, tables)
    tables[1].failing = RuntimeError("down")
    with pytest.raises(KilledError):
        first.run(catalog, 1, Frame(2), both, tables, observe=killed_before(Step.RECORD))
    tables[1].failing = None
    second = Planned(tmp_path / "second")
    with pytest.raises(ConflictError, match="sinks have checkpoint 2") as caught:
        second.run(catalog, 0, Frame(2, 3), both, tables)
    assert f"Run query {first.query_id} once more in its own directory" in caught.value.next_step
    assert first.run(catalog, 1, Frame(2), both, tables).sinks == {"out": FOUND, "more": WRITTEN}
    Planned(tmp_path / "third").run(catalog, 0, Frame(3), both, tables)
    assert [sorted(table.batches.values()) for table in tables] == [[(1,), (2,), (3,)]] * 2


def test_a_query_that_failed_in_its_own_first_batch_just_goes_on(catalog: ld.Catalog, tmp_path: Path) -> None:
    """What it finds of its own batch is no batch of others: one sink has it, the other does not yet."""
    tables = [TableSink("out"), TableSink("more")]

    def both(frame: Any, batch: Batch) -> Any:
        return {"out": frame, "more": frame}

    Planned(tmp_path / "first").run(catalog, 0, Frame(1), both, tables)
    second = Planned(tmp_path / "second")
    tables[1].failing = RuntimeError("down")
    with pytest.raises(KilledError):
        second.run(catalog, 0, Frame(2), both, tables, observe=killed_before(Step.RECORD))
    tables[1].failing = None
    assert second.run(catalog, 0, Frame(2), both, tables).sinks == {"out": FOUND, "more": WRITTEN}


class Refusing(TableSink):
    """A table whose old line cannot be closed, for a reason that is Spark's."""

    def close_line(self, line: Line) -> bool:
        raise PySparkException("no such luck")


def test_a_line_that_cannot_be_closed_keeps_the_batch_from_being_shown(catalog: ld.Catalog, tmp_path: Path) -> None:
    Planned(tmp_path / "first").run(catalog, 0, Frame(1), to_out, [TableSink("out")])
    second, refusing = Planned(tmp_path / "second"), Refusing("out")
    with pytest.raises(PySparkException):
        second.run(catalog, 0, Frame(1), to_out, [refusing])
    assert refusing.batches == {}
    assert is_free(catalog)


@dataclass
class Lines:
    """Two queries over one table, the second of which was started with a wrong directory."""

    catalog: ld.Catalog
    home: Path
    frames: type[DeltaFrame] = DeltaFrame

    def __post_init__(self) -> None:
        self.out = str(self.home / "out")
        self.right, self.wrong = (Planned(self.home / name, query_id=name) for name in ("right", "wrong"))
        for batch in range(2):
            assert self.run(self.right, batch).delivery is Delivery.FRESH

    def run(self, query: Planned, batch: int, at: tuple[BatchStep | Step, When] | None = None) -> BatchResult:
        """One start of a query with a sink of its own, ended at a point if one is named."""

        def observe(step: Any, when: When) -> None:
            if (step, when) == at:
                raise KilledError

        frame: Any = self.frames(batch)
        return query.run(self.catalog, batch, frame, to_out, [DeltaSink(self.out)], observe=observe)

    def told(self) -> list[str]:
        return [f"{one['application_id']} {'closed' if 'closed' in one else one['batch']}" for one in said_by(self.out)]


def numbers(*given: int) -> pa.Table:
    return pa.table({"id": pa.array(given, pa.int64())})


def written_by_others(path: str) -> None:
    write_deltalake(path, numbers(99), mode="append")


RIGHT, WRONG = "laminar:orders:right:0", "laminar:orders:wrong:0"
BOTH = [f"{RIGHT} 0", f"{RIGHT} 1"]


@pytest.mark.parametrize(
    "at", [(Step.PRE_COMMIT, When.BEFORE), (Step.SAVE, When.BEFORE), (Step.SAVE, When.AFTER)], ids=str
)
def test_a_start_with_a_wrong_directory_that_comes_to_nothing_leaves_the_right_one_open(
    catalog: ld.Catalog, tmp_path: Path, at: tuple[Step, When]
) -> None:
    lines = Lines(catalog, tmp_path)
    with pytest.raises(KilledError):
        lines.run(lines.wrong, 0, at)
    assert lines.told() == BOTH
    assert lines.run(lines.right, 2).sinks == {"out": WRITTEN}
    # The wrong one may only be paused: once it has saved something nothing of it is shown any more.
    assert lines.told() == [*BOTH, *([f"{WRONG} closed"] if at == (Step.SAVE, When.AFTER) else []), f"{RIGHT} 2"]


@pytest.mark.parametrize("at", [(Step.SAVE, When.AFTER), (Step.COMMIT, When.BEFORE)], ids=str)
def test_a_line_that_was_left_is_closed_before_anything_of_the_next_is_shown(
    catalog: ld.Catalog, tmp_path: Path, at: tuple[Step, When]
) -> None:
    """Also by a start after one that died between the save and the closing, and once only."""
    lines = Lines(catalog, tmp_path)
    with pytest.raises(KilledError):
        lines.run(lines.wrong, 0, at)
    assert lines.run(lines.wrong, 0).delivery is Delivery.REPLAYED_WRITTEN
    assert lines.run(lines.wrong, 1).delivery is Delivery.FRESH
    assert lines.told() == [*BOTH, f"{RIGHT} closed", f"{WRONG} 0", f"{WRONG} 1"]


@pytest.mark.parametrize(
    "kept", [100, 1, 0], ids=["the whole history", "its last commit only", "nothing of the line any more"]
)
def test_a_query_whose_line_was_closed_is_told_where_to_go_back_to(
    catalog: ld.Catalog, tmp_path: Path, kept: int
) -> None:
    lines = Lines(catalog, tmp_path)
    lines.frames = FailingFrame
    with pytest.raises(StorageError, match="was not delivered"):
        lines.run(lines.wrong, 0)
    lines.frames = DeltaFrame
    assert lines.told()[-1] == f"{RIGHT} closed"
    if not kept:
        written_by_others(lines.out)
    forget_commits(lines.out, but=kept or 1)
    how = "by version 2" if kept else "by a commit that the log has no more"
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"batch 2 was not written to .*/out: its line was closed") as caught:
            lines.run(lines.right, 2)
        assert "to checkpoint 2" in caught.value.next_step
        assert (caught.value.details["checkpoint_id"], caught.value.found) == (2, f"closed {how}")
        assert "Look whether the sink has" not in caught.value.next_step  # the tries before were refused
    assert 2 not in numbers_in(lines.out)
    with catalog.writer("orders") as writer:
        lineage = writer.rewind(2, reason="as it says").checkpoint_id
    assert lines.run(lines.right, 2).sinks == {"out": WRITTEN}
    assert lines.told()[-1] == f"laminar:orders:right:{lineage} 2"


def test_a_batch_that_a_table_has_is_recognised_when_its_log_does_not_tell_any_more(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    """Nobody can have closed the line, and the batch had been saved: it is the only reason for Delta to skip it."""
    lines = Lines(catalog, tmp_path)
    with pytest.raises(KilledError):
        lines.run(lines.right, 2, (Step.COMMIT, When.AFTER))
    written_by_others(lines.out)
    forget_commits(lines.out, but=1)
    with pytest.raises(KilledError):  # also by a start after one that came to nothing
        lines.run(lines.right, 2, (BatchStep.FUNCTION, When.BEFORE))
    again = lines.run(lines.right, 2)
    assert (again.delivery, again.sinks) == (Delivery.REPLAYED_WRITTEN, {"out": FOUND})
    assert lines.run(lines.right, 3).sinks == {"out": WRITTEN}
    assert numbers_in(lines.out) == [0, 1, 2, 3, 99]


def test_where_a_line_may_have_been_closed_since_a_batch_is_not_taken_for_shown(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    """The batch had been saved, another query began in its place, and of all that the log tells nothing any more."""
    lines = Lines(catalog, tmp_path)
    with pytest.raises(KilledError):
        lines.run(lines.right, 2, (Step.COMMIT, When.BEFORE))
    written_by_others(lines.out)
    forget_commits(lines.out, but=1)
    with pytest.raises(KilledError):
        lines.run(lines.wrong, 0, (Step.COMMIT, When.BEFORE))
    written_by_others(lines.out)
    forget_commits(lines.out, but=1)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"its line was closed there .*; or the table has it") as caught:
            lines.run(lines.right, 2)
        assert "Look whether the sink has the records" in caught.value.next_step
        assert "to checkpoint 2" in caught.value.next_step
    assert 2 not in numbers_in(lines.out)


def test_a_batch_that_a_table_has_from_nobody_in_the_catalog_is_not_taken_for_delivered(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    lines = Lines(catalog, tmp_path)
    told = CommitProperties(app_transactions=[Transaction(RIGHT, 7)])
    write_deltalake(lines.out, numbers(99), mode="append", commit_properties=told)
    forget_commits(lines.out, but=1)
    for _ in range(2):  # a try that was refused is none that it can have it from
        with pytest.raises(StorageError, match="was not delivered") as caught:
            lines.run(lines.right, 2)
        cause = caught.value.__cause__
        assert isinstance(cause, ConflictError)
        assert "whose log was cleaned" in cause.message
        assert "rewind pipeline 'orders'" in cause.next_step


@pytest.mark.parametrize("step", [BatchStep.RESUME, BatchStep.FUNCTION, Step.SAVE, Step.RECORD], ids=str)
def test_a_batch_that_fails_lets_go_of_the_pipeline(catalog: ld.Catalog, query: Planned, step: Any) -> None:
    failing = False

    def observe(at: Any, when: When) -> None:
        if failing and (at, when) == (step, When.AFTER):
            raise RuntimeError("no such luck")

    with query.deliver(catalog, to_out, [TableSink("out")], observe=observe) as deliver:
        for batch in range(1 if step is BatchStep.RESUME else 2):
            query.plan(batch)
            failing = True
            with pytest.raises(RuntimeError, match="no such luck"):
                deliver(Frame(batch), batch)  # type: ignore[arg-type]
            assert is_free(catalog)
            failing = False
            deliver(Frame(batch), batch)  # type: ignore[arg-type]  # as when the query is started again
            assert not is_free(catalog)
    assert is_free(catalog)


class PlainSink:
    """A sink that recognises nothing, and whose output does not outlive its process."""

    def __init__(self, name: str) -> None:
        self.name = name

    write = pre_commit = commit = abort = landed = lambda self, given: None


class UntoldSink(PlainSink):
    """One that shows what it is given at once, under the key of the epoch, and cannot tell afterwards."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.shown: dict[str, tuple[int, ...]] = {}

    def write(self, frame: Any) -> None:
        self.given = frame.numbers

    def commit(self, epoch: SinkEpoch) -> None:
        self.shown[epoch.key] = self.given


@pytest.mark.parametrize("starts", [1, 2], ids=["by the next start", "by one after a start that came to nothing"])
def test_a_sink_that_cannot_tell_is_warned_of_when_it_may_get_a_batch_again(
    catalog: ld.Catalog, query: Planned, caplog: pytest.LogCaptureFixture, starts: int
) -> None:
    table, mail = TableSink("out"), UntoldSink("mail")

    def both(frame: Any, batch: Batch) -> Any:
        return {"out": frame, "mail": frame}

    query.run(catalog, 0, Frame(1), both, [table, mail])
    with pytest.raises(KilledError):
        query.run(catalog, 1, Frame(2), both, [table, mail], observe=killed_before(Step.RECORD))
    assert "cannot tell" not in caplog.text
    if starts > 1:
        with pytest.raises(KilledError):
            query.run(catalog, 1, Frame(2), both, [table, mail], observe=killed_before(Step.SAVE))
        caplog.clear()
    again = query.run(catalog, 1, Frame(2), both, [table, mail])
    assert again.sinks == {"out": FOUND, "mail": WRITTEN}
    assert list(mail.shown.values()) == [(1,), (2,), (2,)]  # once or more: it could not be known
    told = [record for record in caplog.records if "cannot tell whether it has epochs [2]" in record.getMessage()]
    assert [(record.levelname, "sink mail" in record.getMessage()) for record in told] == [("WARNING", True)]
    caplog.clear()
    query.run(catalog, 2, Frame(3), both, [table, mail])
    assert "cannot tell" not in caplog.text


def test_one_sink_that_cannot_be_asked_is_taken(catalog: ld.Catalog, query: Planned) -> None:
    with query.deliver(catalog, to_out, [PlainSink("a"), KeptSink("b"), TableSink("c")]):
        pass


def test_sinks_are_looked_at_before_the_pipeline_is_taken_over(catalog: ld.Catalog, query: Planned) -> None:
    class NoWrite:
        name = "out"
        pre_commit = commit = abort = landed = lambda self, epoch: None

    with catalog.writer("orders") as running:
        for sinks, told in (
            ([DeltaSink("/lake/a/orders"), DeltaSink("/lake/b/orders")], "two sinks are called 'orders'"),
            ([TableSink("out"), KeptSink("out")], "two sinks are called 'out'"),
            ([NoWrite()], "NoWrite is no sink of batches"),
            ([PlainSink("a"), DeltaSink("/lake/orders"), PlainSink("b")], "'a' and 'b' can neither be asked"),
            (["out"], "str is no sink of batches"),
        ):
            with pytest.raises(InvalidInputError, match=told):
                query.deliver(catalog, to_out, sinks)
        running.check_held()


def is_free(catalog: ld.Catalog) -> bool:
    try:
        catalog.writer("orders", takeover=False).close()
    except ConflictError:
        return False
    return True


def test_a_line_that_cannot_be_closed_is_a_typed_error() -> None:
    class Session:
        """Spark, when it does not answer."""

        @property
        def read(self) -> Any:
            raise PySparkException("the store is down")

    sink, session = DeltaSink("/lake/out"), Session()
    sink.follow(session, "orders", None, {})  # type: ignore[arg-type]
    with pytest.raises(StorageError, match="/lake/out cannot be read: the store is down"):
        sink.close_line(Line(pipeline="orders", query_id="q"))


def test_a_table_that_forgets_its_batches_is_warned_of(
    catalog: ld.Catalog, query: Planned, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out, told = str(tmp_path / "out"), "a batch of pipeline orders that comes again later than that is written twice"
    query.run(catalog, 0, DeltaFrame(0), to_out, [DeltaSink(out)])
    assert told not in caplog.text
    expiry = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    DeltaTable(out).alter.set_table_properties(expiry, raise_if_not_exists=False)
    query.run(catalog, 1, DeltaFrame(1), to_out, [DeltaSink(out)])
    assert caplog.text.count(told) == 1
    assert "setTransactionRetentionDuration = interval 7 days" in caplog.text
