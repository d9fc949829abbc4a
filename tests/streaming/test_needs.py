"""Which files a state version and a source's log need, by directories made for it: no Spark is needed."""

import io
import json
import zipfile
from pathlib import Path

import pyarrow.fs as pafs
import pytest

import laminar_delta as ld
from laminar_delta.errors import ConflictError, CorruptionError, NotFoundError
from laminar_delta.interop.place import Place
from laminar_delta.interop.sparkdir.needs import state_needs
from laminar_delta.interop.sparkdir.states import list_state
from laminar_delta.streaming import capture_spark_checkpoint, files_read, restore_spark_checkpoint

QUERY = "5b3c9d1e-0000-4000-8000-000000000001"


def put(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)


def put_zip(root: Path, name: str, *tables: str) -> None:
    said = {"sstFiles": [{"localFileName": "x", "dfsSstFileName": table, "sizeBytes": 1} for table in tables]}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps(said))
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(data.getvalue())


def paths(root: Path, version: int) -> dict[tuple[str, int], list[str]]:
    place = Place.of(root)
    found = state_needs(place, list_state(place), version)
    return {key: [file.path for file in files] for key, files in found.partitions.items()}


def test_a_full_file_and_the_changes_after_it(tmp_path: Path) -> None:
    put(
        tmp_path, *(f"state/0/0/{n}.delta" for n in range(1, 14)), "state/0/0/10.snapshot", "state/0/0/_metadata/schema"
    )
    assert paths(tmp_path, 12) == {("0", 0): ["0/0/10.snapshot", "0/0/11.delta", "0/0/12.delta"]}
    assert paths(tmp_path, 10) == {("0", 0): ["0/0/10.snapshot"]}
    assert paths(tmp_path, 9) == {("0", 0): [f"0/0/{n}.delta" for n in range(1, 10)]}
    with pytest.raises(NotFoundError, match="nothing of version 14"):
        paths(tmp_path, 14)
    (tmp_path / "state/0/0/11.delta").unlink()
    with pytest.raises(NotFoundError, match="nothing of version 11"):
        paths(tmp_path, 12)


def test_stores_of_a_partition_are_kept_together(tmp_path: Path) -> None:
    stores = ("left-keyToNumValues", "left-keyWithIndexToValue")
    put(tmp_path, *(f"state/1/3/{store}/{n}.delta" for store in stores for n in (1, 2)), "state/1/_metadata/metadata")
    assert paths(tmp_path, 2) == {("1", 3): [f"1/3/{store}/{n}.delta" for store in stores for n in (1, 2)]}


def test_tables_that_a_zip_names_and_changes_after_it(tmp_path: Path) -> None:
    put(tmp_path, "state/0/0/SSTs/a.sst", "state/0/0/SSTs/b.sst", "state/0/0/5.changelog", "state/0/0/6_u1.changelog")
    put_zip(tmp_path, "state/0/0/4.zip", "b.sst")
    assert paths(tmp_path, 6) == {("0", 0): ["0/0/SSTs/b.sst", "0/0/4.zip", "0/0/5.changelog", "0/0/6_u1.changelog"]}
    (tmp_path / "state/0/0/SSTs/b.sst").unlink()
    with pytest.raises(NotFoundError, match=r"needs 0/0/b\.sst"):
        paths(tmp_path, 5)
    (tmp_path / "state/0/0/4.zip").write_bytes(b"no zip")
    with pytest.raises(CorruptionError, match="does not tell"):
        paths(tmp_path, 4)


def write_query(root: Path, positions: list[int]) -> None:
    """A query with a file source, whose batches left it at these positions; entry 9 holds all before it."""
    (root / "metadata").parent.mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": QUERY}))
    for batch, position in enumerate(positions):
        put(root, f"offsets/{batch}", f"commits/{batch}")
        said = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000 + batch})
        (root / f"offsets/{batch}").write_text(f'v1\n{said}\n{{"logOffset":{position}}}')
        (root / f"commits/{batch}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for number in range(positions[-1] + 1):
        entries = [json.dumps({"path": f"file:///in/{n}"}) for n in (range(10) if number == 9 else [number])]
        name = f"sources/0/{number}" + (".compact" if number == 9 else "")
        put(root, name)
        (root / name).write_text("\n".join(["v1", *entries]))


def sources(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "sources" / "0").iterdir())


def test_what_a_file_source_noted_follows_its_own_numbers(tmp_path: Path) -> None:
    # Batch 2 brought it nothing, batch 5 two entries; from then on its numbers are those of the batches again.
    positions = [0, 1, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11]
    write_query(tmp_path / "query", positions)
    catalog = ld.open_catalog("memory", engine="memory")
    report = capture_spark_checkpoint(catalog, "q", tmp_path / "query")
    assert (len(report.imported), report.notes) == (12, ())
    for batch in (0, 2, 5, 8):
        restore_spark_checkpoint(catalog, "q", batch + 1, tmp_path / str(batch))
        assert sources(tmp_path / str(batch)) == [str(number) for number in range(positions[batch] + 1)]
    restore_spark_checkpoint(catalog, "q", 12, tmp_path / "last")
    assert sources(tmp_path / "last") == ["10", "11", "9.compact"]
    assert len(files_read(catalog, "q", "source-0", 12)) == 12
    assert files_read(catalog, "q", "source-0", 3) == ["file:/in/0", "file:/in/1"]
    # Without the checkpoint that has it, what the source noted is not whole.
    catalog.pipeline("q").prune(ld.RetentionPolicy(keep_last=4))
    restore_spark_checkpoint(catalog, "q", 12, tmp_path / "again")
    assert sources(tmp_path / "again") == ["10", "11", "9.compact"]


def test_a_directory_can_be_elsewhere(tmp_path: Path) -> None:
    write_query(tmp_path / "query", [0, 1, 2])
    catalog = ld.open_catalog("memory", engine="memory")
    capture_spark_checkpoint(catalog, "q", tmp_path / "query")
    elsewhere = pafs._MockFileSystem()
    made = restore_spark_checkpoint(catalog, "q", 3, "bucket/query", filesystem=elsewhere)
    found = elsewhere.get_file_info(pafs.FileSelector("bucket/query", recursive=True))
    names = {info.path.removeprefix("bucket/query/") for info in found if info.type == pafs.FileType.File}
    assert len(names) == made.files
    assert names > {"offsets/2", "offsets/1", "commits/2", "metadata", "sources/0/2"}
    with pytest.raises(ConflictError):
        restore_spark_checkpoint(catalog, "q", 3, "bucket/query", filesystem=elsewhere, overwrite=True)
