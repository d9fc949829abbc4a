"""An interrupt anywhere between a commit and its answer: nothing is committed twice, and no state put upon a wrong one.

One comes at every place where a signal can, in turn. What is decided here is decided above the engines.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import TypeVar

import pytest

import laminar_delta as ld
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import ConflictError, LaminarDeltaError
from laminar_delta.stores import DeltaCheckpointStore
from tests.stores.support import manifest
from tests.support.faults import interrupted_after_append
from tests.support.stepping import NeverCame

T = TypeVar("T")


def _interrupted(
    begin: Callable[[ld.Catalog], T], save: Callable[[ld.Catalog, T], object]
) -> Iterator[tuple[ld.Catalog, T]]:
    """Catalogs in which `save` was interrupted, each at a later place than the one before."""
    for place in count(1):
        catalog = ld.open_catalog("interrupts", engine="memory")
        begun = begin(catalog)
        try:
            with interrupted_after_append(catalog.engine, MANIFESTS.name, place), suppress(KeyboardInterrupt):
                save(catalog, begun)
        except NeverCame:
            assert place > 1
            return
        yield catalog, begun


def _assert_committed(catalog: ld.Catalog, *expected: tuple[str, int]) -> None:
    rows = catalog.engine.read(MANIFESTS.name, columns=["pipeline", "checkpoint_id"]).to_pylist()
    assert sorted((row["pipeline"], row["checkpoint_id"]) for row in rows) == list(expected)


def test_a_save_is_committed_once_wherever_it_was_interrupted() -> None:
    for catalog, writer in _interrupted(
        lambda catalog: catalog.writer("p"), lambda _, writer: writer.save(manifest(1))
    ):
        with pytest.raises(ConflictError):
            writer.save(manifest(1, epoch=2))
        assert writer.save(manifest(1)).replayed
        _assert_committed(catalog, ("p", 1))
        assert catalog.pipeline("p").remove_orphans(aborted=writer.aborted) == ()


def test_a_save_of_a_store_is_committed_once_wherever_it_was_interrupted() -> None:
    def begin(catalog: ld.Catalog) -> DeltaCheckpointStore:
        store = DeltaCheckpointStore(catalog, "p", max_retained=0)
        store.save_state_data(1, [b"1"])
        return store

    for catalog, store in _interrupted(begin, lambda _, store: store.save(manifest(1))):
        with pytest.raises(ConflictError):
            store.save(manifest(1, epoch=2))
        store.save(manifest(1))
        _assert_committed(catalog, ("p", 1))
        assert store.cleanup_orphans() == 0
        assert store.load_state_data(1) == b"1"


def _save_together(catalog: ld.Catalog, writers: Sequence[Writer], epoch: int = 1) -> list[Saved | LaminarDeltaError]:
    return catalog.save_together([Save(writer, manifest(1, epoch=epoch)) for writer in writers])


def test_a_group_is_committed_once_wherever_it_was_interrupted() -> None:
    for catalog, writers in _interrupted(lambda catalog: [catalog.writer(name) for name in "ab"], _save_together):
        assert [type(answer) for answer in _save_together(catalog, writers, epoch=2)] == [ConflictError] * 2
        assert all(isinstance(answer, Saved) and answer.replayed for answer in _save_together(catalog, writers))
        _assert_committed(catalog, ("a", 1), ("b", 1))


def test_many_at_once_are_committed_once_wherever_it_was_interrupted() -> None:
    def save(_: ld.Catalog, writer: Writer) -> None:
        # The highest first: those below it are no news by their number.
        save_all(writer, [BulkSave(manifest=manifest(number)) for number in (3, 2, 1)])

    for catalog, writer in _interrupted(lambda catalog: catalog.writer("p"), save):
        with pytest.raises(ConflictError):
            save(catalog, writer)
        for number in (1, 2, 3):
            assert writer.save(manifest(number)).replayed
        _assert_committed(catalog, ("p", 1), ("p", 2), ("p", 3))


def _alone(catalog: ld.Catalog, writer: Writer, number: int, state: bytes | AppliedDelta) -> None:  # as below
    writer.save(manifest(number), {("op", 0): state})


def _together(catalog: ld.Catalog, writer: Writer, number: int, state: bytes | AppliedDelta) -> None:
    (answer,) = catalog.save_together([Save(writer, manifest(number), {("op", 0): state})])
    if isinstance(answer, LaminarDeltaError):
        raise answer


@pytest.mark.parametrize("save", [_alone, _together])
def test_no_delta_stands_upon_the_state_before_an_interrupted_save(
    save: Callable[[ld.Catalog, Writer, int, bytes | AppliedDelta], None],
) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)

    def begin(catalog: ld.Catalog) -> Writer:
        writer = catalog.writer("p")
        save(catalog, writer, 1, b"1")
        return writer

    def add(catalog: ld.Catalog, writer: Writer, number: int = 2) -> None:
        save(catalog, writer, number, AppliedDelta(str(number).encode(), "append"))

    for catalog, writer in _interrupted(begin, add):
        try:
            add(catalog, writer, 3)
        except LaminarDeltaError:
            add(catalog, writer, 2)
            add(catalog, writer, 3)
        assert catalog.pipeline("p").state(3).read("op") == b"123"


def test_no_delta_stands_upon_the_state_before_many_that_were_interrupted() -> None:
    ld.register_apply("append", lambda state, delta: state + delta)

    def begin(catalog: ld.Catalog) -> Writer:
        writer = catalog.writer("p")
        _alone(catalog, writer, 1, b"1")
        return writer

    def many(_: ld.Catalog, writer: Writer) -> None:
        save_all(writer, [BulkSave(manifest=manifest(2), states={("op", 0): b"2"})])

    for catalog, writer in _interrupted(begin, many):
        with pytest.raises(LaminarDeltaError, match="delta"):
            _alone(catalog, writer, 3, AppliedDelta(b"3", "append"))
