"""What `import laminar_delta` costs and needs."""

import subprocess
import sys
from importlib import metadata

HEAVY = ("pyspark", "delta", "deltalake", "pyarrow", "pandas", "numpy", "typer", "rich", "hypothesis", "pytest")


def _python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, laminar_delta; print([name for name in {HEAVY!r} if name in sys.modules])"
    assert _python(code) == "[]"


def test_the_package_and_its_core_work_without_spark_and_java() -> None:
    code = """
import sys
from importlib import metadata
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "delta", "py4j"):
            raise ImportError(f"{name} is not installed here")
sys.meta_path.insert(0, Refuse())
import os; os.environ["PATH"] = ""; os.environ.pop("JAVA_HOME", None)
import tempfile
import laminar_delta
from laminar_delta.engine import open_engine
from laminar_delta.catalog.tables import WRITERS
engine = open_engine("embedded", tempfile.mkdtemp())
assert engine.create(WRITERS)
from laminar_delta.errors import NotInstalledError
try:
    open_engine("spark", tempfile.mkdtemp())
except NotInstalledError as error:
    print(error)
"""
    assert "laminar-delta[spark]" in _python(code)


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    code = """
from laminar_delta.engine import open_engine
try:
    open_engine("sqlite", "x")
except ValueError as error:
    print(error.expected)
"""
    assert _python(code) == "['embedded', 'memory', 'spark']"


def test_everything_promised_at_the_top_is_there() -> None:
    import laminar_delta

    for name in laminar_delta.__all__:
        assert getattr(laminar_delta, name) is not None
        assert name in dir(laminar_delta)
    assert set(laminar_delta._HOME) == set(laminar_delta.__all__) - {"__version__"}


def test_versions_agree() -> None:
    import importlib.metadata

    import laminar_delta

    assert laminar_delta.__version__ == importlib.metadata.version("laminar-delta")


def test_installing_it_never_brings_another_spark() -> None:
    needed = [line for line in metadata.requires("laminar-delta") or [] if "extra ==" not in line]
    assert needed
    assert not [line for line in needed if "spark" in line.lower()]
