"""Whose state it is and what it comes from: stored as rows can hold it, or refused before anything is begun."""

import enum
import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.tables import OPERATOR_SNAPSHOTS
from laminar_delta.errors import InvalidInputError, LaminarDeltaError
from tests.support.catalogs import QUICK_ENGINES, ready_made

LARGE = b"x" * 50_000


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ld.Catalog]:
    """Without Spark: what is looked at here is decided before any engine is asked."""
    return ready_made(request.param, tmp_path / "catalog", request)


class Operator(str, enum.Enum):
    AGG = "agg"


class Function(str, enum.Enum):
    APPEND = "append"


class Number(enum.IntEnum):
    ONE = 1


def _append(state: bytes, delta: bytes) -> bytes:
    return state + delta


def _builder(catalog: ld.Catalog, states: Any) -> int:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        for (operator, partition), data in states.items():
            cp.state(operator, data, partition=partition)
    return cp.id


def _save(catalog: ld.Catalog, states: Any) -> int:
    with catalog.writer("orders") as writer:
        manifest = writer.checkpoint().manifest()
        return writer.save(manifest, states).checkpoint_id


def _together(catalog: ld.Catalog, states: Any) -> int:
    with catalog.writer("orders") as writer:
        manifest = writer.checkpoint().manifest()
        (answer,) = catalog.save_together([Save(writer, manifest, states)])
    assert not isinstance(answer, LaminarDeltaError)
    return answer.checkpoint_id


DOORS = pytest.mark.parametrize("save", [_builder, _save, _together])


@DOORS
def test_a_name_that_is_a_kind_of_text_is_that_text(catalog: ld.Catalog, save: Callable[..., int]) -> None:
    number = save(catalog, {(Operator.AGG, Number.ONE): LARGE})
    orders = catalog.pipeline("orders")
    assert orders.recover(dry_run=True).chosen_id == number
    assert orders.state(number).read("agg", 1) == orders.state(number).read(Operator.AGG, Number.ONE) == LARGE
    assert type(next(iter(orders.state(number).partitions()))) is str


def test_the_name_of_a_function_too(catalog: ld.Catalog) -> None:
    ld.register_apply(Function.APPEND, _append)
    with catalog.writer("orders") as writer:
        with writer.checkpoint() as cp:
            cp.state("totals", b"BASE", inline=False)
        with writer.checkpoint() as cp:
            cp.state_delta("totals", b"+1", apply=Function.APPEND)
    assert catalog.pipeline("orders").state(cp.id).read("totals") == b"BASE+1"


@DOORS
@pytest.mark.parametrize("operator", [5, None, "", "\ud800", ("agg",), b"agg"])
def test_what_no_operator_is_called_is_refused(catalog: ld.Catalog, save: Callable[..., int], operator: Any) -> None:
    with pytest.raises(InvalidInputError, match="operator"):
        save(catalog, {(operator, 0): LARGE})
    _nothing_left(catalog)


@DOORS
@pytest.mark.parametrize("partition", [-1, 2**63, 1.0, "0", None, True])
def test_what_is_no_partition_is_refused(catalog: ld.Catalog, save: Callable[..., int], partition: Any) -> None:
    with pytest.raises(InvalidInputError, match="partition"):
        save(catalog, {("agg", partition): LARGE})
    _nothing_left(catalog)


@DOORS
@pytest.mark.parametrize("data", [None, 5, "text", object()])
def test_what_has_no_bytes_is_refused(catalog: ld.Catalog, save: Callable[..., int], data: Any) -> None:
    with pytest.raises(InvalidInputError, match="bytes are needed"):
        save(catalog, {("agg", 0): data})
    _nothing_left(catalog)


NO_ORDER_OR_NO_BYTES: dict[str, Any] = {
    "mapping": {b"key": b"value"},
    "keys": {b"key": b"value"}.keys(),
    "set": {b"one", b"two"},
    "frozenset": frozenset([b"one"]),
    "frame": pa.table({"column": [b"value"]}).to_pandas(),
    "arrow": pa.table({"column": [b"value"]}),
    "references": np.array([b"hello", b"world"], dtype=object),
    "references among others": np.array([(1, b"hello")], dtype=[("O", "i8"), ("it", object)]),
    "times, which give no bytes": np.array(["2024-01-01"], dtype="datetime64[s]"),
}


@DOORS
@pytest.mark.parametrize("kind", NO_ORDER_OR_NO_BYTES)
def test_what_would_be_stored_as_something_else_is_refused(
    catalog: ld.Catalog, save: Callable[..., int], kind: str
) -> None:
    with pytest.raises(InvalidInputError, match="bytes are needed"):
        save(catalog, {("agg", 0): NO_ORDER_OR_NO_BYTES[kind]})
    _nothing_left(catalog)


def test_arrays_of_values_and_the_values_of_a_mapping_are_bytes_and_pieces(catalog: ld.Catalog) -> None:
    numbers = np.array([(1, 2.5)], dtype=[("O", "i8"), ("b", "f8")])
    states = {("array", 0): numbers, ("values", 0): {"a": b"one", "b": b"two"}.values()}
    state = catalog.pipeline("orders").state(_builder(catalog, states))
    assert (state.read("array"), state.read("values")) == (numbers.tobytes(), b"onetwo")


@pytest.mark.parametrize("save", [_save, _together])
@pytest.mark.parametrize("states", [{"ab": b""}, {"abc": b""}, {("a",): b""}, [("agg", 0)], b"state", 5])
def test_states_that_are_not_by_operator_and_partition_are_refused(
    catalog: ld.Catalog, save: Callable[..., int], states: Any
) -> None:
    with pytest.raises(InvalidInputError, match="by operator and partition"):
        save(catalog, states)
    _nothing_left(catalog)


class _Wrong(io.RawIOBase):
    def __init__(self, count: Any) -> None:
        self._count = count

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> Any:
        return self._count


@pytest.mark.parametrize("count", [10**9, -1, "x"])
def test_a_file_that_does_not_say_how_much_it_read_is_refused(catalog: ld.Catalog, count: Any) -> None:
    with pytest.raises(InvalidInputError, match="how much it read"):
        _builder(catalog, {("agg", 0): _Wrong(count)})
    assert catalog.pipeline("orders").list() == []


@pytest.mark.parametrize("asked", [(5,), (None,), (["agg"],), ("\ud800",), ("agg", "0"), ("agg", None), ("agg", 2**63)])
def test_asking_for_what_no_row_could_have_is_refused(catalog: ld.Catalog, asked: Any) -> None:
    state = catalog.pipeline("orders").state(_builder(catalog, {("agg", 0): LARGE, ("small", 0): b"s"}))
    for read in (state.read, state.open, state.pieces):
        with pytest.raises(InvalidInputError):
            read(*asked)


def _nothing_left(catalog: ld.Catalog) -> None:
    assert catalog.pipeline("orders").list() == []
    for table in ("source_offsets", "operator_snapshots", "operator_deltas"):
        assert catalog.engine.read(table).num_rows == 0
    with catalog.writer("orders") as writer:
        assert replace(writer.checkpoint().manifest(), timestamp_ms=0).checkpoint_id <= 2


@pytest.mark.parametrize("made", [bytes, bytearray, memoryview, pa.py_buffer, lambda data: np.frombuffer(data, "u2")])
def test_small_state_in_any_buffer_costs_no_commit_of_its_own(
    catalog: ld.Catalog, made: Callable[[bytes], Any]
) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        cp.state("op", made(b"tiny"))
    state = catalog.pipeline("orders").state(cp.id)
    assert state.inline() == {"op": b"tiny"}
    assert state.read("op") == b"tiny"
    assert catalog.engine.version(OPERATOR_SNAPSHOTS.name) == 0


@pytest.mark.parametrize("partitions", [[1], [0, 1]])
def test_small_state_of_partitions_goes_into_the_tables(catalog: ld.Catalog, partitions: list[int]) -> None:
    with catalog.writer("orders") as writer, writer.checkpoint() as cp:
        for partition in partitions:
            cp.state("op", b"tiny", partition=partition)
    state = catalog.pipeline("orders").state(cp.id)
    assert state.inline() == {}
    assert state.partitions() == {"op": partitions}
