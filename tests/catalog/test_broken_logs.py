"""Log entries that a power loss left empty or cut off: recovery uses the newest checkpoint that whole entries tell of."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import (
    MANIFESTS,
    OPERATOR_SNAPSHOTS,
    RETENTION,
    SINK_STATUSES,
    SOURCE_OFFSETS,
    TABLES,
)
from laminar_delta.engine.local.log import entry_path, newest_entry
from laminar_delta.errors import ErrorCode, StorageError
from laminar_delta.testing.invariants import assert_goes_on
from tests.support.catalogs import ON_DISK, catalog_opener

Opener = Callable[[], ld.Catalog]

SAVED = 4
CHILDREN = (SOURCE_OFFSETS.name, OPERATOR_SNAPSHOTS.name, SINK_STATUSES.name)
"""Each save of the test adds one entry to these, and so does each decision to `retention`."""
DECIDING = (MANIFESTS.name, RETENTION.name)
"""Which checkpoints there are, and which of them stand: what an entry of theirs says cannot be done without."""
CUT = 20
HOW = {"empty": 0, "cut off": CUT}


@pytest.fixture(scope="module", params=ON_DISK)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def made(engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "catalog"
    catalog = catalog_opener(engine, place, request)()
    with catalog.writer("orders", owner="job") as writer:
        for _ in range(SAVED):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})
                cp.state("agg", _state(cp.id))
                cp.sink("warehouse")
            writer.sink_committed(cp.id, "warehouse")
            catalog.pipeline("orders").pin(cp.id, reason="audit")
    return place


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "catalog"))


@pytest.fixture
def open_again(engine: str, place: Path, request: pytest.FixtureRequest) -> Opener:
    return catalog_opener(engine, place, request)


def _state(number: int) -> bytes:
    return bytes([number]) * 40_000


def _recovered(open_again: Opener, table: str, entry: Path) -> int | None:
    """The checkpoint that is used, proved to be the one saved."""
    orders = open_again().pipeline("orders")
    report = orders.recover(dry_run=True)
    assert not report.is_fresh_start
    told = "; ".join(
        [*(skipped.reason for skipped in report.skipped), *report.notes, *(h.reason for h in report.healed)]
    )
    assert entry.name in told or table not in CHILDREN
    if report.manifest is None:
        return None
    number = report.manifest.checkpoint_id
    assert report.manifest.source_offsets["kafka"].offsets == {"0": str(number)}
    assert report.manifest.sink_commit_statuses["warehouse"].is_committed
    assert orders.state(number).read("agg") == _state(number)
    return number


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("behind", "chosen"), [(-1, SAVED), (0, SAVED - 1), (1, SAVED - 2)], ids=["one more", "the newest", "a middle one"]
)
@pytest.mark.parametrize("table", CHILDREN)
def test_a_broken_entry_of_a_child_table_costs_what_only_it_tells_of(
    place: Path, open_again: Opener, table: str, behind: int, chosen: int, how: str
) -> None:
    """What a pinned version needs is whole before it; one more is of a commit that was never acknowledged."""
    entry = _break(place / table, behind, how)
    assert _recovered(open_again, table, entry) == chosen


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("behind", [-1, 0, 1], ids=["one more", "the newest", "a middle one"])
@pytest.mark.parametrize("table", DECIDING)
def test_a_broken_entry_of_a_table_that_decides_is_named_and_nothing_is_chosen(
    place: Path, open_again: Opener, table: str, behind: int, how: str
) -> None:
    entry = _break(place / table, behind, how)
    with pytest.raises(StorageError) as caught:
        _recovered(open_again, table, entry)
    assert caught.value.code is ErrorCode.LOG_DAMAGED
    assert str(entry) in str(caught.value)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("behind", [-1, 0], ids=["one more", "the newest"])
@pytest.mark.parametrize("table", [spec.name for spec in TABLES if spec.name not in {*CHILDREN, *DECIDING}])
def test_a_broken_entry_of_any_other_table_costs_no_recovery(
    place: Path, open_again: Opener, table: str, behind: int, how: str
) -> None:
    entry = _break(place / table, behind, how)
    assert _recovered(open_again, table, entry) == SAVED


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("table", CHILDREN)
def test_nothing_is_written_upon_a_broken_entry_and_all_goes_on_without_it(
    place: Path, open_again: Opener, table: str, how: str
) -> None:
    """Who recovers goes on from what is whole; the save that would write there is refused, and says what to do."""
    catalog = open_again()
    writer = catalog.writer("orders")
    entry = _break(place / table, -1, how)
    broken = entry.read_bytes()
    assert writer.recover().chosen_id == SAVED

    def save() -> None:
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": str(cp.id)})
            cp.state("agg", _state(cp.id))
            cp.sink("warehouse")
        writer.sink_committed(cp.id, "warehouse")

    with pytest.raises(StorageError, match="move the file away") as caught:
        save()
    assert caught.value.code is ErrorCode.LOG_DAMAGED
    assert str(entry) in str(caught.value)
    assert entry.read_bytes() == broken
    assert not entry_path(place / table, SAVED + 2).exists()
    entry.unlink()
    save()
    assert_goes_on(catalog, "orders")


def _break(table: Path, behind: int, how: str) -> Path:
    newest = newest_entry(table)
    assert newest is not None
    entry = entry_path(table, newest - behind)
    whole = entry_path(table, min(newest, newest - behind)).read_bytes()
    entry.write_bytes(whole[: HOW[how]])
    return entry
