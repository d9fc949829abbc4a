"""Someone who has never seen it types what the pages say, one command after another, in a fresh clone."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.typed import HOW_TOS, LAMINARDB, ROOT, shell_blocks, type_page

pytestmark = pytest.mark.soak


def test_the_commands_of_the_pages_work_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    shutil.copytree(clone / LAMINARDB, clone / "old")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {
        **inherited,
        "PATH": f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # `make test` is what CI runs by itself; here it runs the lint and a few tests.
        "TESTS": "tests/unit/test_package.py tests/unit/test_errors.py",
    }
    pages = [clone / page for page in ("README.md", *HOW_TOS)]
    for page in pages:
        type_page(page, clone, environment)
    assert sum(len(block.splitlines()) for page in pages for block in shell_blocks(page)) > 20
    assert (clone / "report.html").stat().st_size > 500_000
    status = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True, check=True).stdout
    made = {"?? catalog/", "?? demo/", "?? old/", "?? out/", "?? report.html"}
    assert set(status.splitlines()) <= made
