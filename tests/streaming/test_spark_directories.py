"""A checkpoint directory comes in with its state, and another one made from a checkpoint holds the same: no Spark is needed."""

import json
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.engine.local.swapping import swap
from laminar_delta.errors import ConflictError, ErrorCode, InvalidInputError, NotFoundError, StorageError
from laminar_delta.interop.place import Place
from laminar_delta.interop.sparkdir.sourcelogs import LONGEST_SOURCE_LOG
from laminar_delta.interop.sparkdir.states import version_of
from laminar_delta.streaming import Delivery, capture_spark_checkpoint, files_read, restore_spark_checkpoint
from laminar_delta.streaming.restoring import MAY_HAVE_MORE
from tests.support.catalogs import QUICK_ENGINES, catalog_opener
from tests.support.stream_plans import SAID, Frame, Planned, TableSink

SPARK = Path(__file__).parents[1] / "data" / "spark"
LAST = 3


@pytest.fixture(params=QUICK_ENGINES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> ld.Catalog:
    return catalog_opener(request.param, tmp_path / "catalog", request)()


@pytest.fixture(params=["hdfs", "rocksdb"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shutil.copytree(SPARK / request.param, tmp_path / "query")
    return tmp_path / "query"


def sources(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "sources" / "0").iterdir())


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def needed(query: Path, batch: int) -> Iterator[str]:
    """What Spark reads to go on after a batch, by what is known of these directories."""
    version = batch + 1
    for name in files(query):
        top, _, rest = name.partition("/")
        number = rest.rpartition("/")[2].partition(".")[0]
        if any(
            (
                top in ("offsets", "commits") and int(number) in (batch - 1, batch),
                top == "sources" and int(number) <= batch,
                top == "state" and (number in ("schema", "metadata") or rest.endswith(f"/{version}.zip")),
                rest.endswith(".delta") and int(number) <= version,
            )
        ):
            yield name


@pytest.mark.parametrize("batch", [0, 1, LAST])
def test_a_directory_made_from_a_checkpoint_is_what_spark_needs(
    query: Path, catalog: ld.Catalog, tmp_path: Path, batch: int
) -> None:
    before = files(query)
    report = capture_spark_checkpoint(catalog, "q", query)
    assert (report.imported, report.skipped, report.notes) == ((1, 2, 3, 4), (), ())
    assert files(query) == before
    assert all(catalog.pipeline("q").validate(number).valid for number in report.imported)
    made = restore_spark_checkpoint(catalog, "q", batch + 1, tmp_path / "there" / "again")
    there = files(tmp_path / "there" / "again")
    tables = {name for name in there if "/SSTs/" in name}
    assert {name: there[name] for name in there.keys() - {"metadata", "laminar.json"} - tables} == {
        name: before[name] for name in needed(query, batch)
    }
    # Each zip lists its tables by name: all of them are there, and they are the same.
    assert tables == {name for name in before if "/SSTs/" in name and name in tables}
    assert all(there[name] == before[name] for name in tables)
    assert bool(tables) == (query.joinpath("state/0/0/1.zip").exists())
    assert (made.batch_id, made.files) == (batch, len(there))
    # Under its own id a sink may have more of it than was captured, and skips what is run again.
    assert made.notes == ((MAY_HAVE_MORE,) if batch == LAST else ())
    assert made.state_files == len([name for name in there if name.startswith("state/")])
    assert json.loads(there["metadata"]) == {"id": made.query_id}
    kept = json.loads(before["metadata"])["id"]
    # Going back gets a new id, going on where it was keeps it.
    assert made.is_new_query == (batch < LAST)
    assert (made.query_id == kept) == (batch == LAST)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["again"]


def test_again_brings_in_what_is_new(query: Path, catalog: ld.Catalog) -> None:
    shutil.copytree(query / "commits", query / "later")
    for number in (2, 3):
        (query / "commits" / str(number)).unlink()
    assert capture_spark_checkpoint(catalog, "q", query).imported == (1, 2)
    shutil.rmtree(query / "commits")
    (query / "later").rename(query / "commits")
    again = capture_spark_checkpoint(catalog, "q", query)
    assert (again.imported, again.already_there, again.skipped) == ((3, 4), 2, ())
    # Spark removes old state; what is kept stays.
    for path in (query / "state").rglob("1.*"):
        path.unlink()
    again = capture_spark_checkpoint(catalog, "q", query)
    assert (again.imported, again.already_there, again.skipped) == ((), 4, ())
    assert restore_spark_checkpoint(catalog, "q", 1, query.parent / "first").state_files > 2


def test_state_that_is_gone_is_told_and_not_restored_without(query: Path, catalog: ld.Catalog, tmp_path: Path) -> None:
    lost = next(iter((query / "state" / "0" / "1").glob("2.*")))
    lost.unlink()
    report = capture_spark_checkpoint(catalog, "q", query)
    assert report.imported == (1, 2, 3, 4)
    assert len(report.notes) == 1
    assert "without its state" in report.notes[0]
    with pytest.raises(NotFoundError) as caught:
        restore_spark_checkpoint(catalog, "q", 2, tmp_path / "out")
    assert caught.value.code is ErrorCode.FILE_MISSING
    assert not (tmp_path / "out").exists()
    made = restore_spark_checkpoint(catalog, "q", 2, tmp_path / "out", without_state=True)
    assert made.state_files == 0
    assert (tmp_path / "out" / "offsets" / "1").exists()


def test_only_the_newest_states_are_taken_if_so_told(query: Path, catalog: ld.Catalog, tmp_path: Path) -> None:
    capture_spark_checkpoint(catalog, "q", query, states=2)
    for number in (1, 2):
        with pytest.raises(NotFoundError):
            restore_spark_checkpoint(catalog, "q", number, tmp_path / "out")
    for number in (3, 4):
        assert restore_spark_checkpoint(catalog, "q", number, tmp_path / "out" / str(number)).state_files
    with pytest.raises(InvalidInputError):
        capture_spark_checkpoint(catalog, "q", query, states=-1)


def test_nothing_is_written_over_unless_told(query: Path, catalog: ld.Catalog, tmp_path: Path) -> None:
    capture_spark_checkpoint(catalog, "q", query)
    before = files(query)
    with pytest.raises(ConflictError, match="overwrite"):
        restore_spark_checkpoint(catalog, "q", 2, query)
    assert files(query) == before
    planned = restore_spark_checkpoint(catalog, "q", 2, query, overwrite=True, dry_run=True)
    assert planned.dry_run
    assert files(query) == before
    made = restore_spark_checkpoint(catalog, "q", 2, query, overwrite=True)
    assert made.replaced is not None
    assert files(Path(made.replaced)) == before
    assert json.loads((query / "metadata").read_text())["id"] == made.query_id
    (tmp_path / "empty").mkdir()
    assert restore_spark_checkpoint(catalog, "q", 2, tmp_path / "empty", new_query=False).is_new_query is False


class KilledError(BaseException):
    """Ends a restore where it is."""


@pytest.mark.parametrize("killed_at", [1, 2])
def test_a_restore_that_is_killed_never_leaves_the_query_without_a_directory(
    query: Path, catalog: ld.Catalog, killed_at: int
) -> None:
    """Spark would begin at batch 0 under an id of its own."""
    really, renamed = Path.rename, list[Path]()

    def rename(path: Path, target: Path) -> Path:
        if target.parent == query.parent:
            renamed.append(path)
            if len(renamed) == killed_at:
                raise KilledError
        return really(path, target)

    capture_spark_checkpoint(catalog, "q", query)
    with patch.object(Path, "rename", rename), suppress(KilledError):
        restore_spark_checkpoint(catalog, "q", 2, query, overwrite=True)
    assert renamed
    assert sorted(path.name for path in (query / "offsets").iterdir()) == ["0", "1"]


def test_where_directories_cannot_change_places_one_is_moved_aside(
    query: Path, catalog: ld.Catalog, tmp_path: Path
) -> None:
    capture_spark_checkpoint(catalog, "q", query)
    before = files(query)
    with patch("ctypes.CDLL", side_effect=OSError("there is none")):
        made = restore_spark_checkpoint(catalog, "q", 2, query, overwrite=True)
    assert files(Path(made.replaced or "")) == before
    assert json.loads((query / "metadata").read_text())["id"] == made.query_id
    with pytest.raises(FileNotFoundError):
        swap(tmp_path / "one", tmp_path / "other")


def test_a_directory_that_was_made_brings_in_only_what_it_added(
    query: Path, catalog: ld.Catalog, tmp_path: Path
) -> None:
    capture_spark_checkpoint(catalog, "q", query)
    made = restore_spark_checkpoint(catalog, "q", 2, tmp_path / "again")
    assert capture_spark_checkpoint(catalog, "q", tmp_path / "again").imported == ()
    for top in ("offsets", "commits", "sources/0"):
        shutil.copy(query / top / "2", tmp_path / "again" / top / "2")
    for path in (query / "state").rglob("*"):
        there = tmp_path / "again" / path.relative_to(query)
        if path.is_file() and not there.exists():
            there.parent.mkdir(exist_ok=True, parents=True)
            shutil.copy(path, there)
    report = capture_spark_checkpoint(catalog, "q", tmp_path / "again")
    assert report.imported == (5,)
    rows = catalog.engine.read("manifests").to_pylist()
    assert {row["checkpoint_id"]: row["external_id"] for row in rows}[5] == f"{made.query_id}/2"
    assert catalog.pipeline("q").get(5).epoch == 3
    # What came before is with the query before, all the way back.
    restore_spark_checkpoint(catalog, "q", 5, tmp_path / "third")
    assert files(tmp_path / "third").items() >= {name: files(query)[name] for name in needed(query, 2)}.items()


def test_a_derived_checkpoint_is_restored_like_the_one_it_comes_from(
    query: Path, catalog: ld.Catalog, tmp_path: Path
) -> None:
    capture_spark_checkpoint(catalog, "q", query)
    first = restore_spark_checkpoint(catalog, "q", 2, tmp_path / "first")
    with catalog.writer("q") as writer:
        derived = writer.rewind(2, reason="again")
    second = restore_spark_checkpoint(catalog, "q", derived.checkpoint_id, tmp_path / "second")
    assert (second.batch_id, second.is_new_query) == (first.batch_id, True)
    same = files(tmp_path / "first").keys() - {"metadata", "laminar.json"}
    assert {name: files(tmp_path / "first")[name] for name in same} == {
        name: files(tmp_path / "second")[name] for name in same
    }


def test_a_checkpoint_that_no_query_made_is_none_to_restore(catalog: ld.Catalog, tmp_path: Path) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    with pytest.raises(NotFoundError, match="starting_options"):
        restore_spark_checkpoint(catalog, "orders", cp.id, tmp_path / "out")
    with pytest.raises(NotFoundError):
        capture_spark_checkpoint(catalog, "orders", tmp_path / "nothing")


def test_batches_of_foreach_batch_are_restored_and_their_state_is_lent(
    query: Path, catalog: ld.Catalog, tmp_path: Path
) -> None:
    # As `foreach_batch` saves them: before Spark commits the batch, so without commit and state.
    query_id = json.loads((query / "metadata").read_text())["id"]
    with catalog.writer("orders") as writer:
        for batch in range(4):
            with writer.checkpoint(epoch=batch + 1) as cp:
                # One of them is too large to travel in the manifest row.
                told = {"query_id": query_id, "lineage": 0, "batch_id": batch, "more": "x" * 20_000 * (batch % 2)}
                logs = {f"sources/0/{batch}": (query / "sources/0" / str(batch)).read_text()}
                offsets = (query / "offsets" / str(batch)).read_text()
                cp.state("__spark__", json.dumps({**told, "offsets": offsets, **logs}).encode())
    alone = restore_spark_checkpoint(catalog, "orders", 2, tmp_path / "alone")
    assert (alone.batch_id, alone.is_new_query, alone.state_files) == (1, True, 0)
    assert "captured_in" in alone.notes[0]
    # The watermark that the commit would tell is the one the next batch was planned with.
    assert (tmp_path / "alone/commits/1").read_text() == (query / "commits/1").read_text()
    assert (tmp_path / "alone/offsets/0").read_text() == (query / "offsets/0").read_text()
    assert {path.name for path in (tmp_path / "alone/sources/0").iterdir()} == {"0", "1"}
    with pytest.raises(NotFoundError, match="Capture the query's directory"):
        restore_spark_checkpoint(catalog, "orders", 2, tmp_path / "lent", captured_in="orders.spark")
    capture_spark_checkpoint(catalog, "orders.spark", query)
    with catalog.writer("orders") as writer:
        derived = writer.rewind(2, reason="again")
    lent = restore_spark_checkpoint(
        catalog, "orders", derived.checkpoint_id, tmp_path / "lent", captured_in="orders.spark"
    )
    assert (lent.batch_id, lent.is_new_query, lent.notes) == (1, True, ())
    assert lent.state_files > 0
    newest = restore_spark_checkpoint(catalog, "orders", 4, tmp_path / "newest")
    assert (newest.is_new_query, newest.query_id) == (False, query_id)
    assert any("watermark after batch 3 is not kept" in note for note in newest.notes)
    assert MAY_HAVE_MORE not in newest.notes  # each batch that its sinks may have is a checkpoint


def test_a_batch_over_thousands_of_files_is_captured_and_restored(catalog: ld.Catalog, tmp_path: Path) -> None:
    planned = Planned(tmp_path / "query")
    for batch in range(3):
        paths = [f"file:///landing/events-{number}.json" for number in range(20_000)] if batch == 0 else []
        planned.plan(batch, *paths)
        (planned.home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    assert (planned.home / "sources/0/0").stat().st_size > LONGEST_SOURCE_LOG
    # Its own state or not: without that entry no later batch could be restored.
    report = capture_spark_checkpoint(catalog, "q", planned.home, states=1)
    assert (report.imported, report.skipped) == ((1, 2, 3), ())
    restore_spark_checkpoint(catalog, "q", 3, tmp_path / "again")
    for name in ("0", "1", "2"):
        there = (tmp_path / "again/sources/0" / name).read_bytes()
        assert there == (planned.home / "sources/0" / name).read_bytes()
    assert len(files_read(catalog, "q", "source-0")) == 20_002


def test_the_first_batches_that_a_long_running_query_still_has_are_restored(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    planned = Planned(tmp_path / "query")
    for batch in range(30):
        planned.plan(batch)
        (planned.home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for batch in range(15):  # as Spark clears away, and the file source down to an entry that holds all before it
        (planned.home / "offsets" / str(batch)).unlink()
        (planned.home / "commits" / str(batch)).unlink()
    for batch in range(9):
        (planned.home / "sources/0" / str(batch)).unlink()
    report = capture_spark_checkpoint(catalog, "q", planned.home)
    assert (report.imported[0], report.skipped, report.notes) == (16, (), ())
    for batch in (15, 16, 18, 19, 29):
        restore_spark_checkpoint(catalog, "q", batch + 1, tmp_path / str(batch))
        there = sources(tmp_path / str(batch))
        assert there == sorted(
            [
                *(["9.compact", *map(str, range(10, batch + 1))] if batch < 19 else []),
                *(["19.compact"] if batch == 19 else []),
                *(["29.compact"] if batch == 29 else []),
            ]
        )
        for name in there:
            assert (tmp_path / str(batch) / "sources/0" / name).read_bytes() == (
                planned.home / "sources/0" / name
            ).read_bytes()
    # Once more, when Spark has cleared away more of it: nothing changes, and nothing is missed.
    for batch in range(15, 18):
        (planned.home / "offsets" / str(batch)).unlink()
        (planned.home / "commits" / str(batch)).unlink()
    again = capture_spark_checkpoint(catalog, "q", planned.home)
    assert (again.imported, again.already_there, again.skipped, again.notes) == ((), 12, (), ())


def test_what_the_first_batch_lacks_of_its_source_is_told(catalog: ld.Catalog, tmp_path: Path) -> None:
    planned = Planned(tmp_path / "query")
    for batch in range(20):
        planned.plan(batch)
        (planned.home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    for batch in range(15):
        (planned.home / "offsets" / str(batch)).unlink()
    (planned.home / "sources/0/13").unlink()
    report = capture_spark_checkpoint(catalog, "q", planned.home)
    assert (report.imported[0], report.skipped, len(report.notes)) == (16, (), 1)
    assert "entry 13 of what source 0 noted is not there" in report.notes[0]
    with pytest.raises(NotFoundError, match="entry 13"):
        restore_spark_checkpoint(catalog, "q", 16, tmp_path / "out")
    restore_spark_checkpoint(catalog, "q", 20, tmp_path / "out")


def test_a_query_that_ran_without_a_catalog_is_restored_from_its_first_batch_with_one(
    catalog: ld.Catalog, tmp_path: Path
) -> None:
    query, sink = Planned(tmp_path / "query"), TableSink("out")
    for batch in range(14):
        query.plan(batch)
    first = query.run(catalog, 14, Frame(14), lambda frame, batch: frame, [sink])
    again = query.run(catalog, 14, Frame(14), lambda frame, batch: frame, [sink])
    assert again.delivery is Delivery.REPLAYED_DELIVERED
    second = query.run(catalog, 15, Frame(15), lambda frame, batch: frame, [sink])
    for number, batch in ((first.checkpoint_id, 14), (second.checkpoint_id, 15)):
        restore_spark_checkpoint(catalog, "orders", number, tmp_path / str(batch))
        assert sources(tmp_path / str(batch)) == sorted(["9.compact", *map(str, range(10, batch + 1))])


def ticking(home: Path, *, begin: int, end: int) -> Planned:
    """The directory of a query over Spark's rate source, which notes when it began."""
    planned = Planned(home, offset=str)
    (home / "sources/0/0").write_text("v1\n1700000000000")
    for batch in range(begin, end):
        (home / "offsets" / str(batch)).write_text(f"v1\n{SAID}\n{batch}")
        (home / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return planned


@pytest.mark.parametrize("begin", [0, 3], ids=["from its first batch", "from where Spark still has it"])
def test_where_a_source_began_is_restored(catalog: ld.Catalog, tmp_path: Path, begin: int) -> None:
    planned = ticking(tmp_path / "query", begin=begin, end=6)
    report = capture_spark_checkpoint(catalog, "q", planned.home)
    assert (len(report.imported), report.skipped, report.notes) == (6 - begin, (), ())
    for batch in range(begin, 6):
        made = restore_spark_checkpoint(catalog, "q", batch + 1, tmp_path / str(batch))
        assert files(tmp_path / str(batch))["sources/0/0"] == b"v1\n1700000000000"
        assert not any("noted" in note for note in made.notes)
    # Also where a restored directory was gone on from.
    made = restore_spark_checkpoint(catalog, "q", 5, tmp_path / "again")
    assert made.is_new_query
    for log in ("offsets", "commits"):
        shutil.copy(planned.home / log / "5", tmp_path / "again" / log / "5")
    (number,) = capture_spark_checkpoint(catalog, "q", tmp_path / "again").imported
    restore_spark_checkpoint(catalog, "q", number, tmp_path / "third")
    assert sources(tmp_path / "third") == ["0"]


def test_what_of_a_sources_notes_is_not_kept_is_told(catalog: ld.Catalog, tmp_path: Path) -> None:
    planned = ticking(tmp_path / "query", begin=2, end=4)
    (planned.home / "sources/0/0").rename(planned.home / "sources/0/begun")
    report = capture_spark_checkpoint(catalog, "q", planned.home)
    assert report.notes == ("what source 0 noted is not captured: sources/0/begun",)
    made = restore_spark_checkpoint(catalog, "q", 4, tmp_path / "out")
    assert any("what source 0 noted when it began is not kept" in note for note in made.notes)


@pytest.mark.parametrize("begin", [0, 3])
def test_where_a_source_of_foreach_batch_began_is_restored(catalog: ld.Catalog, tmp_path: Path, begin: int) -> None:
    planned = ticking(tmp_path / "query", begin=0, end=6)
    for batch in range(begin, 6):
        deliver = planned.deliver(catalog, lambda frame, batch: None)
        deliver(Frame(batch), batch)  # type: ignore[arg-type]  # stands in for Spark's
    made = restore_spark_checkpoint(catalog, "orders", 6 - begin, tmp_path / "out")
    assert (made.batch_id, sources(tmp_path / "out")) == (5, ["0"])


def test_a_fork_is_restored_under_an_id_of_its_own(query: Path, catalog: ld.Catalog, tmp_path: Path) -> None:
    """The query it comes from goes on: a sink that both write to would take the one's batches for the other's."""
    capture_spark_checkpoint(catalog, "q", query)
    with catalog.writer("beside") as writer:
        forked = writer.fork("q", LAST + 1, reason="try something").checkpoint_id
        derived = writer.rewind(forked, reason="once more").checkpoint_id
    for number in (forked, derived):
        made = restore_spark_checkpoint(catalog, "beside", number, tmp_path / str(number))
        assert (made.batch_id, made.is_new_query) == (LAST, True)
        lent = restore_spark_checkpoint(catalog, "beside", number, tmp_path / "lent", captured_in="q", dry_run=True)
        assert lent.is_new_query
    same = restore_spark_checkpoint(catalog, "beside", forked, tmp_path / "same", new_query=False)
    assert same.query_id == json.loads((query / "metadata").read_text())["id"]
    assert not restore_spark_checkpoint(catalog, "q", LAST + 1, tmp_path / "own", dry_run=True).is_new_query


def test_a_captured_query_that_is_taken_back_goes_on_with_foreach_batch(
    query: Path, catalog: ld.Catalog, tmp_path: Path
) -> None:
    capture_spark_checkpoint(catalog, "orders", query)
    with catalog.writer("orders") as writer:
        derived = writer.rewind(2, reason="the third was wrong")
    made = restore_spark_checkpoint(catalog, "orders", derived.checkpoint_id, tmp_path / "again")
    assert (made.batch_id, made.is_new_query) == (1, True)
    again = Planned(tmp_path / "again", made.query_id)
    sink = TableSink("out")
    result = again.run(catalog, 2, Frame(3), lambda frame, batch: frame, [sink])
    assert (result.delivery, result.lineage) == (Delivery.FRESH, derived.checkpoint_id)
    assert list(sink.batches.values()) == [(3,)]


def test_a_line_that_began_in_a_restored_directory_is_restored_again(catalog: ld.Catalog, tmp_path: Path) -> None:
    """Without a rewind its batches have another query's id and the same lineage: where they come from has to be said."""

    def run(planned: Planned, batch: int) -> int:
        return planned.run(catalog, batch, Frame(batch), lambda frame, batch: frame, [sink]).checkpoint_id

    first, sink = Planned(tmp_path / "query"), TableSink("out")
    head = [run(first, batch) for batch in range(3)][-1]
    sink.failing = RuntimeError("the disk is full")
    with pytest.raises(StorageError, match="was not delivered"):
        run(first, 3)
    sink.failing = None
    # A try that was not delivered is no reason for an id of its own.
    assert not restore_spark_checkpoint(catalog, "orders", head, tmp_path / "same", dry_run=True).is_new_query
    made = restore_spark_checkpoint(catalog, "orders", head, tmp_path / "again", new_query=True)
    assert (made.batch_id, made.is_new_query) == (2, True)
    again = Planned(tmp_path / "again", made.query_id)
    later = [run(again, batch) for batch in (3, 4)]
    for number, batch in zip(later, (3, 4), strict=True):
        restored = restore_spark_checkpoint(catalog, "orders", number, tmp_path / str(number))
        assert (restored.batch_id, restored.notes[1:]) == (batch, ())
        assert sources(tmp_path / str(number)) == sources(tmp_path / "again")[: batch + 1]
        there = tmp_path / str(number) / "offsets" / str(batch - 1)
        assert there.read_bytes() == (tmp_path / "again" / "offsets" / str(batch - 1)).read_bytes()
    # And what was restored goes on once more, from a line that itself began so.
    made = restore_spark_checkpoint(catalog, "orders", later[0], tmp_path / "third", new_query=True)
    with catalog.writer("orders") as writer:
        writer.rewind(later[0], reason="once more")
    third = Planned(tmp_path / "third", made.query_id)
    restore_spark_checkpoint(catalog, "orders", run(third, 4), tmp_path / "fourth")
    assert sources(tmp_path / "fourth") == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("begun", [3, 9], ids=["an entry of its own", "an entry with all before"])
def test_a_batch_that_was_begun_stands_in_the_directory_as_it_was_planned(
    catalog: ld.Catalog, tmp_path: Path, begun: int
) -> None:
    """More may have come in since: planned anew it would be refused, because some sink may have it."""

    def fn(frame: Any, batch: Any) -> Any:
        return frame

    first, sink = Planned(tmp_path / "query"), TableSink("out")
    for batch in range(begun):
        first.run(catalog, batch, Frame(batch), fn, [sink])
    sink.failing = RuntimeError("the disk is full")
    with pytest.raises(StorageError, match="was not delivered"):
        first.run(catalog, begun, Frame(begun), fn, [sink])
    sink.failing = None
    apart = restore_spark_checkpoint(catalog, "orders", begun, tmp_path / "apart", new_query=True)
    assert apart.unfinished_batch_id is None
    assert not (tmp_path / "apart/offsets" / str(begun)).exists()
    made = restore_spark_checkpoint(catalog, "orders", begun, tmp_path / "again")
    assert (made.batch_id, made.unfinished_batch_id, made.is_new_query) == (begun - 1, begun, False)
    assert sources(tmp_path / "again") == sources(tmp_path / "query")
    for path in (tmp_path / "query/sources/0").iterdir():
        assert (tmp_path / "again/sources/0" / path.name).read_bytes() == path.read_bytes()
    there, here = (tmp_path / name / "offsets" / str(begun) for name in ("again", "query"))
    assert there.read_bytes() == here.read_bytes()
    assert [path.name for path in (tmp_path / "again/commits").iterdir()] == [str(begun - 1)]
    with Planned(tmp_path / "again", made.query_id).deliver(catalog, fn, [sink]) as deliver:
        deliver(Frame(begun), begun)  # type: ignore[arg-type]  # stands in for Spark's
    assert deliver.last is not None
    assert deliver.last.delivery is Delivery.REPLAYED_WRITTEN
    assert restore_spark_checkpoint(catalog, "orders", begun, tmp_path / "back").unfinished_batch_id is None


def test_a_batch_that_was_begun_is_none_of_a_line_that_goes_back(catalog: ld.Catalog, tmp_path: Path) -> None:
    first, sink = Planned(tmp_path / "query"), TableSink("out")
    first.run(catalog, 0, Frame(0), lambda frame, batch: frame, [sink])
    sink.failing = RuntimeError("the disk is full")
    with pytest.raises(StorageError, match="was not delivered"):
        first.run(catalog, 1, Frame(1), lambda frame, batch: frame, [sink])
    with catalog.writer("orders") as writer:
        derived = writer.rewind(1, reason="that batch was wrong").checkpoint_id
    made = restore_spark_checkpoint(catalog, "orders", derived, tmp_path / "again")
    assert (made.batch_id, made.unfinished_batch_id) == (0, None)
    assert not (tmp_path / "again/offsets/1").exists()


@pytest.mark.parametrize("files", [1, 200], ids=["in the row", "too long for the row"])
def test_nothing_is_captured_into_the_pipeline_of_foreach_batch(
    catalog: ld.Catalog, tmp_path: Path, files: int
) -> None:
    """What is captured has no state of the function's, and would be what the next batch goes on from."""
    planned = Planned(tmp_path / "query")

    def keep(frame: Any, batch: Any) -> None:
        batch.checkpoint.state("total", b"7")

    planned.plan(0, *(f"file:///landing/{number:0100}.json" for number in range(files)))
    with planned.deliver(catalog, keep) as deliver:
        deliver(Frame(7), 0)  # type: ignore[arg-type]  # stands in for Spark's
    (planned.home / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for dry_run in (True, False):
        with pytest.raises(ConflictError, match="is kept by `foreach_batch`") as caught:
            capture_spark_checkpoint(catalog, "orders", planned.home, dry_run=dry_run)
        assert (caught.value.found, "`orders.spark`" in (caught.value.next_step or "")) == (planned.query_id, True)
    with catalog.writer("orders") as writer:
        writer.rewind(1, reason="the same, derived")
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 2]
    assert catalog.pipeline("orders").state(2).read("total") == b"7"
    # Captures have a pipeline of their own, also when one of them was gone back to.
    assert capture_spark_checkpoint(catalog, "orders.spark", planned.home).imported == (1,)
    with catalog.writer("orders.spark") as writer:
        writer.rewind(1, reason="again")
    assert capture_spark_checkpoint(catalog, "orders.spark", planned.home).already_there == 1


def test_what_is_in_the_catalog_already_is_not_read_again(query: Path, catalog: ld.Catalog) -> None:
    really, read = Place.stream, list[str]()

    def stream(place: Place, name: str) -> Iterator[bytes]:
        read.append(name)
        return really(place, name)

    (query / "commits" / "3").rename(query / "later")
    with patch.object(Place, "stream", stream):
        assert capture_spark_checkpoint(catalog, "q", query).imported == (1, 2, 3)
        assert read
        read.clear()
        assert capture_spark_checkpoint(catalog, "q", query).already_there == 3
        assert read == []
        (query / "later").rename(query / "commits" / "3")
        assert capture_spark_checkpoint(catalog, "q", query).imported == (4,)
        assert read


def test_a_restore_looks_at_the_batches_around_and_not_at_all_there_are(catalog: ld.Catalog, tmp_path: Path) -> None:
    planned = Planned(tmp_path / "query")
    for batch in range(12):
        planned.run(catalog, batch, Frame(batch), lambda frame, batch: None)
    really, read = CheckpointState.read, set[int]()

    def reading(state: CheckpointState, operator: str, *more: Any, **named: Any) -> bytes:
        read.add(state.row["checkpoint_id"])
        return really(state, operator, *more, **named)

    with patch.object(CheckpointState, "read", reading):
        made = restore_spark_checkpoint(catalog, "orders", 11, tmp_path / "again")
    assert (made.batch_id, made.is_new_query) == (10, True)
    # Its own, the next, and those back to the entry that holds all before it.
    assert read == {10, 11, 12}


def test_a_batch_before_that_is_gone_for_good_is_written_like_its_follower(catalog: ld.Catalog, tmp_path: Path) -> None:
    offsets = f'v1\n{SAID}\n{{"orders":{{"0":7}}}}'
    with catalog.writer("orders") as writer, writer.checkpoint(epoch=6) as cp:
        told = {"query_id": "q", "lineage": 3, "batch_id": 5, "offsets": offsets}  # 3 was removed long ago
        cp.state("__spark__", json.dumps(told).encode())
    made = restore_spark_checkpoint(catalog, "orders", cp.id, tmp_path / "again")
    assert any("batch 4 is not kept" in note for note in made.notes)
    assert (tmp_path / "again/offsets/4").read_text() == offsets


def test_a_strange_name_among_state_files_takes_no_time() -> None:
    assert version_of("5_" + "_" * 200 + "x") == (None, None)
    assert version_of("12_a_b-c.zip") == (12, "zip")
    assert version_of("12.changelog") == (12, "changelog")
