"""Engines are equal to the eye: the same methods with the same arguments as the contract."""

import inspect

import pytest

from laminar_delta.engine import ENGINES
from laminar_delta.engine.base import Engine


def _load(name: str) -> type[Engine]:
    module, _, attribute = ENGINES[name].partition(":")
    found: type[Engine] = getattr(__import__(module, fromlist=[attribute]), attribute)
    return found


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_an_engine_has_the_contracts_methods_and_of_others_those_it_names(name: str) -> None:
    engine = _load(name)
    assert engine.name == name
    contract = {n: m for n, m in inspect.getmembers(Engine, inspect.isfunction) if not n.startswith("__")}
    for method, wanted in contract.items():
        found = getattr(engine, method)
        assert [p.replace(annotation=p.empty) for p in inspect.signature(found).parameters.values()] == [
            p.replace(annotation=p.empty) for p in inspect.signature(wanted).parameters.values()
        ], method
    own = {name: m for name, m in inspect.getmembers(engine, inspect.isfunction) if not name.startswith("_")}
    assert own.keys() - contract.keys() == engine.beyond
