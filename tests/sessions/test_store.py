"""Drasi's checkpoint store, method by method: what each promises, on a store that keeps its promises."""

import pytest

import laminar_delta as ld
from laminar_delta.errors import ErrorCode, InvalidInputError, SessionStateError
from tests.sessions.support import StoreOpener, at, commits, raw


def test_persistent_is_what_outlives_the_process(store: ld.SourceCheckpointStore, catalog: ld.Catalog) -> None:
    assert store.is_persistent() is (catalog.engine.name != "memory")


def test_a_store_that_was_never_written_is_empty_and_takes_nothing(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    assert store.read_checkpoint("kafka") is None
    assert store.read_all_checkpoints() == {}
    assert store.read_config_hash() is None
    assert store.read_result_sequence("q") is None
    assert raw(catalog, pipeline) == {}


def test_a_step_by_itself_is_a_session_and_is_committed_at_once(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    store.take_generation()
    before = commits(catalog)
    store.stage_checkpoint("kafka", 7, b"offset 7")
    assert commits(catalog) == before + 1
    other = open_store()
    assert other.read_checkpoint("kafka") == at(7, b"offset 7")
    assert other.read_all_checkpoints() == {"kafka": at(7, b"offset 7")}


def test_no_position_deletes_the_stored_one_and_no_bytes_are_a_position(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 1, b"somewhere")
        s.stage("files", 1, b"")
        s.stage("clock", 1)
    assert store.read_all_checkpoints() == {"kafka": at(1, b"somewhere"), "files": at(1, b""), "clock": at(1)}
    store.stage_checkpoint("kafka", 2, None)
    assert store.read_checkpoint("kafka") == at(2)


def test_the_last_write_wins_and_a_sequence_may_go_back(store: ld.SourceCheckpointStore) -> None:
    store.stage_checkpoint("kafka", 9, b"nine")
    store.stage_checkpoint("kafka", 4, b"four")
    assert store.read_checkpoint("kafka") == at(4, b"four")


def test_sources_are_independent_whatever_they_are_called(store: ld.SourceCheckpointStore) -> None:
    names = ["head", "a'b", 'c"d', "e\\f", "é", "%", "g/h", " ", "config_hash", "x" * 300]
    with store.session() as s:
        for number, name in enumerate(names):
            s.stage(name, number, name.encode())
    store.stage_checkpoint("é", 100)
    expected = {name: at(number, name.encode()) for number, name in enumerate(names)}
    assert store.read_all_checkpoints() == {**expected, "é": at(100)}
    assert [store.read_checkpoint(name) for name in names[:4]] == [expected[name] for name in names[:4]]


def test_pipelines_do_not_see_each_other(open_store: StoreOpener, catalog: ld.Catalog, pipeline: str) -> None:
    store, other = open_store(), ld.SourceCheckpointStore(catalog, f"{pipeline} too")
    store.stage_checkpoint("kafka", 1, b"mine")
    other.stage_checkpoint("kafka", 2, b"theirs")
    other.clear_checkpoints()
    assert store.read_all_checkpoints() == {"kafka": at(1, b"mine")}


def test_numbers_keep_their_range(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("kafka", 2**63 - 1)
        s.stage("zero", 0)
        s.write_config_hash(2**64 - 1)
        s.write_result_sequence("q", 2**63 - 1)
    assert store.read_all_checkpoints() == {"kafka": at(2**63 - 1), "zero": at(0)}
    assert store.read_config_hash() == 2**64 - 1
    assert store.read_result_sequence("q") == 2**63 - 1
    store.write_config_hash(0)
    assert store.read_config_hash() == 0


def test_what_cannot_be_stored_is_refused_and_leaves_nothing_behind(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog
) -> None:
    store.stage_checkpoint("kafka", 1, b"good")
    before = commits(catalog)
    wrong: list[tuple[str, object, object]] = [
        ("kafka", 2**63, None),
        ("kafka", -1, None),
        ("kafka", "2", None),
        ("kafka", True, None),
        ("kafka", 2, "text"),
        ("", 2, None),
        ("\ud800", 2, None),
    ]
    for source, sequence, position in wrong:
        with pytest.raises(InvalidInputError):
            store.stage_checkpoint(source, sequence, position)  # type: ignore[arg-type]  # that is the point
    for call in (store.write_config_hash, lambda n: store.write_result_sequence("q", n)):
        for number in (-1, 2**64):
            with pytest.raises(InvalidInputError):
                call(number)
    with pytest.raises(InvalidInputError) as refused:
        store.stage_checkpoint("kafka", 2**63)
    assert refused.value.code is ErrorCode.NUMBER_TOO_LARGE
    assert "9223372036854775807" in str(refused.value)
    assert commits(catalog) == before
    assert store.read_all_checkpoints() == {"kafka": at(1, b"good")}


def test_a_position_may_have_the_limit_and_not_one_byte_more(store: ld.SourceCheckpointStore) -> None:
    largest = bytes(range(256)) * 256
    store.stage_checkpoint("kafka", 1, largest)
    with pytest.raises(InvalidInputError, match="65537 bytes, more than the limit of 65536") as refused:
        store.stage_checkpoint("kafka", 2, largest + b"x")
    assert (refused.value.expected, refused.value.found) == (65_536, 65_537)
    assert "last good position is kept" in str(refused.value)
    assert store.read_checkpoint("kafka") == at(1, largest)


def test_config_hash_and_result_sequence_are_apart_from_positions(store: ld.SourceCheckpointStore) -> None:
    store.write_config_hash(16045690984503054900)
    store.write_result_sequence("first", 3)
    store.write_result_sequence("second", 30)
    store.stage_checkpoint("first", 1, b"a source called as a query")
    assert store.read_config_hash() == 16045690984503054900
    assert (store.read_result_sequence("first"), store.read_result_sequence("second")) == (3, 30)
    assert store.read_all_checkpoints() == {"first": at(1, b"a source called as a query")}


def test_clearing_is_one_commit_and_leaves_nothing_but_the_fence(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    with store.session() as s:
        s.stage("kafka", 1, b"x")
        s.stage("files", 2)
        s.write_config_hash(5)
        s.write_result_sequence("q", 6)
    before = commits(catalog)
    store.clear_checkpoints()
    assert commits(catalog) == before + 1
    assert set(raw(catalog, pipeline)) == {("head", "")}
    assert store.read_config_hash() is None
    assert store.read_result_sequence("q") is None
    store.clear_checkpoints()
    assert store.read_all_checkpoints() == {}


def test_a_closed_store_reads_and_does_not_write(store: ld.SourceCheckpointStore) -> None:
    with store:
        store.stage_checkpoint("kafka", 1)
    store.close()
    assert store.read_checkpoint("kafka") == at(1)
    for write in (store.session, store.clear_checkpoints, store.take_generation):
        with pytest.raises(SessionStateError):
            write()


def test_positions_survive_the_store(open_store: StoreOpener) -> None:
    with open_store() as store, store.session() as s:
        s.stage("kafka", 1, b"x")
        s.write_config_hash(5)
        s.write_result_sequence("q", 6)
    again = open_store()
    assert again.read_all_checkpoints() == {"kafka": at(1, b"x")}
    assert (again.read_config_hash(), again.read_result_sequence("q")) == (5, 6)
