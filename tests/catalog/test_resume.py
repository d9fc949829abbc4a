"""Starting up after a crash: sinks are asked, never guessed at; nothing is delivered twice, skipped, or wrongly begun anew."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.coordinator import Coordinator
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.digest import row_digest
from laminar_delta.catalog.sinks import Observe, SinkEpoch, Step, When
from laminar_delta.catalog.standing import RETIRED
from laminar_delta.catalog.tables import MANIFESTS, RETENTION, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, FencedError, SessionStateError, StorageError
from laminar_delta.model import SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, catalog_opener
from tests.support.delivery import AnySink, FileSink, ForgetfulSink
from tests.support.faults import unreadable

Opener = Callable[[], ld.Catalog]

COMMITTED = SinkCommitStatus.committed()


class Killed(BaseException):
    """The end of a process: nothing catches it."""


class Place:
    """A catalog and a directory of sinks; every process finds them as the last one left them."""

    def __init__(self, open_again: Opener, directory: Path) -> None:
        self.open = open_again
        self.directory = directory

    def file_sink(self, name: str) -> FileSink:
        return FileSink(self.directory / name)

    def coordinator(self, *sinks: AnySink, observe: Observe | None = None, reuse_epochs: bool = False) -> Coordinator:
        """As a new process makes it."""
        return Coordinator(self.open().writer("orders"), sinks, observe=observe, reuse_epochs=reuse_epochs)

    def crash(self, at: Step, when: When, *sinks: AnySink, epochs: int = 1) -> None:
        """A process delivers some epochs and dies at that step of the next, the first time it comes to it."""
        armed = False

        def observe(step: Step, moment: When) -> None:
            if armed and (step, moment) == (at, when):
                raise Killed

        coordinator = self.coordinator(*sinks, observe=observe)
        coordinator.resume()
        for _ in range(epochs):
            assert run(coordinator, *sinks).success
        armed = True
        with pytest.raises(Killed):
            run(coordinator, *sinks)

    def statuses(self, checkpoint_id: int) -> dict[str, str]:
        found = self.open().pipeline("orders").get(checkpoint_id).sink_commit_statuses
        return {name: str(status) for name, status in found.items()}

    def abandoned(self) -> list[int]:
        rows = self.open().engine.read(RETENTION.name).to_pylist()
        return [row["checkpoint_id"] for row in rows if row["decision"] == "abandoned"]


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Without a JVM: what is decided here is decided above the engines. `test_delivery` also runs on Spark."""
    return catalog_opener(request.param, tmp_path / "catalog", request)


@pytest.fixture
def place(open_again: Opener, tmp_path: Path) -> Place:
    return Place(open_again, tmp_path / "sinks")


def run(coordinator: Coordinator, *sinks: AnySink, epoch: int | None = None) -> Any:
    """One epoch with one record, named like the checkpoint."""

    def fill(cp: CheckpointBuilder) -> None:
        cp.source("kafka", {"0": str(cp.id)})
        for sink in sinks:
            sink.write(f"r{cp.id}")

    return coordinator.run(fill, epoch=epoch)


def damage(catalog: ld.Catalog, checkpoint_id: int) -> None:
    """As if it had been saved for other offsets than there are: no earlier version heals that."""
    where = col("checkpoint_id").eq(checkpoint_id)
    (row,) = catalog.engine.read(MANIFESTS.name, where=where).to_pylist()
    row["children"] = [{**child, "digest": "another"} for child in row["children"]]
    row["content_digest"] = row_digest(row, without=["content_digest"])
    catalog.engine.delete(MANIFESTS.name, where)
    catalog.engine.append(MANIFESTS.name, pa.Table.from_pylist([row], schema=MANIFESTS.schema))


def actions(report: Any) -> list[tuple[int, str, str]]:
    return [(answer.checkpoint_id, answer.sink, answer.action.value) for answer in report.answers]


def test_q26_a_crash_between_a_sinks_commit_and_the_record_of_it_repeats_nothing(place: Place) -> None:
    place.crash(Step.RECORD, When.BEFORE, place.file_sink("lake"))
    assert place.statuses(2) == {"lake": "Pending"}
    lake = place.file_sink("lake")
    report = place.coordinator(lake).resume()
    assert report.recovery.chosen_id == 2
    assert actions(report.reconciled) == [(2, "lake", "recorded")]
    assert [str(answer.before) for answer in report.reconciled.answers] == ["Pending"]
    assert lake.called("commit") == []
    assert lake.output() == ["r1", "r2"]
    assert place.statuses(2) == {"lake": "Committed"}
    assert place.abandoned() == []


def test_q26_an_epoch_the_sinks_still_hold_is_shown_after_all(place: Place) -> None:
    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("lake"), place.file_sink("search"))
    sinks = place.file_sink("lake"), place.file_sink("search")
    report = place.coordinator(*sinks).resume()
    assert actions(report.reconciled) == [(2, "lake", "committed"), (2, "search", "committed")]
    assert (report.recovery.chosen_id, report.repeated) == (2, {})
    assert [sink.output() for sink in sinks] == [["r1", "r2"]] * 2


def test_q26_without_sinks_there_is_nobody_to_ask_and_nothing_is_decided(place: Place) -> None:
    place.crash(Step.RECORD, When.BEFORE, place.file_sink("lake"))
    coordinator = place.coordinator()
    for call in (coordinator.reconcile, coordinator.resume):
        with pytest.raises(SessionStateError, match="no sink is registered") as caught:
            call()
        assert caught.value.expected == ["lake"]
    assert place.abandoned() == []
    assert place.coordinator(place.file_sink("lake")).resume().recovery.chosen_id == 2


def test_q26_a_sink_that_is_not_registered_is_reported_and_stops_the_start(place: Place) -> None:
    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("lake"), place.file_sink("search"))
    lake, fresh = place.file_sink("lake"), place.file_sink("fresh")
    coordinator = place.coordinator(lake, fresh)
    report = coordinator.reconcile()
    assert actions(report) == [(2, "lake", "left"), (2, "search", "unregistered"), (2, "fresh", "not-named")]
    assert [answer.sink for answer in report.undelivered] == ["lake", "search"]
    with pytest.raises(SessionStateError, match="sink 'search', checkpoint 2, epoch 2: unregistered"):
        coordinator.resume()
    assert (place.abandoned(), lake.output()) == ([], ["r1"])
    # Someone who knows says that nothing is owed to it.
    place.open().writer("orders").sink_committed(2, "search")
    assert place.coordinator(lake, fresh).resume().recovery.chosen_id == 2
    assert lake.output() == ["r1", "r2"]


def test_q25_a_failed_sink_gets_its_epoch_after_all(place: Place) -> None:
    lake, search = place.file_sink("lake"), place.file_sink("search")
    coordinator = place.coordinator(lake, search)
    coordinator.resume()
    lake.failing["commit"] = OSError("gone away")
    assert run(coordinator, lake, search).error == "partial sink commit failure: lake"
    # Still away: that is no reason to go back, because the other sink has it.
    with pytest.raises(StorageError, match=r"sink 'lake'.*gone away") as caught:
        coordinator.resume()
    assert caught.value.__cause__ is lake.failing["commit"]
    assert place.statuses(1) == {"lake": "Failed: sink 'lake' commit failed: gone away", "search": "Committed"}
    assert place.abandoned() == []
    lake.failing.clear()
    report = coordinator.resume()
    assert actions(report.reconciled) == [(1, "lake", "committed")]
    assert report.recovery.chosen_id == 1
    assert run(coordinator, lake, search).success
    assert [sink.output() for sink in (lake, search)] == [["r1", "r2"]] * 2


def test_q25_a_failed_sink_that_lost_its_epoch_makes_the_sources_go_back(place: Place) -> None:
    lake, search = place.file_sink("lake"), place.file_sink("search")
    coordinator = place.coordinator(lake, search)
    coordinator.resume()
    run(coordinator, lake, search)
    lake.failing["commit"] = OSError("gone away")
    run(coordinator, lake, search)
    lake.failing.clear()
    lake.abort(SinkEpoch(number=2, generation=1))
    report = coordinator.resume()
    assert actions(report.reconciled) == [(2, "lake", "left")]
    assert report.recovery.chosen_id == 1
    assert report.repeated == {"search": (2,)}
    assert place.abandoned() == [2]


def test_a_failed_sink_can_be_given_up_on_purpose(place: Place) -> None:
    lake, search = place.file_sink("lake"), place.file_sink("search")
    coordinator = place.coordinator(lake, search)
    coordinator.resume()
    lake.failing["commit"] = OSError("gone away")
    run(coordinator, lake, search)
    report = coordinator.resume(failed_sinks=FailedSinks.ACCEPT)
    assert (report.recovery.chosen_id, report.repeated) == (1, {})
    assert list(lake.prepared()) == []
    lake.failing.clear()
    assert run(coordinator, lake, search).success
    assert [sink.output() for sink in (lake, search)] == [["r2"], ["r1", "r2"]]


def test_what_was_given_up_does_not_keep_later_epochs_from_being_shown(place: Place) -> None:
    lake = place.file_sink("lake")

    def die(step: Step, when: When) -> None:
        if lake.called("pre_commit") == [1, 2] and (step, when) == (Step.COMMIT, When.BEFORE):
            raise Killed

    coordinator = place.coordinator(lake, observe=die)
    coordinator.resume()
    lake.failing["commit"] = OSError("gone away")
    run(coordinator, lake)
    coordinator.resume(failed_sinks=FailedSinks.ACCEPT)
    lake.failing.clear()
    with pytest.raises(Killed):
        run(coordinator, lake)
    again = place.file_sink("lake")
    report = place.coordinator(again).resume(failed_sinks=FailedSinks.ACCEPT)
    assert actions(report.reconciled) == [(1, "lake", "left"), (2, "lake", "committed")]
    assert report.recovery.chosen_id == 2
    assert again.output() == ["r2"]


def test_a_sink_that_lost_what_it_held_has_it_delivered_again_once(place: Place) -> None:
    directory = place.directory / "mail"
    place.crash(Step.COMMIT, When.BEFORE, ForgetfulSink(directory))
    mail = ForgetfulSink(directory)
    coordinator = place.coordinator(mail)
    report = coordinator.resume()
    assert (report.recovery.chosen_id, report.repeated) == (1, {})
    assert place.abandoned() == [2]
    assert run(coordinator, mail).success
    assert mail.output() == ["r1", "r3"]


def test_an_epoch_that_comes_again_under_its_number_is_not_dropped_before_it_came(place: Place) -> None:
    """What a sink is told to drop it must never show: so it is told of epochs that were, not of the one to come."""
    directory = place.directory / "mail"
    place.crash(Step.COMMIT, When.BEFORE, ForgetfulSink(directory))
    mail = ForgetfulSink(directory)
    coordinator = place.coordinator(mail, reuse_epochs=True)
    assert coordinator.resume().recovery.chosen_id == 1
    assert run(coordinator, mail, epoch=2).success
    assert mail.output() == ["r1", "r3"]


def test_of_sinks_that_cannot_be_asked_again_none_is_called_after_one_failed(place: Place) -> None:
    """It would show what all of them are going to get again."""
    broken, mail = ForgetfulSink(place.directory / "broken"), ForgetfulSink(place.directory / "mail")
    coordinator = place.coordinator(broken, mail)
    coordinator.resume()
    shutil.rmtree(broken.shown)
    outcome = run(coordinator, broken, mail)
    assert (outcome.success, outcome.saved) == (False, True)
    assert mail.output() == []
    assert place.statuses(1) == {"broken": str(outcome.statuses["broken"]), "mail": str(SinkCommitStatus.pending())}


def test_a_sink_that_cannot_be_asked_again_commits_first(place: Place) -> None:
    """Whatever the order they are given in: then a crash between two commits leaves only sinks that can be re-driven."""
    files = place.file_sink("files")
    place.crash(Step.COMMIT, When.AFTER, files, ForgetfulSink(place.directory / "mail"))
    assert files.output() == ["r1"]
    files, mail = place.file_sink("files"), ForgetfulSink(place.directory / "mail")
    report = place.coordinator(files, mail).resume()
    assert actions(report.reconciled) == [(2, "files", "committed"), (2, "mail", "recorded")]
    assert report.recovery.chosen_id == 2
    assert [sink.output() for sink in (files, mail)] == [["r1", "r2"]] * 2


def test_no_sink_is_re_driven_when_another_cannot_be(place: Place) -> None:
    """Otherwise the first would show an epoch that recovery then falls back from."""
    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("files"), ForgetfulSink(place.directory / "mail"))
    files, mail = place.file_sink("files"), ForgetfulSink(place.directory / "mail")
    coordinator = place.coordinator(files, mail)
    report = coordinator.resume()
    assert actions(report.reconciled) == [(2, "files", "left"), (2, "mail", "left")]
    assert (report.recovery.chosen_id, report.repeated) == (1, {})
    assert list(files.prepared()) == []
    assert run(coordinator, files, mail).success
    assert [sink.output() for sink in (files, mail)] == [["r1", "r3"]] * 2


def test_two_sinks_that_cannot_be_asked_again_can_repeat_and_that_is_said(place: Place) -> None:
    place.crash(Step.COMMIT, When.AFTER, *(ForgetfulSink(place.directory / name) for name in ("mail", "post")))
    sinks = [ForgetfulSink(place.directory / name) for name in ("mail", "post")]
    report = place.coordinator(*sinks).resume()
    assert report.recovery.chosen_id == 1
    assert report.repeated == {"mail": (2,)}


def test_a_sink_that_has_no_way_to_tell_is_left_and_recovery_falls_back(place: Place) -> None:
    class Mute(ForgetfulSink):
        def landed(self, epoch: SinkEpoch) -> bool | None:
            return None

    place.crash(Step.RECORD, When.BEFORE, ForgetfulSink(place.directory / "mail"))
    report = place.coordinator(Mute(place.directory / "mail")).resume()
    (answer,) = report.reconciled.answers
    assert (answer.landed, answer.action.value) == (None, "left")
    assert report.recovery.chosen_id == 1


@pytest.mark.parametrize("method", ["landed", "prepared", "abort"])
def test_a_sink_that_does_not_answer_stops_the_start_before_anything_is_given_up(place: Place, method: str) -> None:
    class Unreachable(FileSink):
        def prepared(self) -> Any:
            if "prepared" in self.failing:
                raise self.failing["prepared"]
            return super().prepared()

    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("lake"))
    lake = Unreachable(place.directory / "lake")
    lake.failing[method] = OSError("no route to host")
    coordinator = place.coordinator(lake)
    with pytest.raises(StorageError, match=r"sink 'lake'.*no route to host") as caught:
        coordinator.resume()
    assert caught.value.__cause__ is lake.failing[method]
    assert place.abandoned() == []
    with pytest.raises(SessionStateError):
        run(coordinator, lake)
    lake.failing.clear()
    assert coordinator.resume().recovery.chosen_id == 2
    assert lake.output() == ["r1", "r2"]


def test_an_epoch_that_a_paused_predecessor_shows_meanwhile_counts(place: Place) -> None:
    """Between the question and the rollback the predecessor wakes up and commits."""
    directory = place.directory / "mail"
    predecessor = ForgetfulSink(directory)
    place.crash(Step.COMMIT, When.BEFORE, predecessor)

    class Overtaken(ForgetfulSink):
        def abort(self, epoch: SinkEpoch) -> None:
            if epoch.number == 2 and not self.landed(SinkEpoch(number=2, generation=1)):
                predecessor.commit(SinkEpoch(number=2, generation=1))
            super().abort(epoch)

    mail = Overtaken(directory)
    report = place.coordinator(mail).resume()
    assert (report.recovery.chosen_id, report.repeated) == (2, {})
    assert place.statuses(2) == {"mail": "Committed"}
    assert mail.output() == ["r1", "r2"]


@pytest.mark.parametrize("kind", [FileSink, ForgetfulSink])
def test_a_zombie_that_wakes_up_after_its_successor_resumed_shows_nothing_twice(
    place: Place, kind: type[FileSink | ForgetfulSink]
) -> None:
    successors = []

    def sleep_through_takeover(step: Step, when: When) -> None:
        if (step, when) == (Step.COMMIT, When.BEFORE):
            sink = kind(place.directory / "out")
            coordinator = place.coordinator(sink)
            successors.append((coordinator, sink, coordinator.resume()))

    zombie_sink = kind(place.directory / "out")
    zombie = place.coordinator(zombie_sink, observe=sleep_through_takeover)
    zombie.resume()
    with pytest.raises(FencedError):
        run(zombie, zombie_sink)
    ((coordinator, sink, report),) = successors
    if report.recovery.manifest is None:
        assert run(coordinator, sink).success
    assert len(sink.output()) == 1


def test_a_zombie_that_resumes_is_told_and_drops_nothing_of_its_successors(place: Place) -> None:
    writer = place.open().writer("orders")
    zombie = Coordinator(writer, [place.file_sink("lake")])
    zombie.resume()
    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("lake"))
    for call in (zombie.resume, zombie.reconcile, writer.recover):
        with pytest.raises(FencedError):
            call()
    assert place.abandoned() == []
    lake = place.file_sink("lake")
    assert lake.output() == ["r1"]
    assert [epoch.number for epoch in lake.prepared()] == [2]


def test_what_was_pre_committed_and_never_saved_is_dropped(place: Place) -> None:
    place.crash(Step.SAVE, When.BEFORE, place.file_sink("lake"))
    lake = place.file_sink("lake")
    assert [epoch.number for epoch in lake.prepared()] == [2]
    successors = SinkEpoch(number=9, generation=99)
    lake.pre_commit(successors)
    report = place.coordinator(lake).resume()
    assert (report.recovery.chosen_id, report.reconciled.answers) == (1, ())
    assert list(lake.prepared()) == [successors]


def test_what_was_only_written_is_dropped_too(place: Place) -> None:
    lake = place.file_sink("lake")
    coordinator = place.coordinator(lake)
    coordinator.resume()
    assert run(coordinator, lake).success
    lake.write("half an epoch")
    assert coordinator.resume().recovery.chosen_id == 1
    assert run(coordinator, lake).success
    assert lake.output() == ["r1", "r2"]


def test_a_damaged_checkpoint_is_not_shown_because_recovery_would_fall_back_from_it(place: Place) -> None:
    place.crash(Step.COMMIT, When.BEFORE, place.file_sink("lake"))
    damage(place.open(), 2)
    lake = place.file_sink("lake")
    coordinator = place.coordinator(lake)
    report = coordinator.resume()
    assert actions(report.reconciled) == [(2, "lake", "left")]
    assert report.recovery.chosen_id == 1
    assert run(coordinator, lake).success
    assert lake.output() == ["r1", "r3"]


@pytest.mark.parametrize("at", [Step.COMMIT, Step.RECORD])
@pytest.mark.parametrize("table", [MANIFESTS.name, SOURCE_OFFSETS.name])
def test_rows_that_were_deleted_are_healed_before_sinks_are_asked(place: Place, table: str, at: Step) -> None:
    place.crash(at, When.BEFORE, place.file_sink("lake"))
    place.open().engine.delete(table, col("checkpoint_id").eq(2))
    lake = place.file_sink("lake")
    report = place.coordinator(lake).resume()
    assert (report.recovery.chosen_id, report.repeated) == (2, {})
    assert [healed.checkpoint_id for healed in report.recovery.healed] == [2]
    assert lake.output() == ["r1", "r2"]


def test_checkpoints_are_delivered_in_order_or_not_at_all(place: Place) -> None:
    """Two that wait at once, as a program leaves them that saves without a coordinator."""
    lake, post = place.file_sink("lake"), ForgetfulSink(place.directory / "post")
    writer = place.open().writer("orders")
    for names in (["lake", "post"], ["lake"]):
        with writer.checkpoint() as cp:
            for name in names:
                cp.sink(name)
        lake.write(f"r{cp.id}")
        lake.pre_commit(SinkEpoch(number=cp.id, generation=1))
    report = place.coordinator(lake, post).reconcile()
    assert actions(report) == [(1, "lake", "left"), (1, "post", "left"), (2, "lake", "left"), (2, "post", "not-named")]
    writer = place.open().writer("orders")
    writer.sink_committed(1, "post")
    assert place.coordinator(lake, post).resume().recovery.chosen_id == 2
    assert lake.called("commit") == [1, 2]


def test_checkpoints_that_are_abandoned_or_retired_are_not_asked_about(place: Place) -> None:
    directory = place.directory / "mail"
    place.crash(Step.COMMIT, When.BEFORE, ForgetfulSink(directory))
    assert place.coordinator(ForgetfulSink(directory)).resume().recovery.chosen_id == 1
    place.crash(Step.COMMIT, When.BEFORE, ForgetfulSink(directory), epochs=0)
    retired = Decision(checkpoint_id=3, word=RETIRED)
    decide(place.open().engine, "orders", lambda _: [retired], owner="ops")
    assert place.coordinator(ForgetfulSink(directory)).reconcile().answers == ()


def test_q19_a_catalog_that_cannot_be_read_is_not_an_empty_one(place: Place) -> None:
    lake = place.file_sink("lake")
    coordinator = place.coordinator(lake)
    coordinator.resume()
    assert run(coordinator, lake).success
    catalog = place.open()
    again = Coordinator(catalog.writer("orders"), [lake])
    with unreadable(catalog.engine, MANIFESTS.name), pytest.raises(CorruptionError, match="cannot be read"):
        again.resume()
    with pytest.raises(SessionStateError):
        run(again, lake)
    assert again.resume().recovery.chosen_id == 1
    assert run(again, lake).checkpoint_id == 2


def test_q24_checkpoints_that_cannot_be_used_are_not_a_fresh_start(place: Place) -> None:
    lake = place.file_sink("lake")
    coordinator = place.coordinator(lake)
    coordinator.resume()
    assert run(coordinator, lake).success
    damage(place.open(), 1)
    coordinator = place.coordinator(lake)
    # The second time the catalog has it on record as abandoned; it is still no fresh start.
    for _ in range(2):
        with pytest.raises(CorruptionError, match="none of them can be used") as caught:
            coordinator.resume()
        assert caught.value.details["delivered"] == [1]
        with pytest.raises(SessionStateError):
            run(coordinator, lake)
    report = coordinator.resume(start_over=True)
    assert (report.recovery.manifest, report.repeated) == (None, {"lake": (1,)})
    assert run(coordinator, lake).checkpoint_id == 2


def test_q24_a_first_epoch_that_nobody_got_is_begun_again(place: Place) -> None:
    directory = place.directory / "mail"
    place.crash(Step.COMMIT, When.BEFORE, ForgetfulSink(directory), epochs=0)
    mail = ForgetfulSink(directory)
    coordinator = place.coordinator(mail)
    report = coordinator.resume()
    assert (report.recovery.manifest, report.repeated) == (None, {})
    assert not report.recovery.is_fresh_start
    assert run(coordinator, mail).success
    assert mail.output() == ["r2"]
