"""A commit that is found, and not made, is as durable as one that is made before anybody is told of it."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.session_commit import SessionCommit
from laminar_delta.catalog.sessions import SessionState
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.engine.local import durability
from laminar_delta.engine.local.log import entry_path
from laminar_delta.errors import CommitUnknownError
from tests.sessions.support import at


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "catalog"


@pytest.fixture
def store(root: Path) -> ld.SourceCheckpointStore:
    store = ld.SourceCheckpointStore(ld.open_catalog(str(root)), "orders")
    store.stage_checkpoint("kafka", 1)
    return store


@contextmanager
def _failing_disk() -> Iterator[None]:
    """Within: no log entry can be flushed."""
    real = durability.fsync_path

    def fail(path: Path) -> None:
        if path.suffix == ".json":
            raise OSError(errno.EIO, "Input/output error", str(path))
        real(path)

    with patch.object(durability, "fsync_path", fail):
        yield


@contextmanager
def _flushed() -> Iterator[list[Path]]:
    real, seen = durability.fsync_path, list[Path]()

    def note(path: Path) -> None:
        seen.append(path)
        real(path)

    with patch.object(durability, "fsync_path", note):
        yield seen


def test_a_session_that_could_not_be_flushed_is_not_told_as_committed_before_it_is(
    store: ld.SourceCheckpointStore, root: Path
) -> None:
    session = store.session()
    session.stage("kafka", 2)
    with _failing_disk():
        for call in (session.commit, session.retry, session.retry):
            with pytest.raises(CommitUnknownError, match="could not be flushed"):
                call()
            assert session.state is SessionState.IN_DOUBT
    version = store.history(limit=1)[0].version
    store.stage_checkpoint("files", 1)
    with _flushed() as seen:
        assert session.retry() == SessionCommit(session_id=session.id, version=version, replayed=True)
    entry = entry_path(root / SOURCE_CHECKPOINTS.name, version)
    assert {entry, entry.parent} <= set(seen)
    assert any(path.suffix == ".parquet" for path in seen)


def test_a_repeated_token_is_not_told_as_committed_on_a_disk_that_fails(store: ld.SourceCheckpointStore) -> None:
    token = store.session().token

    def repeat() -> SessionCommit:
        holder = ld.SourceCheckpointStore(store._catalog, "orders", generation=token.generation)
        session = holder.session(token)
        session.stage("kafka", 2)
        return session.commit()

    with _failing_disk():
        for _ in range(2):
            with pytest.raises(CommitUnknownError, match="could not be flushed"):
                repeat()
    assert repeat().replayed
    assert store.read_all_checkpoints() == {"kafka": at(2)}


def test_what_was_found_and_cleaned_from_the_log_needs_no_flush(store: ld.SourceCheckpointStore, root: Path) -> None:
    """A log checkpoint has it, and was flushed before the entry went."""
    session = store.session()
    session.stage("kafka", 2)
    with _failing_disk(), pytest.raises(CommitUnknownError):
        session.commit()
    store._catalog.engine.log_checkpoint(SOURCE_CHECKPOINTS.name)
    version = store.history(limit=1)[0].version
    store.stage_checkpoint("kafka", 3)
    for number in range(version + 1):
        entry_path(root / SOURCE_CHECKPOINTS.name, number).unlink()
    with pytest.raises(CommitUnknownError, match="neither the log"):
        session.retry()
