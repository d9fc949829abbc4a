"""Through a real S3 server: trees in and out, batches, and a catalog that lives there."""

import json
import random
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.cli.main import main
from laminar_delta.errors import ConflictError, FencedError
from laminar_delta.stores import CheckpointBatcher
from tests.interop.support import GOLDEN, expected, fingerprint, manifest, memory_catalog
from tests.support.s3 import S3Server, s3_server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as found:
        found.filesystem().create_dir("bucket")
        yield found


@pytest.fixture(scope="module")
def catalog(server: S3Server) -> ld.Catalog:
    return _open(server, "s3://bucket/catalog")


def _open(server: S3Server, location: str) -> ld.Catalog:
    return ld.open_catalog(location, storage_options=server.storage_options)


def _files(server: S3Server, path: str) -> dict[str, bytes]:
    filesystem = server.filesystem()
    found = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    return {
        info.path.removeprefix(f"{path}/"): filesystem.open_input_file(info.path).read()
        for info in found
        if info.type == fs.FileType.File
    }


def _all_of(catalog: ld.Catalog, pipeline: str) -> list[Any]:
    """Everything a pipeline holds."""
    found = catalog.pipeline(pipeline)
    return [
        (found.get(head.checkpoint_id), found.state(head.checkpoint_id).to_arrow().to_pylist()) for head in found.list()
    ]


@pytest.mark.parametrize(
    ("tree", "layout"),
    [
        ("obj/retained3", "objects"),
        ("obj/v1_legacy", "files"),
        pytest.param("obj/v2_prefix", "objects", marks=pytest.mark.soak),
        pytest.param("fs/corrupt", "objects", marks=pytest.mark.soak),
        pytest.param("v2/default", "distributed", marks=pytest.mark.soak),
    ],
)
def test_a_tree_comes_in_goes_out_and_is_what_it_is_on_a_disk(
    tree: str, layout: str, server: S3Server, tmp_path: Path
) -> None:
    kind, name = tree.split("/")
    prefix = expected(kind)[name].get("prefix") or "" if kind == "obj" else ""
    filesystem = server.filesystem()
    fs.copy_files(str(GOLDEN / tree), f"bucket/{tree}", destination_filesystem=filesystem)
    before = _files(server, f"bucket/{tree}")
    assert before.keys() == fingerprint(GOLDEN / tree).keys()
    local, remote = memory_catalog(), memory_catalog()
    wanted = interop.import_checkpoints(GOLDEN / tree, local, "p", prefix=prefix)
    report = interop.import_checkpoints(f"bucket/{tree}", remote, "p", filesystem=filesystem, prefix=prefix)
    assert report.imported
    assert (report.kind, report.imported, report.skipped) == (wanted.kind, wanted.imported, wanted.skipped)
    assert _all_of(remote, "p") == _all_of(local, "p")
    assert interop.inspect_source(server.uri(f"bucket/{tree}"), prefix=prefix).kind == wanted.kind
    # Out: the same files with the same bytes as on a disk, and nothing else.
    interop.export_checkpoints(remote, "p", tmp_path / "out", layout=layout, prefix="x/")
    out = {"filesystem": filesystem, "layout": layout, "prefix": "x/"}
    written = interop.export_checkpoints(remote, "p", f"bucket/out/{tree}", **out)  # type: ignore[arg-type]
    assert written.exported == wanted.imported
    there = _files(server, f"bucket/out/{tree}")
    assert there == {path: (tmp_path / "out" / path).read_bytes() for path in fingerprint(tmp_path / "out")}
    again = interop.export_checkpoints(remote, "p", f"bucket/out/{tree}", **out)  # type: ignore[arg-type]
    assert (again.files_written, again.files_unchanged) == (0, len(there))
    back = memory_catalog()
    interop.import_checkpoints(server.uri(f"bucket/out/{tree}"), back, "p", prefix="x/")
    assert _all_of(back, "p") == _all_of(local, "p")
    assert _files(server, f"bucket/{tree}") == before


def test_batches_are_kept_beside_each_other(server: S3Server) -> None:
    files = interop.BatchFiles("bucket/batches", filesystem=server.filesystem())
    batcher = CheckpointBatcher(files)
    for number in range(3):
        batcher.add("k", b"%d" % number)
        batcher.flush(7)
    assert [data for _, data in files.entries(7)] == [b"0", b"1", b"2"]
    assert files.read(7, "k") == b"2"


def test_a_catalog_lives_there(server: S3Server, catalog: ld.Catalog) -> None:
    with catalog.writer("orders", owner="first") as writer:
        for epoch in (1, 2):
            with writer.checkpoint(epoch=epoch) as cp:
                cp.source("kafka", {"0": str(epoch)})
                cp.state("agg", b"state %d" % epoch)
                cp.sink("warehouse")
            writer.sink_committed(cp.id, "warehouse")
        with pytest.raises(ConflictError, match="committed with another"):
            writer.save(manifest(2, watermark=5))
    # Somebody else, who knows nothing but the location.
    orders = _open(server, "s3://bucket/catalog").pipeline("orders")
    assert orders.recover().chosen_id == 2
    assert orders.state(2).read("agg") == b"state 2"
    assert [head.epoch for head in orders.list()] == [1, 2]


def test_of_two_writers_the_older_is_told(server: S3Server, catalog: ld.Catalog) -> None:
    old = catalog.writer("taken", owner="old")
    old.save(manifest(1))
    new = _open(server, "s3://bucket/catalog").writer("taken", owner="new")
    with pytest.raises(FencedError):
        old.save(manifest(2))
    new.save(manifest(2, watermark=7))
    assert catalog.pipeline("taken").get(2).watermark == 7


def test_nothing_acknowledged_is_lost_when_many_write_at_once(server: S3Server, catalog: ld.Catalog) -> None:
    said: dict[str, list[int]] = {f"line-{number}": [] for number in range(3)}
    problems: list[Exception] = []

    def save(pipeline: str) -> None:
        try:
            with _open(server, "s3://bucket/catalog").writer(pipeline) as writer:
                for number in (1, 2, 3):
                    writer.save(manifest(number))
                    said[pipeline].append(number)
        except Exception as error:  # noqa: BLE001 - shown below
            problems.append(error)

    threads = [threading.Thread(target=save, args=(pipeline,)) for pipeline in said]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    there = {name: [head.checkpoint_id for head in catalog.pipeline(name).list()] for name in said}
    assert there == said == {name: [1, 2, 3] for name in said}


def test_all_by_commands_that_know_only_the_environment(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {**server.storage_options, "AWS_CONDITIONAL_PUT": "etag"}.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    tree = "bucket/commands/tree"
    fs.copy_files(str(GOLDEN / "obj" / "retained3"), tree, destination_filesystem=server.filesystem())

    def run(*arguments: str) -> dict[str, Any]:
        monkeypatch.setattr(sys, "argv", ["laminar-delta", *arguments, "--json"])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert (ended.value.code, printed.err) == (0, "")
        found: dict[str, Any] = json.loads(printed.out)
        return found

    assert run("inspect", f"s3://{tree}")["chosen"] == "7"
    place = ["--catalog", "s3://bucket/commands/catalog", "--pipeline", "moved"]
    assert run("import", f"s3://{tree}", *place)["imported"] == [5, 6, 7]
    assert run("export", "s3://bucket/commands/out", *place, "--layout", "objects")["latest"] == "7"
    assert run("inspect", "s3://bucket/commands/out")["intact"] is True
    assert run("inspect", "s3://bucket/commands/catalog")["kind"] == "laminar-delta-catalog"


def test_a_large_state_is_many_files_and_one_commit_and_a_cancelled_one_leaves_none(server: S3Server) -> None:
    catalog = _open(server, "s3://bucket/large")
    state = random.Random(1).randbytes(9 << 20)
    writer = catalog.writer("orders", state_policy=ld.StatePolicy(part_bytes=4 << 20))

    def pieces() -> Iterator[bytes]:
        yield from (state[at : at + 300_000] for at in range(0, len(state), 300_000))

    with writer.checkpoint() as cp:
        cp.state("agg", pieces())
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 1
    there = _data(server)
    # Parts of half the bytes: there they are held while they are sent.
    assert len(there) == 5
    assert catalog.pipeline("orders").state(cp.id).read("agg") == state
    assert catalog.pipeline("orders").validate(cp.id).valid
    seen: set[str] = set()

    def cancel(progress: ld.StateProgress) -> None:
        seen.update(_data(server) - there)
        if seen and progress.done > 6 << 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), writer.checkpoint(tell=cancel) as cp:
        cp.state("other", pieces())
    assert seen
    assert _data(server) == there
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 1


def _data(server: S3Server) -> set[str]:
    """The files of large states."""
    selector = fs.FileSelector(f"bucket/large/{OPERATOR_SNAPSHOTS.name}")
    return {info.path for info in server.filesystem().get_file_info(selector) if info.path.endswith(".parquet")}
