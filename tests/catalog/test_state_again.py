"""A save that is tried again stores the state it was given, or refuses: never what a source has left once it was read."""

import io
import mmap
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.errors import InvalidInputError, LaminarDeltaError, SessionStateError
from laminar_delta.stores import DeltaCheckpointStore
from tests.support.catalogs import QUICK_ENGINES, ready_made

LARGE = random.Random(7).randbytes(300_000)
MAPPED = random.Random(8).randbytes(5 << 20)


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    """Without Spark: what is looked at here is decided before any engine is asked."""
    return ready_made(request.param, tmp_path / "catalog", request)


def _raises_once() -> Callable[[ld.StateProgress], None]:
    told: list[int] = []

    def tell(progress: ld.StateProgress) -> None:
        told.append(progress.done)
        if len(told) == 1:
            raise OSError("cancelled")

    return tell


def _generator() -> Iterator[bytes]:
    yield LARGE


class _NoTell:
    """A file that nobody can ask where it is."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int, /) -> bytes:
        return self._file.read(size)


class _Wrapped:
    """Pieces that come from one iterator, however often they are asked for."""

    def __init__(self) -> None:
        self._pieces = _generator()

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces


ONCE: dict[str, Callable[[], Any]] = {
    "file": lambda: io.BytesIO(LARGE),
    "file without tell": lambda: _NoTell(LARGE),
    "generator": _generator,
    "iterator that cannot be referred to weakly": lambda: map(bytes, [LARGE]),
    "wrapped iterator": _Wrapped,
}
SOURCES = pytest.mark.parametrize("kind", ONCE)


@SOURCES
def test_a_save_that_failed_is_not_saved_again_with_what_is_left(catalog: ld.Catalog, kind: str) -> None:
    writer = catalog.writer("orders")
    manifest, source, tell = ld.CheckpointManifest.new(1, 1), ONCE[kind](), _raises_once()
    with pytest.raises(OSError, match="cancelled"):
        writer.save(manifest, {("op", 0): source}, tell=tell)
    with pytest.raises(SessionStateError, match="can be read only once"):
        writer.save(manifest, {("op", 0): source}, tell=tell)
    assert catalog.pipeline("orders").list() == []
    assert not writer.save(manifest, {("op", 0): ONCE[kind]()}).replayed
    assert catalog.pipeline("orders").state(1).read("op") == LARGE


@SOURCES
def test_what_one_checkpoint_read_is_nothing_for_the_next(catalog: ld.Catalog, kind: str) -> None:
    """Nor for one of another pipeline, nor to be compared with what is committed."""
    writer = catalog.writer("orders")
    source = ONCE[kind]()
    writer.save(ld.CheckpointManifest.new(1, 1), {("op", 0): source})
    for number, other in ((1, writer), (2, writer), (1, catalog.writer("others"))):
        with pytest.raises(SessionStateError, match="can be read only once"):
            other.save(ld.CheckpointManifest.new(number, number), {("op", 0): source})
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1]


def test_a_group_that_failed_is_not_saved_again_with_what_is_left(catalog: ld.Catalog) -> None:
    first, second = catalog.writer("a"), catalog.writer("b")

    def failing() -> Iterator[bytes]:
        yield LARGE
        raise OSError("the source failed")

    save = ld.Save(first, ld.CheckpointManifest.new(1, 1), {("op", 0): io.BytesIO(LARGE)})
    with pytest.raises(OSError, match="the source failed"):
        catalog.save_together([save, ld.Save(second, ld.CheckpointManifest.new(1, 1), {("op", 0): failing()})])
    other = ld.Save(second, ld.CheckpointManifest.new(1, 1), {("op", 0): LARGE})
    with pytest.raises(SessionStateError, match="operator 'op' partition 0 can be read only once"):
        catalog.save_together([save, other])
    anew = ld.Save(first, ld.CheckpointManifest.new(1, 1), {("op", 0): io.BytesIO(LARGE)})
    for name, answer in zip("ab", catalog.save_together([anew, other]), strict=True):
        assert not isinstance(answer, LaminarDeltaError)
        assert catalog.pipeline(name).state(1).read("op") == LARGE


def test_a_store_does_not_save_what_is_left_of_a_sidecar(catalog: ld.Catalog) -> None:
    store = DeltaCheckpointStore(catalog, "orders")
    source = io.BytesIO(LARGE)
    store.save_state_data(1, source)
    for save in (store.save_state_data, lambda _, left: store.save_with_state(ld.CheckpointManifest.new(1, 1), left)):
        with pytest.raises(SessionStateError, match="read only once"):
            save(1, source)
    store.save(ld.CheckpointManifest.new(1, 1))
    assert store.load_state_data(1) == LARGE


def test_a_file_that_was_put_back_is_read_again(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    file, tell = io.BytesIO(b"head" + LARGE), _raises_once()
    file.seek(4)
    with pytest.raises(OSError, match="cancelled"):
        writer.save(ld.CheckpointManifest.new(1, 1), {("op", 0): file}, tell=tell)
    file.seek(4)
    writer.save(ld.CheckpointManifest.new(1, 1), {("op", 0): file})
    assert catalog.pipeline("orders").state(1).read("op") == LARGE
    file.seek(4)
    assert writer.save(ld.CheckpointManifest.new(1, 1), {("op", 0): file}).replayed


def test_what_was_not_begun_and_what_begins_anew_each_time_can_be_tried_again(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")

    def failing() -> Iterator[bytes]:
        yield from ()
        raise OSError("the source failed")

    later, pieces = _generator(), [LARGE[:5], LARGE[5:]]
    with pytest.raises(OSError, match="the source failed"):
        writer.save(ld.CheckpointManifest.new(1, 1), {("a", 0): pieces, ("b", 0): failing(), ("c", 0): later})
    writer.save(ld.CheckpointManifest.new(1, 1), {("a", 0): pieces, ("b", 0): pieces, ("c", 0): later})
    state = catalog.pipeline("orders").state(1)
    assert [state.read(operator) for operator in "abc"] == [LARGE] * 3


def test_a_builder_is_committed_again_when_its_file_was_put_back_and_its_pieces_are_a_list(catalog: ld.Catalog) -> None:
    cp = catalog.writer("orders").checkpoint(tell=_raises_once())
    file = io.BytesIO(LARGE)
    cp.state("file", file)
    cp.state("pieces", [LARGE])
    with pytest.raises(OSError, match="cancelled"):
        cp.commit()
    with pytest.raises(SessionStateError, match="operator 'file' partition 0 can be read only once"):
        cp.commit()
    file.seek(0)
    cp.commit()
    state = catalog.pipeline("orders").state(cp.id)
    assert state.read("file") == state.read("pieces") == LARGE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[mmap.mmap]:
    path = tmp_path / "mapped"
    path.write_bytes(MAPPED)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as found:
        yield found


def test_a_mapped_file_is_bytes_wherever_it_was_read_to(catalog: ld.Catalog, mapped: mmap.mmap) -> None:
    mapped.seek(100)
    cp = catalog.writer("orders").checkpoint(tell=_raises_once())
    cp.state("op", mapped)
    with pytest.raises(OSError, match="cancelled"):
        cp.commit()
    cp.commit()
    assert catalog.pipeline("orders").state(cp.id).read("op") == MAPPED


def test_a_mapped_file_can_be_closed_while_a_cancelled_save_is_told(catalog: ld.Catalog, mapped: mmap.mmap) -> None:
    with pytest.raises(OSError, match="cancelled"), mapped:  # noqa: SIM117
        with catalog.writer("orders").checkpoint(tell=_raises_once()) as cp:
            cp.state("op", mapped)


@pytest.mark.parametrize("kind", [kind for kind in ONCE if kind != "wrapped iterator"])
@pytest.mark.parametrize("door", ["builder", "save", "together"])
def test_one_source_is_not_the_state_of_two(catalog: ld.Catalog, kind: str, door: str) -> None:
    writer, source = catalog.writer("orders"), ONCE[kind]()
    states = {("a", 0): source, ("b", 0): source}

    def builder() -> None:
        with writer.checkpoint() as cp:
            for (operator, partition), data in states.items():
                cp.state(operator, data, partition=partition)

    manifest = ld.CheckpointManifest.new(1, 1)
    doors: dict[str, Callable[[], object]] = {
        "builder": builder,
        "save": lambda: writer.save(manifest, states),
        "together": lambda: catalog.save_together([ld.Save(writer, manifest, states)]),
    }
    with pytest.raises(InvalidInputError, match="the same source"):
        doors[door]()
    assert catalog.pipeline("orders").list() == []
    # Nothing was read.
    writer.save(ld.CheckpointManifest.new(5, 5), {("a", 0): source, ("b", 0): b"other"})
    assert catalog.pipeline("orders").state(5).read("a") == LARGE


def test_one_source_is_not_the_state_of_two_pipelines_in_a_group(catalog: ld.Catalog) -> None:
    source = io.BytesIO(LARGE)
    manifest = ld.CheckpointManifest.new(1, 1)
    saves = [ld.Save(catalog.writer(name), manifest, {("op", 0): source}) for name in "ab"]
    with pytest.raises(InvalidInputError, match="the same source"):
        catalog.save_together(saves)
    assert [catalog.pipeline(name).list() for name in "ab"] == [[], []]


def test_the_same_bytes_may_be_the_state_of_two(catalog: ld.Catalog) -> None:
    pieces = [LARGE]
    catalog.writer("orders").save(
        ld.CheckpointManifest.new(1, 1), {("a", 0): LARGE, ("b", 0): LARGE, ("c", 0): pieces, ("d", 0): pieces}
    )
    state = catalog.pipeline("orders").state(1)
    assert [state.read(operator) for operator in "abcd"] == [LARGE] * 4
