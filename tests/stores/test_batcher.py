"""The batcher: what LaminarDB's does, byte for byte where bytes are defined, and what it loses is kept."""

import base64
import datetime as dt
import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.batches import StateBatches
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import STATE_BATCHES
from laminar_delta.codec import decode_batch
from laminar_delta.engine.predicate import col
from laminar_delta.errors import (
    CommitUnknownError,
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from laminar_delta.stores import BatchTarget, CatalogTarget, CheckpointBatcher
from laminar_delta.stores import batcher as batcher_module
from tests.support.faults import INTERRUPTS, failing_appends, interrupted_appends, unanswered_appends, unheard_appends

GOLDEN = Path(__file__).parents[1] / "data" / "golden" / "lcb1"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text())
FLUSHED = [name for name, case in EXPECTED.items() if isinstance(case, dict) and case.get("file")]


class Kept:
    """A target that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []

    def write(self, epoch: int, payload: bytes, attempt_id: str) -> object:
        self.batches.append((epoch, payload))
        return attempt_id


@pytest.mark.parametrize("name", FLUSHED)
def test_a_flush_is_what_laminardb_flushes(name: str, tmp_path: Path) -> None:
    case = EXPECTED[name]
    theirs = (GOLDEN / case["file"]).read_bytes()
    entries = decode_batch(theirs)
    batcher = CheckpointBatcher(interop.BatchFiles(tmp_path))
    for key, data in entries:
        batcher.add(key, data)
    assert (batcher.buffer_size(), len(batcher)) == (case["before"]["buffer_size"], case["before"]["len"])
    assert batcher.should_flush() == case["before"]["should_flush"]
    batcher.flush(case["epoch"])
    assert (batcher.buffer_size(), batcher.is_empty()) == (0, True)
    ours = (tmp_path / "checkpoints" / f"batch-{case['epoch']:06}.lz4").read_bytes()
    assert decode_batch(ours) == entries
    assert ours[:16] == theirs[:16]
    counted = batcher.metrics().snapshot()
    stated = dict(case["metrics"])
    # How well LZ4 compresses is the encoder's business; where it has no choice the bytes are the same.
    after = stated.pop("bytes_after_compression")
    assert {name: getattr(counted, name) for name in stated} == stated
    assert counted.bytes_after_compression == len(ours)
    if stated["bytes_before_compression"] < 13:
        assert ours == theirs
        assert after == len(ours)


def test_the_one_file_whose_bytes_are_defined_is_among_them() -> None:
    assert [n for n in FLUSHED if EXPECTED[n]["metrics"]["bytes_before_compression"] < 13] == ["one_small"]


def test_the_buffer_and_its_threshold() -> None:
    batcher = CheckpointBatcher(Kept(), flush_threshold=20)
    assert not batcher.should_flush()
    batcher.add("kü", b"123")
    assert batcher.buffer_size() == 3 + 3 + 8
    assert not batcher.should_flush()
    batcher.add("", b"")
    batcher.add("", memoryview(b"").tobytes())
    assert batcher.buffer_size() == 30
    assert batcher.should_flush()
    assert CheckpointBatcher(Kept(), flush_threshold=0).should_flush()
    assert CheckpointBatcher(Kept())._threshold == 8 * 1024 * 1024
    with pytest.raises(InvalidInputError):
        CheckpointBatcher(Kept(), flush_threshold=-1)
    with pytest.raises(InvalidInputError, match="no valid Unicode"):
        batcher.add("\ud800", b"")
    with pytest.raises(InvalidInputError):
        batcher.flush(-1)
    assert len(batcher) == 3


def test_an_empty_flush_does_nothing() -> None:
    target = Kept()
    batcher = CheckpointBatcher(target)
    batcher.flush(1)
    assert target.batches == []
    assert batcher.metrics().put_count == 0


def test_metrics_go_on_counting_and_a_snapshot_does_not() -> None:
    batcher = CheckpointBatcher(Kept())
    live = batcher.metrics()
    batcher.add("k", b"v")
    batcher.flush(1)
    then = live.snapshot()
    batcher.add("k", b"v")
    batcher.flush(2)
    assert (then.batches_flushed, live.batches_flushed, live.entries_flushed) == (1, 2, 2)


def test_more_than_a_batch_can_hold_becomes_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batcher_module, "MAX_BATCH_BYTES", 2_000)
    target = Kept()
    batcher = CheckpointBatcher(target)
    for number in range(5):
        batcher.add(f"k{number}", bytes(700))
    with pytest.raises(InvalidInputError, match="more than a batch can hold"):
        batcher.add("huge", bytes(2_000))
    batcher.flush(1)
    assert [len(decode_batch(payload)) for _, payload in target.batches] == [2, 2, 1]
    assert batcher.buffer_size() == 0


# -- targets ----------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["catalog", "files", "other filesystem"])
def target_and_reader(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[BatchTarget, Any]:
    if request.param == "catalog":
        catalog = ld.open_catalog("memory", engine="memory", store={})
        return CatalogTarget(catalog, "p"), StateBatches(catalog.pipeline("p"))
    if request.param == "files":
        return interop.BatchFiles(tmp_path), interop.BatchFiles(tmp_path)
    memory = fs._MockFileSystem()
    return (
        interop.BatchFiles("bucket", filesystem=memory, prefix="n/"),
        interop.BatchFiles("bucket", filesystem=memory, prefix="n/"),
    )


def test_q18_a_second_flush_of_an_epoch_is_beside_the_first(target_and_reader: tuple[BatchTarget, Any]) -> None:
    target, reader = target_and_reader
    batcher = CheckpointBatcher(target)
    for number in range(4):
        batcher.add("same", f"{number}".encode())
        batcher.add(f"own-{number}", b"x" * number)
        batcher.flush(7)
    batcher.add("other", b"epoch")
    batcher.flush(8)
    assert [key for key, _ in reader.entries(7)] == [k for n in range(4) for k in ("same", f"own-{n}")]
    assert reader.read(7, "own-0") == b""
    assert reader.read(7, "own-3") == b"xxx"
    assert reader.read(7, "same") == b"3"
    assert reader.read(8, "other") == b"epoch"
    for epoch, key in ((7, "other"), (9, "same")):
        with pytest.raises(NotFoundError):
            reader.read(epoch, key)


def test_the_same_attempt_again_is_written_once(target_and_reader: tuple[BatchTarget, Any]) -> None:
    target, reader = target_and_reader
    batcher = CheckpointBatcher(Kept())
    batcher.add("k", b"v")
    payload = base64.b16decode(b"4C43423102000000010000000A0000003E1818890A000000A0010000006B0100000076")
    for _ in range(2):
        target.write(7, payload, "attempt")
    assert [tuple(entry) for entry in reader.entries(7)] == [("k", b"v")]


def test_many_who_flush_one_epoch_at_once_lose_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "catalog")
    ld.open_catalog(place)
    problems: list[Exception] = []

    def flush(name: str, target: BatchTarget) -> None:
        try:
            batcher = CheckpointBatcher(target)
            for number in range(4):
                batcher.add(f"{name}-{number}", b"x")
                batcher.flush(1)
        except Exception as error:  # noqa: BLE001 - shown below
            problems.append(error)

    threads = [
        threading.Thread(target=flush, args=(f"{kind}{n}", target))
        for n in range(3)
        for kind, target in (
            ("table", CatalogTarget(ld.open_catalog(place), "p")),
            ("file", interop.BatchFiles(tmp_path / "files")),
        )
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    expected = {f"{n}-{i}" for n in range(3) for i in range(4)}
    batches = StateBatches(ld.open_catalog(place).pipeline("p"))
    assert {key.removeprefix("table") for key, _ in batches.entries(1)} == expected
    assert [head.ordinal for head in batches.heads()] == list(range(1, 13))
    assert {key.removeprefix("file") for key, _ in interop.BatchFiles(tmp_path / "files").entries(1)} == expected
    assert not list((tmp_path / "files").rglob("*.tmp"))


# -- in a catalog -----------------------------------------------------------------------------------------------------


@pytest.fixture
def catalog(tmp_path: Path) -> ld.Catalog:
    return ld.open_catalog(str(tmp_path / "catalog"))


def _flush(catalog: ld.Catalog, epoch: int, **blobs: bytes) -> None:
    batcher = CheckpointBatcher(CatalogTarget(catalog, "p"))
    for key, data in blobs.items():
        batcher.add(key, data)
    batcher.flush(epoch)


def test_a_flush_that_failed_leaves_everything_in_the_buffer(catalog: ld.Catalog) -> None:
    batcher = CheckpointBatcher(CatalogTarget(catalog, "p"))
    batcher.add("k", b"v")
    with failing_appends(catalog.engine, STATE_BATCHES.name), pytest.raises(StorageError):
        batcher.flush(1)
    assert (len(batcher), batcher.buffer_size(), batcher.metrics().put_count) == (1, 10, 0)
    batcher.add("l", b"w")
    batcher.flush(1)
    assert [tuple(e) for e in StateBatches(catalog.pipeline("p")).entries(1)] == [("k", b"v"), ("l", b"w")]
    assert batcher.metrics().put_count == 1


@pytest.mark.parametrize("error", INTERRUPTS)
def test_a_flush_that_was_interrupted_once_it_was_committed_is_written_once(
    catalog: ld.Catalog, error: type[BaseException]
) -> None:
    batcher = CheckpointBatcher(CatalogTarget(catalog, "p"))
    batcher.add("k", b"v")
    with interrupted_appends(catalog.engine, STATE_BATCHES.name, error), pytest.raises(error):
        batcher.flush(1)
    batcher.flush(1)
    assert [(head.epoch, head.ordinal) for head in StateBatches(catalog.pipeline("p")).heads()] == [(1, 1)]
    assert batcher.is_empty()


@pytest.mark.parametrize("fault", [unheard_appends, unanswered_appends])
def test_a_flush_nobody_heard_of_is_written_once(fault: Any, catalog: ld.Catalog) -> None:
    batcher = CheckpointBatcher(CatalogTarget(catalog, "p"))
    batcher.add("k", b"v")
    with fault(catalog.engine, STATE_BATCHES.name) as late, pytest.raises(CommitUnknownError):
        batcher.flush(1)
    assert batcher.buffer_size() == 10
    if late:
        late[0]()
    batcher.add("l", b"w")
    batcher.flush(2)
    batches = StateBatches(catalog.pipeline("p"))
    assert [tuple(entry) for entry in batches.entries(1)] == [("k", b"v")]
    assert [tuple(entry) for entry in batches.entries(2)] == [("l", b"w")]
    assert batcher.metrics().snapshot().entries_flushed == 2


def test_batches_go_with_their_epoch_and_come_back_with_it(catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        for epoch in (1, 2, 3):
            _flush(catalog, epoch, k=str(epoch).encode())
            with writer.checkpoint(epoch=epoch):
                pass
    _flush(catalog, 4, k=b"not saved yet")
    pipeline = catalog.pipeline("p")
    batches = StateBatches(pipeline)
    assert [head.epoch for head in batches.heads()] == [1, 2, 3, 4]
    assert pipeline.prune(RetentionPolicy(keep_last=1)).retire == (1, 2)
    assert [head.epoch for head in batches.heads()] == [3, 4]
    with pytest.raises(NotFoundError, match=r"epoch 1 .* is retired"):
        batches.read(1, "k")
    pipeline.restore(2)
    assert batches.read(2, "k") == b"2"
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0)))
    assert sorted(row["epoch"] for row in catalog.engine.read(STATE_BATCHES.name).to_pylist()) == [2, 3, 4]
    assert batches.read(4, "k") == b"not saved yet"


def test_files_of_batches_go_when_their_checkpoints_are_gone_for_good(catalog: ld.Catalog, tmp_path: Path) -> None:
    files = interop.BatchFiles(tmp_path / "files")
    pipeline = catalog.pipeline("p")
    batcher = CheckpointBatcher(files)

    def flush(epoch: int) -> None:
        for number in (1, 2):
            batcher.add("k", b"%d" % (10 * epoch + number))
            batcher.flush(epoch)

    flush(1)
    assert files.prune(pipeline) == []
    with catalog.writer("p") as writer:
        for epoch in (1, 2, 4):
            flush(epoch)
            with writer.checkpoint(epoch=epoch):
                pass
    flush(3)  # of an attempt that came to nothing
    flush(5)  # of one on its way
    pipeline.prune(RetentionPolicy(keep_last=1))
    assert files.prune(pipeline) == [3]
    pipeline.restore(2)
    assert files.read(2, "k") == b"22"
    # A row that somebody deleted can be healed, and then its batches are needed.
    catalog.engine.delete("manifests", col("checkpoint_id").eq(2))
    assert files.prune(pipeline) == []
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0)))
    assert files.prune(pipeline) == [1]
    assert files.epochs() == [2, 4, 5]
    assert len(list((tmp_path / "files" / "checkpoints").iterdir())) == 6


def test_an_epoch_with_two_checkpoints_stays_until_both_are_gone(catalog: ld.Catalog) -> None:
    with catalog.writer("p") as writer:
        _flush(catalog, 1, k=b"v")
        for epoch in (1, 1, 2):
            with writer.checkpoint(epoch=epoch):
                pass
    pipeline = catalog.pipeline("p")
    pipeline.prune(RetentionPolicy(keep_last=2))
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0)))
    assert StateBatches(pipeline).read(1, "k") == b"v"
    pipeline.prune(RetentionPolicy(keep_last=1))
    catalog.maintain(MaintenancePolicy(grace=dt.timedelta(0)))
    assert catalog.engine.read(STATE_BATCHES.name).num_rows == 0


def test_a_batch_that_is_not_what_was_written_is_named(catalog: ld.Catalog) -> None:
    _flush(catalog, 1, k=b"v", l=b"w")
    row = catalog.engine.read(STATE_BATCHES.name).to_pylist()[0]
    rotten = bytearray(row["payload"])
    rotten[-1] ^= 1
    for epoch, changed in ((2, {"payload": bytes(rotten)}), (3, {"entries": 1})):
        rows = pa.Table.from_pylist([{**row, "epoch": epoch, **changed}], schema=STATE_BATCHES.schema)
        catalog.engine.append(STATE_BATCHES.name, rows)
    batches = StateBatches(catalog.pipeline("p"))
    with pytest.raises(CorruptionError, match="CRC32C"):
        batches.read(2, "k")
    with pytest.raises(CorruptionError, match="2 entries, 1 were written"):
        batches.entries(3)
    assert batches.read(1, "l") == b"w"


def test_an_epoch_no_bigint_holds_is_refused_and_kept(catalog: ld.Catalog, tmp_path: Path) -> None:
    batcher = CheckpointBatcher(CatalogTarget(catalog, "p"))
    batcher.add("k", b"v")
    with pytest.raises(InvalidInputError):
        batcher.flush(2**63)
    assert len(batcher) == 1
    files = CheckpointBatcher(interop.BatchFiles(tmp_path / "files"))
    files.add("k", b"v")
    files.flush(2**64 - 1)
    assert interop.BatchFiles(tmp_path / "files").epochs() == [2**64 - 1]


def test_batches_beside_checkpoints_come_in_with_them(catalog: ld.Catalog, tmp_path: Path) -> None:
    batcher = CheckpointBatcher(interop.BatchFiles(tmp_path / "tree"))
    for number in (1, 2):
        batcher.add("k", str(number).encode())
        batcher.flush(1)
    (tmp_path / "tree" / "checkpoints" / "checkpoint_000001").mkdir()
    manifest = ld.CheckpointManifest.new(1, 1).to_json()
    (tmp_path / "tree" / "checkpoints" / "checkpoint_000001" / "manifest.json").write_bytes(manifest)
    report = interop.import_checkpoints(tmp_path / "tree", catalog, "p")
    assert (report.imported, report.batches) == ((1,), 2)
    assert [data for _, data in StateBatches(catalog.pipeline("p")).entries(1)] == [b"1", b"2"]
    assert interop.import_checkpoints(tmp_path / "tree", catalog, "p").batches == 0
