"""Rows of `writers` and `source_checkpoints` that are gone or cannot be read: who may take over, and who is kept out."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog import generations
from laminar_delta.catalog.attempt import Attempt
from laminar_delta.catalog.positions import read_positions
from laminar_delta.catalog.sessions import Session
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS, WRITERS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.damage import DataFile, data_files, overwrite
from tests.support.scenes import assert_sound, manifest
from tests.support.stepping import stopped

Opener = Callable[[], ld.Catalog]


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ready_made(request.param, tmp_path / "catalog", request)


def _hurt(file: DataFile, place: float | None) -> AbstractContextManager[None]:
    return file.missing() if place is None else file.rotten(place)


# -- writers --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["all", "newest"])
def test_orphans_are_removed_also_where_no_row_says_who_the_newest_writer_is(open_again: Opener, lost: str) -> None:
    """The fence proves it: below it nobody commits."""
    catalog = open_again()
    old = catalog.writer("orders")
    abandoned, given_up = (Attempt.new(old.held, number) for number in (1, 2))
    for attempt in (abandoned, given_up):
        old.stage(attempt, manifest(attempt.checkpoint_id))
    catalog.writer("orders")
    catalog.engine.delete(WRITERS.name, col("generation").ge(1 if lost == "all" else 2))
    orders = catalog.pipeline("orders")
    assert [orphan.checkpoint_id for orphan in orders.orphans()] == [1, 2]
    assert [orphan.checkpoint_id for orphan in orders.remove_orphans()] == [1, 2]
    assert orders.orphans() == ()


@pytest.mark.parametrize("lost", ["all", "newest", "changed"])
def test_generations_that_were_taken_out_are_not_given_out_again(open_again: Opener, lost: str) -> None:
    catalog = open_again()
    old = [catalog.writer("orders", owner=f"writer {number}") for number in range(1, 4)]
    old[-1].save(manifest(1))
    if lost == "changed":
        overwrite(catalog.engine, WRITERS, col("generation").eq(3), {"generation": 1})
    else:
        catalog.engine.delete(WRITERS.name, col("generation").ge(1 if lost == "all" else 3))
    # Who was taken over is told although no row says so any more; who was not goes on.
    with pytest.raises(FencedError):
        old[1].recover() if lost == "all" else old[1].save(manifest(8))
    old[2].recover()
    with pytest.raises(ConflictError, match="generation 3"):
        open_again().writer("orders", takeover=False)
    new = open_again().writer("orders", owner="new")
    assert new.generation == 4
    new.save(manifest(new.next_id))
    with pytest.raises(FencedError):
        old[2].save(manifest(9))
    assert_sound(open_again())


@pytest.mark.parametrize("place", [None, 0.5, 1.0], ids=["missing", "rotten", "rotten at its end"])
@pytest.mark.parametrize("compacted", [False, True], ids=["fresh", "compacted"])
def test_a_takeover_needs_no_row_of_those_before(tmp_path: Path, compacted: bool, place: float | None) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    old = [catalog.writer("orders", owner=f"writer {number}") for number in range(1, 4)]
    old[-1].save(manifest(1))
    if compacted:
        catalog.engine.optimize(WRITERS.name)
    taken = 3
    for file in data_files(catalog.engine, WRITERS.name):
        with _hurt(file, place):
            with catalog.writer("orders", owner="next") as writer:
                taken += 1
                assert writer.generation == taken
                assert writer.recover().chosen_id == writer.next_id - 1
                writer.save(manifest(writer.next_id))
            for zombie in old:
                with pytest.raises(FencedError):
                    zombie.recover()
    assert_sound(catalog)


def test_whether_a_writer_has_let_go_is_not_guessed(tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    catalog.writer("orders").close()
    file = data_files(catalog.engine, WRITERS.name)[-1]
    with file.missing(), pytest.raises(StorageError, match=Path(file.name).name):
        catalog.writer("orders", takeover=False)
    assert catalog.writer("orders", takeover=False).generation == 2


def test_two_takeovers_at_once_beside_a_damaged_file(tmp_path: Path) -> None:
    """Both go by the same bound: the merge lets one have the number."""
    first, second = (ld.open_catalog(str(tmp_path / "catalog")) for _ in range(2))
    first.writer("orders")
    (file,) = data_files(first.engine, WRITERS.name)
    with file.missing():
        with stopped(lambda: first.writer("orders"), first.engine, "_merge", table=WRITERS.name) as overtaken:
            assert second.writer("orders").generation == 2
        assert overtaken.result().generation == 3


def test_a_generation_that_was_claimed_and_never_fenced_is_not_given_out_again(tmp_path: Path) -> None:
    """Only its row tells of it, and its file cannot be read: the log tells how far the generations in it go."""
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    catalog.writer("orders")
    assert generations._claim(catalog.engine, "orders", 2, "died", None)
    file = data_files(catalog.engine, WRITERS.name)[-1]
    with file.missing():
        assert catalog.writer("orders").generation == 3


# -- positions ------------------------------------------------------------------------------------------------------------


def _at(catalog: ld.Catalog, pipeline: str) -> dict[str, int]:
    return {name: at.sequence for name, at in read_positions(catalog.reading, pipeline).sources.items()}


# Not in the middle: there are the names of those who changed rows, which nothing depends on.
@pytest.mark.parametrize("place", [None, 0.35, 1.0], ids=["missing", "rotten", "rotten at its end"])
def test_positions_that_cannot_be_read_are_given_up_by_somebodys_word_only(tmp_path: Path, place: float | None) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with Session(catalog.engine, catalog.writer("returns").held) as session:
        session.stage("kafka", 7)
    writer = catalog.writer("orders")
    writer.save(manifest(1))
    with Session(catalog.engine, writer.held) as session:
        session.stage("kafka", 5)
    late = Session(catalog.engine, writer.held)
    late.stage("kafka", 6)
    file = [file for file in data_files(catalog.engine, SOURCE_CHECKPOINTS.name) if "orders" in file.name][-1]
    with _hurt(file, place):
        assert catalog.pipeline("orders").recover(dry_run=True).chosen_id == 1
        with pytest.raises((StorageError, CorruptionError)) as refused:
            catalog.writer("orders")
        assert Path(file.name).name in str(refused.value)
        assert "forget_positions('orders'" in str(refused.value)
        with pytest.raises(InvalidInputError, match="reason"):
            catalog.forget_positions("orders", reason=" ")
        with pytest.raises(NotFoundError, match="'order' has no positions"):
            catalog.forget_positions("order", reason="mistyped")
        catalog.forget_positions("orders", reason="the disk failed, no backup", owner="ops")
        new = catalog.writer("orders")
        with pytest.raises(FencedError):
            late.commit()
        assert _at(catalog, "orders") == {}
        assert new.recover().chosen_id == 1
        new.save(manifest(2))
        with Session(catalog.engine, new.held) as session:
            session.stage("kafka", 1)
        assert _at(catalog, "orders") == {"kafka": 1}
    assert _at(catalog, "returns") == {"kafka": 7}
    (told,) = [entry for entry in catalog.audit(pipeline="orders") if entry.operation == "forget positions"]
    assert (told.owner, told.reason) == ("ops", "the disk failed, no backup")
    assert_sound(catalog)
