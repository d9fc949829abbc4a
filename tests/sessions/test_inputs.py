"""What no row can have is refused by name, and nothing of it is left behind."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.errors import InvalidInputError
from laminar_delta.stores import min_confirmed
from tests.sessions.support import StoreOpener, at, commits

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
        lambda store: store.session().stage_table([("a", 1)]),
        lambda store: store.start(7, sources=5),
        lambda store: store.start(7, sources="kafka"),
        lambda store: store.start(7, cannot_replay=[5, "a"]),
    ],
)
def test_what_no_row_can_have_is_refused(
    persistent_store: ld.SourceCheckpointStore, catalog: ld.Catalog, call: Callable[[Any], object]
) -> None:
    persistent_store.stage_checkpoint("kafka", 1)
    before = commits(catalog)
    with pytest.raises(InvalidInputError):
        call(persistent_store)
    assert commits(catalog) == before
    assert persistent_store.read_all_checkpoints() == {"kafka": at(1)}


@pytest.mark.parametrize("options", [{"generation": "x"}, {"generation": -1}, {"generation": 1.0}, {"owner": 5}])
def test_a_store_is_opened_with_what_can_be_recorded(open_store: StoreOpener, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        open_store(**options)


@pytest.mark.parametrize("given", [(5,), ("\ud800",), ("kafka", "orders"), ("kafka", [5])])
def test_who_is_furthest_behind_is_asked_by_names(catalog: ld.Catalog, given: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInputError):
        min_confirmed(catalog.reading, *given)
