"""One checkpoint and its sinks: pre-commit, one decision, commit; and what is left when a step fails."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.coordinator import Coordinator, Counters
from laminar_delta.catalog.sinks import SinkEpoch, Step, When
from laminar_delta.catalog.tables import MANIFESTS, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.engine.settle import FenceRefused
from laminar_delta.errors import (
    CommitUnknownError,
    ErrorCode,
    FencedError,
    FormatError,
    InvalidInputError,
    SessionStateError,
    StorageError,
)
from laminar_delta.model import SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, catalog_opener
from tests.support.delivery import FileSink, ForgetfulSink
from tests.support.faults import (
    TimeLimit,
    failing_appends,
    interrupted_appends,
    unanswered_appends,
    unheard_appends,
    unreadable,
    unreadable_after_appends,
)

Opener = Callable[[], ld.Catalog]

COMMITTED = SinkCommitStatus.committed()
PENDING = SinkCommitStatus.pending()


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Without a JVM: what is decided here is decided above the engines. `test_delivery` also runs on Spark."""
    return catalog_opener(request.param, tmp_path / "catalog", request)


@pytest.fixture
def sinks(tmp_path: Path) -> list[FileSink]:
    return [FileSink(tmp_path / name) for name in ("lake", "search")]


@pytest.fixture
def coordinator(catalog: ld.Catalog, sinks: list[FileSink]) -> Coordinator:
    """One that was resumed, on a pipeline with nothing in it."""
    made = Coordinator(catalog.writer("orders", owner="job"), sinks)
    assert made.resume().recovery.is_fresh_start
    return made


def fill(cp: CheckpointBuilder) -> None:
    cp.source("kafka", {"0": str(100 * cp.id)})


def write(sinks: list[FileSink], record: str) -> None:
    for sink in sinks:
        sink.write(record)


def _status_commits(catalog: ld.Catalog) -> int:
    return sum(entry.metadata.get("operation") == "status" for entry in catalog.engine.history(SINK_STATUSES.name))


def test_a_checkpoint_is_saved_delivered_and_recorded(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    for record in ("a", "b"):
        write(sinks, record)
        outcome = coordinator.run(fill)
        assert outcome.success, outcome
    assert (outcome.checkpoint_id, outcome.epoch, outcome.saved, outcome.error) == (2, 2, True, None)
    assert outcome.statuses == {"lake": COMMITTED, "search": COMMITTED}
    assert [sink.output() for sink in sinks] == [["a", "b"], ["a", "b"]]
    latest = catalog.pipeline("orders").latest()
    assert latest is not None
    assert latest.sink_commit_statuses == outcome.statuses
    assert latest.source_offsets["kafka"].offsets == {"0": "200"}
    assert _status_commits(catalog) == 2
    assert coordinator.counters == Counters(completed=2, failed=0, last_duration_ms=outcome.duration_ms)


def test_all_sinks_are_pending_in_the_manifest_until_they_commit(catalog: ld.Catalog, sinks: list[FileSink]) -> None:
    seen = []

    def look(step: Step, when: When) -> None:
        if (step, when) == (Step.COMMIT, When.BEFORE):
            seen.append(catalog.pipeline("orders").get(1).sink_commit_statuses)

    coordinator = Coordinator(catalog.writer("orders"), sinks, observe=look)
    coordinator.resume()
    coordinator.run(fill)
    assert seen == [{"lake": PENDING, "search": PENDING}] * 2


def test_a_pipeline_without_exactly_once_sinks_needs_no_second_phase(catalog: ld.Catalog) -> None:
    coordinator = Coordinator(catalog.writer("orders"), [])
    coordinator.resume()
    assert coordinator.run(fill).success
    assert _status_commits(catalog) == 0
    assert coordinator.resume().recovery.chosen_id == 1


def test_a_sink_that_cannot_pre_commit_rolls_all_back_and_burns_the_id(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    sinks[1].failing["pre_commit"] = OSError("disk full")
    outcome = coordinator.run(fill)
    assert (outcome.success, outcome.saved, outcome.statuses) == (False, False, {})
    assert outcome.error == "pre-commit failed: sink 'search': disk full"
    assert outcome.cause is sinks[1].failing["pre_commit"]
    assert catalog.pipeline("orders").list() == []
    assert [sink.called("abort")[-1] for sink in sinks] == [1, 1]
    assert all(not list(sink.prepared()) for sink in sinks)
    sinks[1].failing.clear()
    coordinator.resume()
    write(sinks, "a")
    again = coordinator.run(fill)
    assert (again.success, again.checkpoint_id, again.epoch) == (True, 2, 2)
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]
    assert coordinator.counters == Counters(completed=1, failed=1, last_duration_ms=again.duration_ms)


def test_a_sink_that_was_not_reached_drops_what_it_was_given(coordinator: Coordinator, sinks: list[FileSink]) -> None:
    write(sinks, "a")
    sinks[0].failing["pre_commit"] = OSError("disk full")
    assert not coordinator.run(fill).success
    assert sinks[1].called("pre_commit") == []
    sinks[0].failing.clear()
    coordinator.resume()
    write(sinks, "a")
    assert coordinator.run(fill).success
    assert sinks[1].output() == ["a"]


def test_a_rollback_that_fails_too_is_told(coordinator: Coordinator, sinks: list[FileSink]) -> None:
    sinks[0].failing = {"pre_commit": OSError("disk full"), "abort": OSError("still full")}
    outcome = coordinator.run(fill)
    assert outcome.error == "pre-commit failed: sink 'lake': disk full; sink 'lake' could not roll back: still full"
    assert sinks[1].called("abort")[-1] == 1


def test_a_save_that_fails_rolls_all_sinks_back(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    def broken_state() -> Iterator[bytes]:
        yield b"x" * 100
        raise OSError("operator died")

    write(sinks, "a")
    outcome = coordinator.run(lambda cp: cp.state("window", broken_state()))
    assert (outcome.success, outcome.saved) == (False, False)
    assert outcome.error == "save failed: operator died"
    assert catalog.pipeline("orders").list() == []
    assert [sink.output() for sink in sinks] == [[], []]
    assert all(not list(sink.prepared()) for sink in sinks)
    coordinator.resume()
    with failing_appends(catalog.engine, MANIFESTS.name):
        assert coordinator.run(fill).saved is False
    assert all(not list(sink.prepared()) for sink in sinks)


def test_a_save_whose_answer_was_lost_is_neither_rolled_back_nor_delivered_but_settled_later(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with unheard_appends(catalog.engine, MANIFESTS.name):
        outcome = coordinator.run(fill)
    assert (outcome.success, outcome.saved, outcome.statuses) == (False, None, {})
    assert outcome.error is not None
    assert outcome.error.startswith("save outcome unknown")
    for sink in sinks:
        assert [epoch.number for epoch in sink.prepared()] == [1]
        assert sink.output() == []
    report = coordinator.reconcile()
    assert [(answer.sink, answer.landed, answer.action.value) for answer in report.answers] == [
        ("lake", False, "committed"),
        ("search", False, "committed"),
    ]
    # Everything of the epoch is delivered, so the next one can follow without going back.
    write(sinks, "b")
    assert coordinator.run(fill).success
    assert [sink.output() for sink in sinks] == [["a", "b"], ["a", "b"]]


def test_a_save_whose_time_is_up_once_it_is_committed_is_not_rolled_back(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with interrupted_appends(catalog.engine, MANIFESTS.name, TimeLimit):
        outcome = coordinator.run(fill)
    assert (outcome.success, outcome.saved, type(outcome.cause)) == (False, None, TimeLimit)
    assert outcome.error == "save outcome unknown: TimeLimit()"
    assert [[epoch.number for epoch in sink.prepared()] for sink in sinks] == [[1], [1]]
    assert coordinator.resume().recovery.chosen_id == 1
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_a_save_whose_time_is_up_before_it_is_committed_is_rolled_back(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with interrupted_appends(catalog.engine, SOURCE_OFFSETS.name, TimeLimit):
        outcome = coordinator.run(fill)
    assert (outcome.saved, outcome.error) == (False, "save failed: TimeLimit()")
    assert all(not list(sink.prepared()) for sink in sinks)
    assert coordinator.resume().recovery.is_fresh_start


def test_a_checkpoint_that_is_committed_and_not_looked_after_is_not_rolled_back(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    state = random.Random(7).randbytes(300_000)
    write(sinks, "a")
    assert coordinator.run(lambda cp: cp.state("op", state, inline=False)).success
    write(sinks, "b")
    with unreadable_after_appends(catalog.engine, MANIFESTS.name, times=1):
        outcome = coordinator.run(lambda cp: cp.state("op", state[:-9], inline=False))
    assert (outcome.success, outcome.saved) == (False, None)
    assert isinstance(outcome.cause, CommitUnknownError)
    assert [[epoch.number for epoch in sink.prepared()] for sink in sinks] == [[2], [2]]
    assert coordinator.resume().recovery.chosen_id == 2
    assert [sink.output() for sink in sinks] == [["a", "b"], ["a", "b"]]


def test_a_save_that_was_given_up_cannot_arrive_late(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with unanswered_appends(catalog.engine, MANIFESTS.name) as late:
        assert coordinator.run(fill).saved is None
    assert coordinator.reconcile().answers == ()
    with pytest.raises(FenceRefused):
        late[0]()
    with pytest.raises(SessionStateError, match="checkpoint 1"):
        coordinator.run(fill)
    assert coordinator.resume().recovery.is_fresh_start
    assert all(not list(sink.prepared()) for sink in sinks)
    assert catalog.pipeline("orders").list() == []
    write(sinks, "a")
    assert coordinator.run(fill).success
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_a_save_repeated_after_a_lost_answer_is_the_same_checkpoint(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    for lost in (unheard_appends, unanswered_appends):
        cp = writer.checkpoint()
        with lost(catalog.engine, MANIFESTS.name) as late, pytest.raises(CommitUnknownError):
            cp.commit()
        assert cp.commit().replayed is (late is None)
        for arrive in late or ():
            with pytest.raises(FenceRefused):
                arrive()
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 2]
    assert catalog.engine.read(MANIFESTS.name).num_rows == 2


def test_what_is_to_be_done_once_a_checkpoint_is_saved_is_done_before_any_sink_shows_it(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    seen: list[object] = []

    def look() -> None:
        seen.append(catalog.pipeline("orders").list()[-1].checkpoint_id)
        seen.extend(sink.output() for sink in sinks)
        raise OSError("gone away")

    sinks[0].failing["pre_commit"] = OSError("full")
    write(sinks, "a")
    assert coordinator.run(fill, once_saved=look).saved is False
    assert seen == []  # nothing was saved
    sinks[0].failing.clear()
    coordinator.resume()
    write(sinks, "a")
    with pytest.raises(OSError, match="gone away"):
        coordinator.run(fill, once_saved=look)
    assert seen == [2, [], []]
    with pytest.raises(SessionStateError, match="was not completed"):
        coordinator.run(fill)
    assert coordinator.resume().recovery.chosen_id is not None
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_one_sink_that_fails_to_commit_does_not_stop_the_others(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    sinks[0].failing["commit"] = OSError("gone away")
    outcome = coordinator.run(fill)
    assert (outcome.success, outcome.saved) == (False, True)
    assert outcome.error == "partial sink commit failure: lake"
    assert outcome.statuses == {
        "lake": SinkCommitStatus.failed("sink 'lake' commit failed: gone away"),
        "search": COMMITTED,
    }
    assert catalog.pipeline("orders").get(1).sink_commit_statuses == outcome.statuses
    assert [sink.output() for sink in sinks] == [[], ["a"]]
    with pytest.raises(SessionStateError, match=r"checkpoint 1 .* was not completed"):
        coordinator.run(fill)


def test_statuses_that_could_not_be_recorded_are_told_and_repaired(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with failing_appends(catalog.engine, SINK_STATUSES.name):
        outcome = coordinator.run(fill)
    assert (outcome.success, outcome.saved) == (False, True)
    assert outcome.error is not None
    assert outcome.error.startswith("statuses not recorded: no space left")
    assert outcome.statuses == {"lake": COMMITTED, "search": COMMITTED}
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]
    orders = catalog.pipeline("orders")
    assert orders.get(1).sink_commit_statuses == {"lake": PENDING, "search": PENDING}
    coordinator.reconcile()
    assert orders.get(1).sink_commit_statuses == outcome.statuses
    write(sinks, "b")
    assert coordinator.run(fill).success
    assert [sink.output() for sink in sinks] == [["a", "b"], ["a", "b"]]


def test_a_writer_that_was_taken_over_before_the_save_rolls_back_and_is_told(
    open_again: Opener, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    open_again().writer("orders", owner="successor")
    with pytest.raises(FencedError, match="successor"):
        coordinator.run(fill)
    assert all(not list(sink.prepared()) for sink in sinks)
    assert open_again().pipeline("orders").list() == []
    assert coordinator.counters.failed == 1
    for refused in (coordinator.reconcile, coordinator.resume):
        with pytest.raises(FencedError):
            refused()


def test_a_writer_that_was_taken_over_after_the_save_leaves_the_checkpoint_to_its_successor(
    open_again: Opener, tmp_path: Path
) -> None:
    sinks = [FileSink(tmp_path / name) for name in ("lake", "search")]
    sinks[1].failing["commit"] = OSError("gone away")

    def take_over(step: Step, when: When) -> None:
        if (step, when) == (Step.RECORD, When.BEFORE):
            open_again().writer("orders", owner="successor")

    coordinator = Coordinator(open_again().writer("orders"), sinks, observe=take_over)
    coordinator.resume()
    aborts = [sink.called("abort") for sink in sinks]
    write(sinks, "a")
    with pytest.raises(FencedError, match="successor"):
        coordinator.run(fill)
    assert [sink.called("abort") for sink in sinks] == aborts
    successor = Coordinator(open_again().writer("orders"), [FileSink(tmp_path / name) for name in ("lake", "search")])
    resumed = successor.resume()
    assert (resumed.recovery.chosen_id, resumed.repeated) == (1, {})
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_what_fill_raises_is_passed_on_and_touches_no_sink(coordinator: Coordinator, sinks: list[FileSink]) -> None:
    def broken(cp: CheckpointBuilder) -> None:
        raise ZeroDivisionError

    write(sinks, "a")
    calls = [list(sink.calls) for sink in sinks]
    with pytest.raises(ZeroDivisionError):
        coordinator.run(broken)
    with pytest.raises(InvalidInputError, match="elsewhere") as caught:
        coordinator.run(lambda cp: cp.sink("elsewhere"))
    assert caught.value.code is ErrorCode.INVALID_INPUT
    assert [sink.calls for sink in sinks] == calls
    assert coordinator.run(fill).success
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_epochs_only_go_up(catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]) -> None:
    assert coordinator.run(fill, epoch=40).epoch == 40
    for wanted in (40, 0):
        with pytest.raises(InvalidInputError, match="above"):
            coordinator.run(fill, epoch=wanted)
    with pytest.raises(InvalidInputError):
        coordinator.run(fill, epoch=2**63)
    assert coordinator.run(fill).epoch == 41
    # Another coordinator goes on above them, also above those whose ids are lower.
    other = Coordinator(catalog.writer("orders"), sinks)
    other.resume()
    assert other.run(fill).epoch == 42


def test_an_epoch_can_come_again_under_a_later_generation_where_the_caller_numbers_them(
    catalog: ld.Catalog, sinks: list[FileSink]
) -> None:
    """As Spark's batches do: one that is tried again has the number it had, and a rewound query begins at a lower one."""
    for wanted in ([3, 4], [4, 5], [1]):
        coordinator = Coordinator(catalog.writer("orders"), sinks, reuse_epochs=True)
        coordinator.resume()
        for epoch in wanted:
            write(sinks, f"{epoch}")
            assert coordinator.run(fill, epoch=epoch).epoch == epoch
        with pytest.raises(InvalidInputError, match="above"):
            coordinator.run(fill, epoch=wanted[-1])
    assert [head.epoch for head in catalog.pipeline("orders").list()] == [3, 4, 4, 5, 1]
    assert sorted(sinks[0].output()) == ["1", "3", "4", "4", "5"]


def test_a_sink_that_can_wait_does_when_one_failed_that_cannot(catalog: ld.Catalog, tmp_path: Path) -> None:
    """Shown now, its epoch would be shown again: the checkpoint is going to be passed over."""

    class FailingOnce(ForgetfulSink):
        fails = True

        def commit(self, epoch: SinkEpoch) -> None:
            if self.fails:
                raise OSError("gone away")
            super().commit(epoch)

    waiting, failing = FileSink(tmp_path / "waiting"), FailingOnce(tmp_path / "failing")
    coordinator = Coordinator(catalog.writer("orders"), [waiting, failing])
    coordinator.resume()
    for sink in (waiting, failing):
        sink.write("a")
    outcome = coordinator.run(fill)
    assert outcome.statuses == {
        "waiting": PENDING,
        "failing": SinkCommitStatus.failed("sink 'failing' commit failed: gone away"),
    }
    assert catalog.pipeline("orders").get(1).sink_commit_statuses == outcome.statuses
    assert waiting.output() == []
    failing.fails = False
    assert coordinator.resume().repeated == {}
    for sink in (waiting, failing):
        sink.write("a")
    assert coordinator.run(fill).success
    assert [waiting.output(), failing.output()] == [["a"], ["a"]]


def test_nothing_runs_before_resume(catalog: ld.Catalog, sinks: list[FileSink]) -> None:
    coordinator = Coordinator(catalog.writer("orders"), sinks)
    with pytest.raises(SessionStateError, match="not resumed"):
        coordinator.run(fill)
    assert coordinator.reconcile().answers == ()
    with pytest.raises(SessionStateError, match="not resumed"):
        coordinator.run(fill)


def test_a_coordinator_checks_what_it_is_given(catalog: ld.Catalog, sinks: list[FileSink]) -> None:
    writer = catalog.writer("orders")
    with pytest.raises(InvalidInputError, match="lake"):
        Coordinator(writer, [sinks[0], sinks[0]])
    with pytest.raises(InvalidInputError):
        Coordinator(writer, sinks, max_workers=0)


def test_sinks_are_called_at_once_when_there_are_workers(catalog: ld.Catalog, tmp_path: Path) -> None:
    """Each waits for the other inside its call: one after the other they would wait for ever."""
    meeting = threading.Barrier(2, timeout=60)

    class Meeting(FileSink):
        def pre_commit(self, epoch: SinkEpoch) -> None:
            meeting.wait()
            super().pre_commit(epoch)

        def commit(self, epoch: SinkEpoch) -> None:
            meeting.wait()
            super().commit(epoch)

    sinks: list[FileSink] = [Meeting(tmp_path / "lake"), Meeting(tmp_path / "search")]
    coordinator = Coordinator(catalog.writer("orders"), sinks, max_workers=4)
    coordinator.resume()
    write(sinks, "a")
    assert coordinator.run(fill).success
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_calls_of_two_threads_take_turns(coordinator: Coordinator, sinks: list[FileSink]) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: coordinator.run(fill), range(8)))
    assert sorted(outcome.epoch for outcome in outcomes) == list(range(1, 9))
    assert [sink.called("commit") for sink in sinks] == [list(range(1, 9))] * 2


def test_an_epochs_key_names_it_and_comes_back() -> None:
    epoch = SinkEpoch(number=42, generation=3)
    assert SinkEpoch.from_key(epoch.key) == epoch
    assert SinkEpoch(number=9, generation=10).key < epoch.key
    for other in ("", "42", "42-", "-3", "x-3", "42-3.tmp"):
        with pytest.raises(FormatError):
            SinkEpoch.from_key(other)


def test_q21_statuses_leave_the_state_checksum_alone(catalog: ld.Catalog, coordinator: Coordinator) -> None:
    assert coordinator.run(lambda cp: cp.state("window", b"x" * 100_000)).success
    manifest = catalog.pipeline("orders").get(1)
    assert manifest.state_checksum is not None
    assert manifest.sink_commit_statuses == {"lake": COMMITTED, "search": COMMITTED}
    assert catalog.pipeline("orders").validate(1).valid


def test_q29_what_fails_after_the_decision_is_never_rolled_back(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    """There is one record that decides, so nobody can take an epoch for committed that somebody else aborted."""
    write(sinks, "a")
    sinks[0].failing["commit"] = OSError("gone away")
    aborts = [sink.called("abort") for sink in sinks]
    with failing_appends(catalog.engine, SINK_STATUSES.name):
        outcome = coordinator.run(fill)
    assert outcome.saved
    assert outcome.error is not None
    assert outcome.error.startswith("partial sink commit failure: lake; statuses not recorded")
    assert [sink.called("abort") for sink in sinks] == aborts
    sinks[0].failing.clear()
    assert coordinator.resume().recovery.chosen_id == 1
    assert [sink.output() for sink in sinks] == [["a"], ["a"]]


def test_q29_what_fails_before_the_decision_leaves_nothing_to_be_taken_for_committed(
    catalog: ld.Catalog, coordinator: Coordinator, sinks: list[FileSink]
) -> None:
    write(sinks, "a")
    with failing_appends(catalog.engine, MANIFESTS.name):
        assert not coordinator.run(fill).success
    assert catalog.pipeline("orders").list() == []
    assert catalog.engine.read(SINK_STATUSES.name).num_rows == 0
    assert all(sink.landed(SinkEpoch(number=1, generation=1)) is False for sink in sinks)


def test_statuses_of_many_threads_lose_nothing(catalog: ld.Catalog) -> None:
    """Twenty threads, each with a sink of its own, over four checkpoints that all of them share."""
    writer = catalog.writer("orders")
    names = [f"sink-{number:02}" for number in range(20)]
    for _ in range(4):
        with writer.checkpoint() as cp:
            for name in names:
                cp.sink(name)
    start = threading.Barrier(20, timeout=60)

    def update(name: str) -> None:
        start.wait()
        for checkpoint_id in range(1, 5):
            if name.endswith("7"):
                writer.sink_failed(checkpoint_id, name, "full")
            else:
                writer.sink_committed(checkpoint_id, name)

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(update, names))
    for checkpoint_id in range(1, 5):
        statuses = catalog.pipeline("orders").get(checkpoint_id).sink_commit_statuses
        assert statuses == {n: SinkCommitStatus.failed("full") if n.endswith("7") else COMMITTED for n in names}
    assert catalog.engine.read(SINK_STATUSES.name).num_rows == 80


def test_a_start_that_failed_has_to_be_repeated(catalog: ld.Catalog, sinks: list[FileSink]) -> None:
    coordinator = Coordinator(catalog.writer("orders"), sinks)
    coordinator.resume()
    with unreadable(catalog.engine, "manifests"), pytest.raises(StorageError):
        coordinator.resume()
    with pytest.raises(SessionStateError):
        coordinator.run(fill)


def test_the_words_of_a_sink_keep_nothing_from_being_recorded(
    catalog: ld.Catalog, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # What a test logs travels between processes of a test run, which these words cannot.
    caplog.set_level("CRITICAL", logger="laminar_delta")
    works, fails = FileSink(tmp_path / "a"), FileSink(tmp_path / "b")
    writer = catalog.writer("orders")
    coordinator = Coordinator(writer, [works, fails])
    coordinator.resume()
    # As `os.fsdecode` gives the name of a file that is not UTF-8.
    fails.failing["commit"] = OSError("cannot move f\udcff")
    outcome = coordinator.run(lambda cp: cp.source("kafka", {"0": "1"}))
    told = SinkCommitStatus.failed(f"sink '{fails.name}' commit failed: cannot move f\\udcff")
    assert outcome.error == f"partial sink commit failure: {fails.name}"
    assert catalog.pipeline("orders").get(1).sink_commit_statuses == {works.name: COMMITTED, fails.name: told}
    # The same when it is asked again.
    with pytest.raises(StorageError, match="cannot move"):
        Coordinator(writer, [works, fails]).resume()
    assert catalog.pipeline("orders").get(1).sink_commit_statuses == {works.name: COMMITTED, fails.name: told}
