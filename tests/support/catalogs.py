"""Catalogs on every engine, for tests that must hold on all of them."""

import shutil
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

ENGINES_SPARK_IN_SOAK = [
    *ENGINES[:2],
    pytest.param("spark", id="spark", marks=[pytest.mark.spark, pytest.mark.soak]),
]
"""The same for faces over the core: on Spark, where a test takes seconds, they run with `make soak`."""

ON_DISK = ENGINES[1:]
"""Those whose catalogs are files, for tests that break some."""

_templates: dict[str, Path] = {}

QUICK_ENGINES = [engine for engine in ENGINES if not engine.marks]
"""Those that need no JVM, for tests of what is decided above the engines."""

MEMORY_AND_EMBEDDED_IN_SOAK = [ENGINES[0], pytest.param("embedded", id="embedded", marks=pytest.mark.soak)]
"""For tests that repeat something at its every step: hundreds of commits."""


def catalog_opener(engine: str, place: Path, request: pytest.FixtureRequest) -> Callable[[], ld.Catalog]:
    """Opens the same catalog again and again, as several programs would. It is not made before the first does."""
    options: dict[str, Any] = {}
    if engine == "memory":
        options["store"] = {}
    elif engine == "spark":
        options["spark"] = request.getfixturevalue("spark")
    return lambda: ld.open_catalog(str(place), engine=engine, **options)


def ready_made(engine: str, place: Path, request: pytest.FixtureRequest) -> Callable[[], ld.Catalog]:
    """The same for a catalog that exists already. Spark takes ten seconds to make one, so its first is copied."""
    opener = catalog_opener(engine, place, request)
    if engine == "spark":
        if engine not in _templates:
            factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
            _templates[engine] = factory.mktemp("template") / "catalog"
            catalog_opener(engine, _templates[engine], request)()
        shutil.copytree(_templates[engine], place)
    return opener
