"""What no row can have is refused by name, and nothing of it is left behind."""

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.errors import InvalidInputError
from laminar_delta.stores import min_confirmed
from tests.sessions.support import StoreOpener, at, commits

_STEPS = [{"source": "kafka", "sequence": 2}]
_TEXT = pa.table({"source": ["a"], "sequence": [1], "position": ["text"]})
_TWICE = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([1])], names=["source", "source", "sequence"])


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.read_checkpoint(5),
        lambda store: store.read_checkpoint(None),
        lambda store: store.read_checkpoint("\ud800"),
        lambda store: store.read_result_sequence(None),
        lambda store: store.session().read(5),
        lambda store: store.session().read_result_sequence(5),
        lambda store: store.session().stage_table(_TWICE),
        lambda store: store.session().stage_table([{"source": "a", "sequence": 1.5}]),
        lambda store: store.session().stage_table([{"source": "a", "sequence": True}]),
        lambda store: store.session().stage_table([{"kind": "config", "config_hash": 1.5}]),
        lambda store: store.session().stage_table(pa.table({"kind": ["config"], "config_hash": [1.5]})),
        lambda store: store.session().stage_table(_TEXT),
        lambda store: store.session().stage_table([("a", 1)]),
        lambda store: store.session().stage_table([{"kind": "config", "config_hash": -1}]),
        lambda store: store.session().stage_table([{"kind": "result", "source": "q", "sequence": -1}]),
        lambda store: store.session().stage_table([{"kind": "result", "source": "", "sequence": 1}]),
        # Also where another row of the same source would count.
        lambda store: store.session().stage_table([{"source": "a", "sequence": n} for n in (-1, 1)]),
        lambda store: store.session().stage("kafka", 2, after="1"),
        lambda store: store.session().stage("kafka", 2, after=-1),
        lambda store: store.session({"pipeline": "p"}),
        lambda store: store.session("token"),
        lambda store: store.stage_steps({"pipeline": "p"}, []),
        lambda store: store.stage_steps(replace(store.session().token, pipeline="another"), _STEPS),
        lambda store: replace(store.session().token, pipeline=""),
        lambda store: replace(store.session().token, session_id=None),
        lambda store: replace(store.session().token, session_id=""),
        lambda store: replace(store.session().token, generation="1"),
        lambda store: replace(store.session().token, ordinal=-1),
        lambda store: replace(store.session().token, owner=None),
        lambda store: store.history(limit=-1),
        lambda store: store.history(limit="a"),
        lambda store: store.after_gap(store.start(7), {"kafka": 5}, "auto_skip_gap"),
        lambda store: store.after_gap(store.start(7), {"kafka": (5, b"x")}, "auto_skip_gap"),
        lambda store: store.after_gap(store.start(7), {5: None}, "auto_skip_gap"),
        lambda store: store.after_gap(store.start(7), {5: None, "a": None}),
        lambda store: store.after_gap(store.start(7), ["kafka"], "auto_skip_gap"),
        lambda store: store.after_gap(store.start(7), {"kafka": at(2**64 - 1)}, "auto_skip_gap"),
        lambda store: store.after_gap({}, {"kafka": None}),
        lambda store: store.start(7, sources=5),
        lambda store: store.start(7, sources="kafka"),
        lambda store: store.start(7, cannot_replay=[5, "a"]),
    ],
)
def test_what_no_row_can_have_is_refused(
    persistent_store: ld.SourceCheckpointStore, catalog: ld.Catalog, call: Callable[[Any], object]
) -> None:
    with persistent_store.session() as s:
        s.write_config_hash(7)
        s.stage("kafka", 1)
    before = commits(catalog)
    with pytest.raises(InvalidInputError):
        call(persistent_store)
    assert commits(catalog) == before
    assert persistent_store.read_all_checkpoints() == {"kafka": at(1)}


@pytest.mark.parametrize(
    "number",
    [Decimal("1.5"), Decimal("NaN"), Fraction(3, 2), np.float32(1.5), np.float64(1), np.bool_(True), "1", b"1"],
)
def test_what_is_near_a_whole_number_is_none(store: ld.SourceCheckpointStore, number: object) -> None:
    session = store.session()
    for row in ({"source": "a", "sequence": number}, {"kind": "config", "config_hash": number}):
        with pytest.raises(InvalidInputError, match="no whole number"):
            session.stage_table([row])
    assert session.read_all() == {}


@pytest.mark.parametrize(
    "numbers",
    [
        pa.array([True]),
        pa.array([1.0]),
        pa.array(["1"]),
        pa.array([Decimal("1.0")]),
        pa.array([5], pa.timestamp("us")),
        pa.array([5], pa.duration("us")),
    ],
    ids=lambda numbers: str(numbers.type),
)
def test_a_column_of_anything_else_has_no_whole_numbers(store: ld.SourceCheckpointStore, numbers: Any) -> None:
    session = store.session()
    for columns in ({"source": ["a"], "sequence": numbers}, {"kind": ["config"], "config_hash": numbers}):
        with pytest.raises(InvalidInputError, match="no whole number"):
            session.stage_table(pa.table(columns))
    assert session.read_all() == {}


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2), pa.null()], ids=str)
def test_a_position_is_bytes_of_any_kind_of_column(store: ld.SourceCheckpointStore, kind: pa.DataType) -> None:
    value = None if pa.types.is_null(kind) else b"\xff\x00"
    session = store.session()
    session.stage_table(pa.table({"source": ["a"], "sequence": [1], "position": pa.array([value], kind)}))
    assert session.read("a") == at(1, value)
    with pytest.raises(InvalidInputError, match="no bytes"):
        session.stage_table([{"source": "a", "sequence": 2, "position": "text"}])
    session.stage_table([{"source": "b", "sequence": 2, "position": bytearray(b"b")}])
    assert session.read_all() == {"a": at(1, value), "b": at(2, b"b")}


def test_whole_numbers_are_taken_as_they_come(store: ld.SourceCheckpointStore) -> None:
    """pandas makes floats of integers beside a gap, and the highest are not what they were."""
    highest = 2**53 + 1
    pandas: Any = import_module("pandas")
    frame = pandas.DataFrame({"kind": ["source", "clear"], "source": ["a", None], "sequence": [highest, None]})
    session = store.session()
    with pytest.raises(InvalidInputError, match="Int64"):
        session.stage_table(frame)
    frame["sequence"] = pandas.array([highest, None], dtype="Int64")
    session.stage_table(frame)
    session.stage_table([{"source": "b", "sequence": np.int8(2)}, {"source": "c", "sequence": Decimal(3)}])
    hashes = pa.array([Decimal(2**64 - 1)], pa.decimal128(20, 0))
    session.stage_table(pa.table({"kind": ["config"], "config_hash": hashes}))
    assert session.read_all() == {"a": at(highest), "b": at(2), "c": at(3)}
    assert session.read_config_hash() == 2**64 - 1


@pytest.mark.parametrize("options", [{"generation": "x"}, {"generation": -1}, {"generation": 1.0}, {"owner": 5}])
def test_a_store_is_opened_with_what_can_be_recorded(open_store: StoreOpener, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        open_store(**options)


@pytest.mark.parametrize("given", [(5,), ("\ud800",), ("kafka", "orders"), ("kafka", [5])])
def test_who_is_furthest_behind_is_asked_by_names(catalog: ld.Catalog, given: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInputError):
        min_confirmed(catalog.reading, *given)
