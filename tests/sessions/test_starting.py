"""How a query starts: where it was, or anew; and what happens when a source lost its history."""

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import (
    ConflictError,
    CorruptionError,
    ErrorCode,
    FencedError,
    InvalidInputError,
    NotFoundError,
    SessionStateError,
    StorageError,
)
from laminar_delta.stores import RecoveryPolicy, SequenceFilter, min_confirmed
from tests.sessions.support import Opener, StoreOpener, at, commits
from tests.support.faults import unreadable

CONFIG = 15788932903817395036


@pytest.fixture
def store(persistent_store: ld.SourceCheckpointStore) -> ld.SourceCheckpointStore:
    return persistent_store


@pytest.fixture
def used(store: ld.SourceCheckpointStore) -> ld.SourceCheckpointStore:
    """A store after a run under CONFIG."""
    store.start(CONFIG)
    with store.session() as s:
        s.stage("kafka", 7, b"offset 7")
        s.stage("files", 3)
        s.write_result_sequence("q", 42)
    return store


def test_a_new_store_writes_the_hash_and_begins(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    store.take_generation()
    before = commits(catalog)
    started = store.start(CONFIG)
    assert (started.resumed, dict(started.positions), started.config_hash) == (False, {}, CONFIG)
    assert store.read_config_hash() == CONFIG
    assert commits(catalog) == before + 1


@pytest.mark.also_on_spark
def test_the_same_configuration_resumes_and_writes_nothing(
    used: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    again = open_store()
    again.take_generation()
    before = commits(catalog)
    started = again.start(CONFIG)
    assert started.resumed
    assert started.positions == {"kafka": at(7, b"offset 7"), "files": at(3)}
    assert again.start(CONFIG, sources=["kafka", "new"]).positions == {"kafka": at(7, b"offset 7")}
    assert commits(catalog) == before
    assert again.read_result_sequence("q") == 42


def test_q36_another_configuration_clears_everything_and_writes_its_hash_in_one_commit(
    used: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    again = open_store()
    again.take_generation()
    before = commits(catalog)
    started = again.start(CONFIG + 1)
    assert (started.resumed, dict(started.positions)) == (False, {})
    assert "changed" in started.reason
    assert commits(catalog) == before + 1
    assert (again.read_all_checkpoints(), again.read_config_hash()) == ({}, CONFIG + 1)
    assert again.read_result_sequence("q") is None


def test_a_configuration_under_which_nothing_was_committed_begins_anew_again(
    used: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    """Whoever was told to begin anew may have ended before it cleared its own index of what the old positions led to."""
    again = open_store()
    again.start(CONFIG + 1)
    before = commits(catalog)
    started = again.start(CONFIG + 1)
    assert (started.resumed, dict(started.positions)) == (False, {})
    assert started.reason == "nothing was committed under this configuration yet"
    assert commits(catalog) == before
    again.write_result_sequence("q", 1)
    assert again.start(CONFIG + 1).resumed


def test_resuming_is_behind_the_fence(used: ld.SourceCheckpointStore, open_store: StoreOpener) -> None:
    """What a starting query reads is all there will be: the one before cannot add to it any more."""
    late = used.session()
    late.stage("kafka", 8)
    started = open_store().start(CONFIG)
    with pytest.raises(FencedError):
        late.commit()
    assert started.positions["kafka"] == at(7, b"offset 7")


def test_q35_what_cannot_be_read_is_no_fresh_start(
    used: ld.SourceCheckpointStore, open_again: Opener, pipeline: str, catalog: ld.Catalog
) -> None:
    other = open_again()
    again = ld.SourceCheckpointStore(other, pipeline)
    again.take_generation()
    before = commits(catalog)
    with unreadable(other.engine, SOURCE_CHECKPOINTS.name), pytest.raises(StorageError):
        again.start(CONFIG + 1)
    assert commits(catalog) == before
    assert again.start(CONFIG).positions["kafka"] == at(7, b"offset 7")


def test_a_source_that_cannot_replay_has_no_place_in_a_persistent_store(used: ld.SourceCheckpointStore) -> None:
    with pytest.raises(InvalidInputError, match="'clock'") as refused:
        used.start(CONFIG, cannot_replay=["clock"])
    assert refused.value.code is ErrorCode.UNSUPPORTED


def test_a_store_that_is_not_persistent_never_resumes() -> None:
    store = ld.SourceCheckpointStore(ld.open_catalog("here", engine="memory"), "orders")
    store.write_config_hash(CONFIG)
    store.stage_checkpoint("kafka", 7, b"x")
    started = store.start(CONFIG, cannot_replay=["clock"])
    assert (started.resumed, dict(started.positions)) == (False, {})
    assert store.read_config_hash() == CONFIG


def test_strict_fails_on_a_lost_position_and_changes_nothing(
    used: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    started = used.start(CONFIG)
    before = commits(catalog)
    with pytest.raises(NotFoundError, match="'kafka' cannot be read") as told:
        used.after_gap(started, {"kafka": at(100, b"earliest")})
    assert told.value.code is ErrorCode.POSITION_UNAVAILABLE
    assert (told.value.expected, told.value.found) == (7, 100)
    assert commits(catalog) == before
    assert used.after_gap(started, {}) is started


def test_q36_auto_reset_clears_everything_and_begins_anew_once(
    used: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    started = used.start(CONFIG)
    before = commits(catalog)
    reset = used.after_gap(started, {"kafka": None}, RecoveryPolicy.AUTO_RESET)
    assert (reset.resumed, dict(reset.positions)) == (False, {})
    assert commits(catalog) == before + 1
    assert (used.read_all_checkpoints(), used.read_config_hash()) == ({}, CONFIG)
    assert used.read_result_sequence("q") is None
    with pytest.raises(NotFoundError, match="although it begins anew"):
        used.after_gap(reset, {"kafka": None}, RecoveryPolicy.AUTO_RESET)


def test_auto_skip_gap_goes_on_from_where_the_source_can_be_read(
    used: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    started = used.start(CONFIG)
    before = commits(catalog)
    # The first event that is left is number 101.
    gaps = {"kafka": at(100, b"earliest"), "files": None}
    skipped = used.after_gap(started, gaps, RecoveryPolicy.AUTO_SKIP_GAP)
    assert skipped.resumed
    assert skipped.positions == {"kafka": at(100, b"earliest")}
    assert skipped.skipped == ("files", "kafka")
    assert commits(catalog) == before + 1
    assert used.read_all_checkpoints() == {"kafka": at(100, b"earliest"), "files": at(0)}
    seen = SequenceFilter(skipped.positions)
    assert [seen.is_duplicate("kafka", number) for number in (100, 101)] == [True, False]
    assert used.read_result_sequence("q") == 42


@pytest.mark.parametrize("policy", [RecoveryPolicy.AUTO_RESET, RecoveryPolicy.AUTO_SKIP_GAP])
def test_a_gap_is_not_decided_under_another_configuration(
    used: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, policy: RecoveryPolicy
) -> None:
    started = used.start(CONFIG)
    other = open_store(generation=used.take_generation())
    other.start(CONFIG + 1)
    before = commits(catalog)
    with pytest.raises(SessionStateError, match="under another configuration") as refused:
        used.after_gap(started, {"kafka": at(100, b"earliest")}, policy)
    assert (refused.value.expected, refused.value.found) == (CONFIG, CONFIG + 1)
    assert commits(catalog) == before
    assert (used.read_all_checkpoints(), used.read_config_hash()) == ({}, CONFIG + 1)


def test_a_store_that_is_not_persistent_has_no_hash_that_a_gap_could_miss() -> None:
    store = ld.SourceCheckpointStore(ld.open_catalog("here", engine="memory"), "orders")
    skipped = store.after_gap(store.start(CONFIG), {"kafka": at(99, b"100")}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (skipped.resumed, skipped.positions) == (False, {"kafka": at(99, b"100")})
    # Nor does what an earlier run of this process left count for anything.
    again = store.start(CONFIG)
    assert (again.resumed, again.positions) == (False, {})
    skipped = store.after_gap(again, {"kafka": at(199, b"200")}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (skipped.resumed, skipped.positions) == (False, {"kafka": at(199, b"200")})


def test_a_skipped_gap_does_not_make_a_query_resume(store: ld.SourceCheckpointStore) -> None:
    """What a query keeps beside its positions is cleared when it begins anew, whichever source has lost its history."""
    started = store.start(CONFIG)
    assert not started.resumed
    skipped = store.after_gap(started, {"kafka": at(99, b"100")}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (skipped.resumed, skipped.positions) == (False, {"kafka": at(99, b"100")})
    assert store.read_all_checkpoints() == {"kafka": at(99, b"100")}
    again = store.after_gap(skipped, {"files": None}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (again.resumed, again.positions, again.skipped) == (False, skipped.positions, ("files", "kafka"))


def test_a_gap_is_not_skipped_of_a_source_that_has_moved_since(
    used: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    started = used.start(CONFIG)
    other = open_store(generation=used.take_generation())
    other.stage_checkpoint("kafka", 150, b"150")
    before = commits(catalog)
    with pytest.raises(ConflictError, match="'kafka' does not stand any more") as refused:
        used.after_gap(started, {"kafka": at(100, b"earliest"), "files": None}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (refused.value.expected, refused.value.found) == (7, 150)
    assert commits(catalog) == before
    # Of another source it is no matter: it goes on from where it is by now.
    skipped = used.after_gap(started, {"files": None}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert (skipped.resumed, skipped.positions) == (True, {"kafka": at(150, b"150")})
    # And once more, now that it was skipped.
    skipped = used.after_gap(skipped, {"files": at(9)}, RecoveryPolicy.AUTO_SKIP_GAP)
    assert skipped.positions == used.read_all_checkpoints() == {"kafka": at(150, b"150"), "files": at(9)}


def test_policies_are_called_as_drasi_calls_them() -> None:
    assert [policy.value for policy in RecoveryPolicy] == ["strict", "auto_reset", "auto_skip_gap"]


def test_events_processed_already_are_dropped_by_their_sequence() -> None:
    seen = SequenceFilter({"kafka": at(7)})
    assert [seen.is_duplicate("kafka", number) for number in (6, 7, 8, None)] == [True, True, False, False]
    assert not seen.is_duplicate("unknown", 1)
    seen.advance("kafka", 9)
    seen.advance("kafka", 8)
    seen.advance("kafka", None)
    seen.advance("files", 2)
    assert [seen.is_duplicate("kafka", number) for number in (8, 9, 10)] == [True, True, False]
    assert seen.is_duplicate("files", 2)


def test_what_a_source_may_forget_is_what_the_slowest_query_has_confirmed(catalog: ld.Catalog, pipeline: str) -> None:
    source = f"kafka of {pipeline}"
    assert min_confirmed(catalog.reading, source) is None
    for name, sequence in (("fast", 90), ("slow", 30), ("other", 10)):
        store = ld.SourceCheckpointStore(catalog, f"{pipeline} {name}")
        store.stage_checkpoint(source, sequence, name.encode())
        store.stage_checkpoint("another source", 1)
    queries = [f"{pipeline} {name}" for name in ("fast", "slow", "not begun")]
    assert min_confirmed(catalog.reading, source, queries) == (f"{pipeline} slow", at(30, b"slow"))
    assert min_confirmed(catalog.reading, source) == (f"{pipeline} other", at(10, b"other"))
    assert min_confirmed(catalog.reading, source, ["nobody"]) is None


def test_who_lost_everything_is_not_left_out_of_who_is_furthest_behind(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    ahead = ld.SourceCheckpointStore(catalog, f"{pipeline} ahead")
    ahead.stage_checkpoint(pipeline, 100)
    store.stage_checkpoint(pipeline, 5)
    assert min_confirmed(catalog.reading, pipeline) == (pipeline, at(5))
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, col("pipeline").eq(pipeline))
    with pytest.raises(CorruptionError, match="has lost its rows"):
        min_confirmed(catalog.reading, pipeline)
    catalog.forget_positions(pipeline, reason="the other tests of this catalog ask for all, too")
    assert min_confirmed(catalog.reading, pipeline) == (f"{pipeline} ahead", at(100))


def test_a_policy_is_known_by_its_name_too(used: ld.SourceCheckpointStore) -> None:
    started = used.start(CONFIG)
    before = used.read_all_checkpoints()
    for policy in ("strict", RecoveryPolicy.STRICT):
        with pytest.raises(NotFoundError, match="cannot be read from where the query left off"):
            used.after_gap(started, {"kafka": at(900, b"900")}, policy)
    for unknown in ("nonsense", None, 5):
        with pytest.raises(InvalidInputError, match="no recovery policy"):
            used.after_gap(started, {"kafka": None}, unknown)  # type: ignore[arg-type]
    assert used.read_all_checkpoints() == before
    assert not used.after_gap(started, {"kafka": None}, "auto_reset").resumed
    assert used.read_all_checkpoints() == {}
