"""Upon which state the next one stands: never upon one that is not the state before, or that may not be there."""

import io
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

import laminar_delta as ld
from laminar_delta.catalog.builder import CheckpointBuilder
from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.committing import given_up_on_failure
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.standing import REMOVED, RETIRED, standing
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import CommitUnknownError, ConflictError, InvalidInputError, SessionStateError
from tests.support.faults import unheard_appends, unreadable_after_appends
from tests.support.stepping import stopped

LARGE = random.Random(5).randbytes(200_000)


@pytest.fixture(autouse=True)
def _functions() -> None:
    for name in ("append", "other"):
        ld.register_apply(name, lambda state, delta: state + delta)


def _whole(writer: Writer, state: bytes) -> int:
    with writer.checkpoint() as cp:
        cp.state("op", state, inline=False)
    return cp.id


def _delta(writer: Writer, delta: bytes, *, number: int | None = None, apply: str = "append") -> CheckpointBuilder:
    cp = writer.checkpoint(checkpoint_id=number)
    cp.state_delta("op", delta, apply=apply)
    return cp


def _read(catalog: ld.Catalog, number: int) -> bytes:
    return catalog.pipeline("orders").state(number).read("op")


def test_no_delta_stands_upon_a_state_that_was_inline_or_absent_since(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"ONE")
    for inline in (True, False):
        with writer.checkpoint() as cp:
            cp.source("kafka", {"0": "1"})
            if inline:
                cp.state("op", b"TWO")
        with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
            _delta(writer, b"+d").commit()
    number = _whole(writer, b"THREE")
    assert _delta(writer, b"+d").commit().checkpoint_id == number + 1
    assert _read(catalog, number + 1) == b"THREE+d"


def test_after_a_recovery_and_a_checkpoint_without_state_no_delta_stands_either(catalog: ld.Catalog) -> None:
    with catalog.writer("orders") as writer:
        _whole(writer, LARGE)
    writer = catalog.writer("orders")
    writer.recover()
    with writer.checkpoint() as cp:
        cp.source("kafka", {"0": "1"})
    with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
        _delta(writer, b"+d").commit()
    # Its blocks are shared all the same.
    number = _whole(writer, LARGE + b"more")
    assert catalog.pipeline("orders").state(number).layouts()[0].needs == {1, number}


def test_after_a_commit_in_doubt_a_delta_waits_until_it_is_known(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    with unheard_appends(catalog.engine, MANIFESTS.name), pytest.raises(CommitUnknownError):
        _delta(writer, b"+2", number=2).commit()
    with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
        _delta(writer, b"+3", number=4).commit()
    # It was committed: told so, the writer goes on from it.
    assert _delta(writer, b"+2", number=2).commit().replayed
    _delta(writer, b"+5", number=5).commit()
    assert _read(catalog, 5) == b"S1+2+5"


@contextmanager
def _interrupted(catalog: ld.Catalog) -> Iterator[None]:
    real = catalog.engine.append

    def interrupted(table: str, *given: Any, **named: Any) -> object:
        made = real(table, *given, **named)
        if table == MANIFESTS.name:
            raise KeyboardInterrupt
        return made

    with patch.object(catalog.engine, "append", interrupted):
        yield


@pytest.mark.parametrize("how", ["save", "rewind", "together"])
def test_after_an_interrupted_commit_no_delta_stands_upon_the_state_before(catalog: ld.Catalog, how: str) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    _whole(writer, b"S2")
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: _delta(writer, b"+3").commit(),
        "rewind": lambda: writer.rewind(1, reason="wrong"),
        "together": lambda: catalog.save_together(
            [ld.Save(writer, ld.CheckpointManifest.new(3, 3), {("op", 0): b"S3"})]
        ),
    }
    with _interrupted(catalog), pytest.raises(KeyboardInterrupt):
        calls[how]()
    with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
        _delta(writer, b"+d").commit()
    number = _whole(writer, b"S4")
    _delta(writer, b"+d").commit()
    assert _read(catalog, number + 1) == b"S4+d"


def test_checkpoints_saved_at_once_are_what_comes_before(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    save_all(writer, [BulkSave(manifest=ld.CheckpointManifest.new(2, 2), states={("op", 0): b"S2"})])
    with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
        _delta(writer, b"+d").commit()


def test_a_delta_stands_only_upon_the_state_it_was_given_upon(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S")
    low, high = _delta(writer, b"+2"), _delta(writer, b"+3")
    high.commit()
    with pytest.raises(ConflictError, match="another checkpoint was committed since the delta"):
        low.commit()
    assert _read(catalog, high.id) == b"S+3"
    late = _delta(writer, b"+4")
    writer.rewind(1, reason="wrong")
    with pytest.raises(ConflictError, match="another checkpoint was committed since the delta"):
        late.commit()


def test_no_delta_stands_upon_a_higher_checkpoint(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    skipped = writer.checkpoint().id
    _whole(writer, b"S3")
    low = writer.checkpoint(checkpoint_id=skipped)
    low.state_delta("op", b"+2", apply="append")
    with pytest.raises(ConflictError, match="checkpoint 3 was committed first"):
        low.commit()


def test_a_state_that_can_be_read_once_is_not_saved_again_as_nothing(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")

    def pieces() -> Iterator[bytes]:
        yield LARGE
        raise OSError("the source failed")

    for source in (pieces(), io.BytesIO(LARGE)):
        told = 0

        def tell(progress: ld.StateProgress) -> None:
            nonlocal told
            told += 1
            if told == 1:
                raise OSError("cancelled")

        cp = writer.checkpoint(tell=tell)
        cp.state("op", source)
        with pytest.raises(OSError, match=r"failed|cancelled"):
            cp.commit()
        with pytest.raises(SessionStateError, match="can be read only once"):
            cp.commit()
    assert catalog.pipeline("orders").list() == []


def test_bytes_can_be_tried_again(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    told = 0

    def tell(progress: ld.StateProgress) -> None:
        nonlocal told
        told += 1
        if told == 1:
            raise OSError("cancelled")

    cp = writer.checkpoint(tell=tell)
    cp.state("op", bytearray(LARGE))
    with pytest.raises(OSError, match="cancelled"):
        cp.commit()
    cp.commit()
    assert _read(catalog, cp.id) == LARGE


def test_a_delta_is_not_the_same_as_a_state_of_its_bytes(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"BASE")
    _delta(writer, b"X", number=2).commit()
    assert _delta(writer, b"X", number=2).commit().replayed
    with pytest.raises(ConflictError, match="application delta"):
        _delta(writer, b"X", number=2, apply="other").commit()
    as_whole = writer.checkpoint(checkpoint_id=2)
    as_whole.state("op", b"X", inline=False)
    with pytest.raises(ConflictError, match="application delta"):
        as_whole.commit()
    inline = writer.checkpoint(checkpoint_id=2)
    inline.state("op", b"X")
    with pytest.raises(ConflictError, match="application delta"):
        inline.commit()


def test_a_state_is_the_same_whichever_way_it_comes(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    ways: list[Callable[[bytes], object]] = [bytes, io.BytesIO, lambda data: [data[:2], data[2:]]]
    for first in ways:
        number = writer.next_id

        def saved(source: object, other: bytes = b"beside", number: int = number) -> Saved:
            cp = writer.checkpoint(checkpoint_id=number)
            cp.state("op", source)  # type: ignore[arg-type]
            cp.state("beside", other)
            return cp.commit()

        assert not saved(first(b"small")).replayed
        for again in ways:
            assert saved(again(b"small")).replayed
            with pytest.raises(ConflictError, match=r"operator_states|state_checksum"):
                saved(again(b"SMALL"))
            with pytest.raises(ConflictError, match="operator_states"):
                saved(again(b"small"), b"BESIDE")


@pytest.mark.parametrize("how", ["save", "token", "store", "lost"])
def test_what_is_committed_and_not_looked_after_is_told_so_and_looked_after_when_saved_again(
    catalog: ld.Catalog, how: str
) -> None:
    if how == "store":
        store = ld.DeltaCheckpointStore(catalog, "orders", max_retained=0)
        store.save_with_state(ld.CheckpointManifest.new(1, 1), LARGE)
    else:
        writer = catalog.writer("orders")
        _whole(writer, LARGE)
        attempt = writer.committer.begin(2)
        staged = writer.stage(attempt, replace(ld.CheckpointManifest.new(2, 2), parent_id=1), {("op", 0): LARGE[:-1]})

    def save() -> None:
        if how == "store":
            store.save_with_state(replace(ld.CheckpointManifest.new(2, 2), parent_id=1), LARGE[:-1])
        elif how == "token":
            with given_up_on_failure([(writer.committer, attempt)]):
                writer.commit(attempt, staged.manifest, staged.parts, state=staged.state)
        else:
            writer.save(replace(ld.CheckpointManifest.new(2, 2), parent_id=1), {("op", 0): LARGE[:-1]})

    if how == "lost":
        with unheard_appends(catalog.engine, MANIFESTS.name), pytest.raises(CommitUnknownError, match="is not known"):
            save()
    else:
        hiccup = unreadable_after_appends(catalog.engine, MANIFESTS.name, times=1)
        with hiccup, pytest.raises(CommitUnknownError, match="checkpoint 2 of pipeline 'orders' is committed") as told:
            save()
        assert told.value.details["key"] == {"pipeline": "orders", "checkpoint_id": 2}
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 2]
    # Somebody retires what it needs, and looked at what is needed before it was committed.
    decide(catalog.engine, "orders", lambda _: [Decision(checkpoint_id=1, word=RETIRED)], owner="ops")
    save()
    assert not standing(Reading(catalog.engine), "orders").retired
    if how != "store":
        assert writer.aborted <= ({attempt.attempt_id} if how != "token" else set())


def test_a_checkpoint_that_needs_what_is_removed_stays_refused_however_often_it_is_saved(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    manifest = replace(ld.CheckpointManifest.new(2, 2), parent_id=1)
    decisions = [Decision(checkpoint_id=1, word=word) for word in (RETIRED, REMOVED)]
    decide(catalog.engine, "orders", lambda _: decisions, owner="ops")
    for _ in range(2):
        with pytest.raises(ConflictError, match="which maintenance removed"):
            writer.save(manifest)
    assert writer.aborted == frozenset()


def test_the_state_before_is_that_of_the_checkpoint_committed_last_whoever_returns_last(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, b"S1")
    real, moved = writer.committer._turn, threading.Event()

    class Turn:
        def __enter__(self) -> None:
            if not real.acquire(blocking=False):
                moved.set()
                real.acquire()

        def __exit__(self, *_: object) -> None:
            real.release()

    def second() -> None:
        _whole(writer, b"S3")
        moved.set()

    cp = writer.checkpoint()
    cp.state("op", b"S2", inline=False)
    late = threading.Thread(target=second)
    # The first is committed, and nobody was told yet what the next stands upon: the second returns, or waits.
    with stopped(cp.commit, writer.basis, "are"), patch.object(writer.committer, "_turn", Turn()):
        late.start()
        assert moved.wait(60)
    late.join()
    assert [head.checkpoint_id for head in catalog.pipeline("orders").list()] == [1, 2, 3]
    _delta(writer, b"+4").commit()
    assert _read(catalog, 4) == b"S3+4"


def test_no_delta_stands_upon_a_checkpoint_that_came_after_a_higher_one(catalog: ld.Catalog) -> None:
    writer = catalog.writer("orders")
    _whole(writer, LARGE)
    low = writer.checkpoint()
    low.state("op", LARGE[:-2], inline=False)
    _whole(writer, LARGE[:-3])
    low.commit()
    with pytest.raises(InvalidInputError, match="no state of operator 'op'"):
        _delta(writer, b"+4").commit()
    # Blocks are shared all the same.
    assert len(catalog.pipeline("orders").state(_whole(writer, LARGE[:-5])).layouts()[0].needs) > 1
