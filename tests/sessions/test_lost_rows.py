"""Rows that somebody took out are missed: read from the version before and written again, or said to be lost."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.position_rows import checksum
from laminar_delta.catalog.positions import read_positions
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.answer import History
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.errors import CorruptionError, NotFoundError, StorageError
from laminar_delta.stores import min_confirmed
from tests.sessions.support import StoreOpener, at, commits, raw
from tests.stores.support import overwrite

POSITIONS = {"kafka": at(7, b"7"), "files": at(3, b"3")}


@pytest.fixture
def store(persistent_store: ld.SourceCheckpointStore) -> ld.SourceCheckpointStore:
    with persistent_store.session() as s:
        for name, position in POSITIONS.items():
            s.stage(name, position.sequence, position.position)
        s.write_result_sequence("q", 9)
        s.write_config_hash(5)
    return persistent_store


def _take_out(catalog: ld.Catalog, pipeline: str, where: Predicate | None = None) -> None:
    own = col("pipeline").eq(pipeline)
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, own if where is None else own & where)


def _clean_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the log were cleaned up to here."""
    monkeypatch.setattr(Reading, "history", lambda *_, **__: History())


def failing(*_: object, **__: object) -> None:
    raise StorageError("cut off here")


@pytest.mark.parametrize("lost", [col("source").eq("kafka"), col("kind").eq("result"), col("kind").ne("head")])
def test_lost_rows_are_read_from_the_version_before_and_written_again(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str, lost: Predicate
) -> None:
    before = raw(catalog, pipeline)
    _take_out(catalog, pipeline, lost)
    assert len(raw(catalog, pipeline)) < len(before)
    assert store.read_all_checkpoints() == POSITIONS
    assert store.read_checkpoint("kafka") == POSITIONS["kafka"]
    assert (store.read_config_hash(), store.read_result_sequence("q")) == (5, 9)
    assert min_confirmed(catalog.reading, "kafka", [pipeline]) == (pipeline, POSITIONS["kafka"])
    # Also by the next writer, whose commit brings them back as they were.
    other = open_store()
    started = other.start(5)
    assert started.resumed
    assert started.positions == POSITIONS
    other.stage_checkpoint("files", 4, b"4")
    after = raw(catalog, pipeline)
    assert after.keys() == before.keys()
    assert after["source", "kafka"] == before["source", "kafka"]
    assert read_positions(catalog.reading, pipeline).missing == ()
    assert other.read_all_checkpoints() == {**POSITIONS, "files": at(4, b"4")}


@pytest.mark.parametrize("lost", [col("source").eq("kafka"), col("kind").ne("head"), col("source").ne("none")])
def test_lost_rows_that_no_version_has_are_an_error(
    store: ld.SourceCheckpointStore,
    open_store: StoreOpener,
    catalog: ld.Catalog,
    pipeline: str,
    lost: Predicate,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _take_out(catalog, pipeline, lost)
    _clean_log(monkeypatch)
    reads: list[Callable[[], Any]] = [
        store.read_all_checkpoints,
        store.read_config_hash,
        lambda: store.read_checkpoint("kafka"),
        lambda: min_confirmed(catalog.reading, "kafka", [pipeline]),
        lambda: open_store().start(5),
        lambda: open_store().stage_checkpoint("new", 1),
    ]
    for read in reads:
        with pytest.raises(CorruptionError, match="has lost"):
            read()


def test_all_rows_lost_are_no_fresh_start_for_readers_either(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    _take_out(catalog, pipeline)
    for read in (store.read_all_checkpoints, store.read_config_hash, lambda: store.read_checkpoint("kafka")):
        with pytest.raises(CorruptionError, match="has lost its rows"):
            read()


def test_a_row_put_there_by_hand_is_noticed(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    """Under another name it is one too many, and one that is missing."""
    row = {**raw(catalog, pipeline)["source", "kafka"], "source": "other"}
    change = {"source": "other", "checksum": checksum(row)}
    overwrite(catalog, SOURCE_CHECKPOINTS, col("pipeline").eq(pipeline) & col("source").eq("kafka"), change)
    with pytest.raises(CorruptionError, match="has lost rows"):
        store.read_all_checkpoints()


def test_a_row_put_back_to_an_older_value_is_noticed(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    """Its checksum fits, it is in an earlier version, and so are all others."""
    older = raw(catalog, pipeline)["source", "kafka"]
    store.stage_checkpoint("kafka", 100, b"100")
    version = commits(catalog)
    overwrite(catalog, SOURCE_CHECKPOINTS, col("pipeline").eq(pipeline) & col("source").eq("kafka"), older)
    _assert_noticed(store, catalog, pipeline)
    catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
    assert store.read_checkpoint("kafka") == at(100, b"100")


@pytest.mark.parametrize("older", [True, False])
def test_a_row_that_is_there_twice_is_noticed(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str, older: bool
) -> None:
    row = raw(catalog, pipeline)["source", "kafka"]
    if older:
        store.stage_checkpoint("kafka", 100, b"100")
    version = commits(catalog)
    catalog.engine.append(SOURCE_CHECKPOINTS.name, pa.Table.from_pylist([row], schema=SOURCE_CHECKPOINTS.schema))
    _assert_noticed(store, catalog, pipeline)
    catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
    assert store.read_checkpoint("kafka") == (at(100, b"100") if older else POSITIONS["kafka"])


def _assert_noticed(store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str) -> None:
    """By every read, and nothing is committed over it."""
    version = commits(catalog)
    reads: list[Callable[[], Any]] = [
        store.read_all_checkpoints,
        lambda: store.read_checkpoint("kafka"),
        lambda: store.read_checkpoint("files"),
        lambda: min_confirmed(catalog.reading, "kafka", [pipeline]),
        lambda: store.stage_checkpoint("new", 1),
        lambda: store.start(5),
    ]
    for read in reads:
        with pytest.raises(CorruptionError, match="somebody put others there"):
            read()
    assert commits(catalog) == version


def test_one_position_is_not_read_past_a_head_row_that_is_gone(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    _take_out(catalog, pipeline, col("kind").eq("head"))
    for name in ("kafka", "files", "unknown"):
        with pytest.raises(CorruptionError, match="0 head rows"):
            store.read_checkpoint(name)


def test_what_a_session_removes_is_no_loss(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.session() as s:
        s.clear()
        s.stage("files", 1)
    other = open_store()
    other.take_generation()
    _clean_log(monkeypatch)
    assert other.read_all_checkpoints() == {"files": at(1)}
    other.clear_checkpoints()
    assert (other.read_all_checkpoints(), other.read_config_hash()) == ({}, None)


def test_what_was_given_up_is_no_loss(
    store: ld.SourceCheckpointStore,
    open_store: StoreOpener,
    catalog: ld.Catalog,
    pipeline: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog.forget_positions(pipeline, reason="no backup has them")
    assert store.read_all_checkpoints() == {}
    _clean_log(monkeypatch)
    assert store.read_all_checkpoints() == {}
    again = open_store()
    again.stage_checkpoint("kafka", 1)
    assert again.read_all_checkpoints() == {"kafka": at(1)}
    _take_out(catalog, pipeline)
    with pytest.raises(CorruptionError, match="has lost its rows"):
        again.read_all_checkpoints()


@pytest.mark.parametrize("cleaned", [False, True])
def test_rows_that_somebody_took_out_can_be_given_up_too(
    store: ld.SourceCheckpointStore,
    open_store: StoreOpener,
    catalog: ld.Catalog,
    pipeline: str,
    cleaned: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _take_out(catalog, pipeline)
    if cleaned:
        _clean_log(monkeypatch)
    with pytest.raises(CorruptionError, match="has lost its rows") as refused:
        open_store().take_generation()
    assert "forget_positions" in str(refused.value.next_step)
    catalog.forget_positions(pipeline, reason="no backup has them")
    with pytest.raises(NotFoundError, match="has no positions"):
        catalog.forget_positions(pipeline, reason="again")
    assert store.read_all_checkpoints() == {}
    again = open_store()
    again.stage_checkpoint("kafka", 1)
    assert again.read_all_checkpoints() == {"kafka": at(1)}


def test_giving_up_goes_on_where_it_was_cut_off(
    store: ld.SourceCheckpointStore,
    open_store: StoreOpener,
    catalog: ld.Catalog,
    pipeline: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as cut:
        cut.setattr(catalog.engine, "raise_fence", failing)
        with pytest.raises(StorageError, match="cut off"):
            catalog.forget_positions(pipeline, reason="no backup has them")
    assert raw(catalog, pipeline) == {}
    catalog.forget_positions(pipeline, reason="no backup has them")
    _clean_log(monkeypatch)
    assert open_store().read_all_checkpoints() == {}
    open_store().stage_checkpoint("kafka", 1)


def test_a_head_row_from_before_there_was_a_sum_is_taken_as_it_is(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    head = {**raw(catalog, pipeline)["head", ""], "sequence": None}
    where = col("pipeline").eq(pipeline) & col("kind").eq("head")
    overwrite(catalog, SOURCE_CHECKPOINTS, where, {"sequence": None, "checksum": checksum(head)})
    assert store.read_all_checkpoints() == POSITIONS
    store.stage_checkpoint("files", 4, b"4")
    _take_out(catalog, pipeline, col("source").eq("kafka"))
    assert store.read_checkpoint("kafka") == POSITIONS["kafka"]
