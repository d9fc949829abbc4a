"""Each failure the embedded engine translates, provoked for real: these fail when delta-rs changes its words."""

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from laminar_delta.engine.embedded import EmbeddedEngine
from laminar_delta.engine.embedded.tables import LOG_CHECKPOINT_EVERY
from laminar_delta.engine.local import durability
from laminar_delta.engine.request import Fence
from laminar_delta.errors import (
    CommitUnknownError,
    ErrorCode,
    FormatError,
    LaminarDeltaError,
    NotFoundError,
    StorageError,
)
from laminar_delta.testing.conformance.tables import LINES, line


@pytest.fixture
def engine(tmp_path: Path) -> EmbeddedEngine:
    engine = EmbeddedEngine(tmp_path / "catalog")
    engine.create(LINES)
    engine.append(LINES.name, line("p", 1))
    return engine


def _data_file(engine: EmbeddedEngine) -> Path:
    return next((Path(engine.location) / LINES.name).glob("*.parquet"))


def test_a_missing_data_file_is_named(engine: EmbeddedEngine) -> None:
    path = _data_file(engine)
    path.unlink()
    with pytest.raises(StorageError, match=path.name) as caught:
        engine.read(LINES.name)
    assert caught.value.code is ErrorCode.FILE_MISSING


def test_a_file_with_rows_that_cannot_even_be_looked_at_is_named(engine: EmbeddedEngine) -> None:
    def intact(row: Mapping[str, Any]) -> bool:
        return bool(row["pipeline"] > 1)

    (found,) = engine.damaged(LINES.name, columns=["pipeline"], intact=intact)
    assert _data_file(engine).name in found
    assert "not as they were written" in found


def test_a_byte_flipped_anywhere_is_rows_or_an_error_of_ours(engine: EmbeddedEngine) -> None:
    """The engine does not vouch for content, digests above it do; but nothing foreign, no panic and no crash comes out."""
    path = _data_file(engine)
    whole = path.read_bytes()
    failures = 0
    for place in range(0, len(whole), 11):
        content = bytearray(whole)
        content[place] ^= 0xFF
        path.write_bytes(content)
        try:
            engine.read(LINES.name)
        except LaminarDeltaError:
            failures += 1
    assert failures > 10


def test_a_truncated_data_file_is_an_error_of_ours(engine: EmbeddedEngine) -> None:
    path = _data_file(engine)
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(StorageError):
        engine.read(LINES.name)


def test_a_directory_without_a_log_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    engine = EmbeddedEngine(tmp_path)
    for name in ("empty", "absent"):
        assert not engine.exists(name)
        with pytest.raises(NotFoundError):
            engine.version(name)


def test_a_table_with_features_of_the_future_is_refused(engine: EmbeddedEngine) -> None:
    log = Path(engine.location) / LINES.name / "_delta_log"
    entry = log / f"{0:020}.json"
    text = entry.read_text()
    assert '"minReaderVersion":1' in text
    entry.write_text(text.replace('"minReaderVersion":1', '"minReaderVersion":99'))
    with pytest.raises((FormatError, StorageError)):
        engine.read(LINES.name)


def test_a_removed_catalog_is_reported_by_every_write(engine: EmbeddedEngine) -> None:
    shutil.rmtree(engine.location)
    with pytest.raises(LaminarDeltaError):
        engine.append(LINES.name, line("p", 2), fences=[Fence("a", 1)])


def test_a_full_disk_leaves_nothing_and_the_next_write_works(engine: EmbeddedEngine) -> None:
    """The write call itself fails, as it does when the disk is full: the answer is a failure, not a doubt."""
    version = engine.version(LINES.name)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with (
        patch("laminar_delta.engine.embedded.engine.write_deltalake", side_effect=full),
        pytest.raises(StorageError, match="nothing was committed") as caught,
    ):
        engine.append(LINES.name, line("p", 2), key={"id": 2})
    assert caught.value.__cause__ is full
    assert engine.version(LINES.name) == version
    engine.append(LINES.name, line("p", 2))


def test_a_commit_that_cannot_be_flushed_is_not_acknowledged(engine: EmbeddedEngine) -> None:
    broken = OSError(errno.EIO, os.strerror(errno.EIO))
    with patch.object(durability, "fsync_commit", side_effect=broken), pytest.raises(CommitUnknownError):
        engine.append(LINES.name, line("p", 2))


def test_every_commit_is_flushed_with_its_files_and_directories(engine: EmbeddedEngine) -> None:
    """Which paths reach the real fsync, seen from below."""
    flushed: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    with patch("os.fsync", note):
        made = engine.append(LINES.name, line("p", 2))
    table = Path(engine.location) / LINES.name
    handle = DeltaTable(str(table))
    newest = max((Path(uri) for uri in handle.file_uris()), key=lambda path: path.stat().st_mtime_ns)
    entry = table / "_delta_log" / f"{made.version:020}.json"
    assert flushed.index(str(newest)) < flushed.index(str(table)) < flushed.index(str(entry))
    assert flushed[-1] == str(entry.parent)


def test_the_log_is_checkpointed_at_its_interval_and_stays_quick_to_open(tmp_path: Path) -> None:
    engine = EmbeddedEngine(tmp_path)
    engine.create(LINES)
    for number in range(2 * LOG_CHECKPOINT_EVERY + 1):
        engine.append(LINES.name, line("p", number), fences=[Fence("a", number + 1)])
    checkpoints = sorted(path.name for path in (tmp_path / LINES.name / "_delta_log").glob("*.checkpoint.parquet"))
    assert [int(name.partition(".")[0]) for name in checkpoints] == [
        LOG_CHECKPOINT_EVERY,
        2 * LOG_CHECKPOINT_EVERY,
    ]
    assert engine.read(LINES.name).num_rows == 2 * LOG_CHECKPOINT_EVERY + 1


def test_storage_that_does_not_answer_is_told_from_damage() -> None:
    nobody = {
        "aws_endpoint": "http://127.0.0.1:9",
        "aws_allow_http": "true",
        "aws_access_key_id": "x",
        "aws_secret_access_key": "y",
        "aws_region": "x",
        "max_retries": "0",
    }
    engine = EmbeddedEngine("s3://bucket/catalog", storage_options=nobody)
    with pytest.raises(StorageError, match="cannot be reached") as error:
        engine.read("manifests")
    assert error.value.code is ErrorCode.UNREACHABLE
    assert "\x1b" not in str(error.value)
    assert "\n" not in str(error.value)
