"""Someone who has never seen it types what the pages say, one command after another, in a fresh clone."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/howto/save-and-recover.md",
    "docs/howto/deliver-exactly-once.md",
    "docs/howto/find-out-what-happened.md",
    "docs/howto/go-back.md",
    "docs/howto/keep-and-prune.md",
    "docs/howto/serve-positions.md",
    "docs/interop.md",
)
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.soak


def test_all_how_tos_are_typed() -> None:
    assert {page for page in PAGES if "howto" in page} == {
        str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "howto").glob("*.md")
    }


def test_the_commands_of_the_pages_work_in_a_fresh_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    # What someone who comes from LaminarDB has.
    shutil.copytree(clone / "tests" / "data" / "golden" / "fs" / "full", clone / "old")
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment = {
        **inherited,
        "PATH": f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        # `make test` is what CI runs by itself; here it runs the lint and a few tests.
        "TESTS": "tests/unit/test_package.py tests/unit/test_errors.py",
    }
    typed = 0
    for page in PAGES:
        for block in BLOCK.findall((clone / page).read_text()):
            done = subprocess.run(
                ["bash", "-e", "-x", "-o", "pipefail", "-c", block],
                cwd=clone,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{page}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
            typed += len(block.splitlines())
    assert typed > 20
    assert (clone / "report.html").stat().st_size > 500_000
    status = subprocess.run(["git", "status", "--short"], cwd=clone, capture_output=True, text=True, check=True).stdout
    made = {"?? catalog/", "?? demo/", "?? old/", "?? out/", "?? report.html"}
    assert set(status.splitlines()) <= made
