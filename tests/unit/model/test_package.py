"""What importing the model brings with it, and what it exports."""

import json
import subprocess
import sys

from laminar_delta import model

FORBIDDEN = {
    "asyncio",
    "delta",
    "deltalake",
    "hashlib",
    "hypothesis",
    "logging",
    "numpy",
    "pyarrow",
    "pyspark",
    "pytest",
    "urllib",
    "uuid",
    "uuid_utils",
}


def test_importing_the_model_loads_nothing_heavy() -> None:
    # With a star: names are loaded when they are first used.
    program = "import json, sys; from laminar_delta.model import *; print(json.dumps(sorted(sys.modules)))"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout
    loaded = set(json.loads(output))
    assert loaded & FORBIDDEN == set()
    ours = {name for name in loaded if name.startswith("laminar_delta.")}
    assert {name for name in ours if not name.startswith("laminar_delta.model")} <= {
        "laminar_delta.errors",
        "laminar_delta._lazy",
        "laminar_delta._version",
    }


def test_exports_are_sorted_and_exist() -> None:
    constants = [name for name in model.__all__ if name.isupper()]
    classes = [name for name in model.__all__ if name[0].isupper() and not name.isupper()]
    functions = [name for name in model.__all__ if name[0].islower()]
    assert model.__all__ == [*sorted(constants), *sorted(classes), *sorted(functions)]
    assert all(hasattr(model, name) for name in model.__all__)
