"""Catalogs on every engine, for tests that must hold on all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld

ENGINES = [
    pytest.param("memory", id="memory"),
    pytest.param("embedded", id="embedded"),
    pytest.param("spark", id="spark", marks=pytest.mark.spark),
]
"""The engines a catalog test runs on. The memory engine is shared through a store, the others through the directory."""


def catalog_opener(engine: str, place: Path, request: pytest.FixtureRequest) -> Callable[[], ld.Catalog]:
    """Opens the same catalog again and again, as several programs would."""
    options: dict[str, Any] = {}
    if engine == "memory":
        options["store"] = {}
    elif engine == "spark":
        options["spark"] = request.getfixturevalue("spark")
    return lambda: ld.open_catalog(str(place), engine=engine, **options)
