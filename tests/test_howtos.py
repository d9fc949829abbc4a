"""What the how-tos and the page on interop tell people to type works and does what they say, in an empty directory.

The README and its set-up are typed in a fresh clone, which takes longer: `tests/soak/test_newcomer.py`.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.typed import HOW_TOS, LAMINARDB, ROOT, shell_blocks, type_page

SHOWN = {
    "docs/howto/find-out-what-happened.md": (
        "No gap, no repeat",
        "sums would go on from checkpoint",
        "recovery chose checkpoint",
        "intact",
        "Wrote report.html",
    ),
    "docs/howto/go-back.md": (
        "would be made from 5 of sums (rewind). ",
        "is made from 5 of sums (rewind). ",
        "sums: checkpoint",
        "(undo). ",
    ),
    "docs/howto/keep-and-prune.md": (
        "Checkpoint 3 of sums is pinned",
        "Nothing was changed: --apply does it.",
        "Retired: ",
        "Checkpoint 2 of sums is visible",
        "reclaimable",
    ),
    "docs/interop.md": ("Intact.", "10 would be imported", "10 imported", "10 checkpoints written"),
}
"""Per page with something to type, what is printed when it did what the page says, in this order."""


def test_all_how_tos_are_typed_and_looked_at() -> None:
    found = {str(page.relative_to(ROOT)) for page in (ROOT / "docs" / "howto").glob("*.md")}
    assert {page for page in HOW_TOS if "howto" in page} == found
    assert [page for page in HOW_TOS if shell_blocks(ROOT / page)] == list(SHOWN)


@pytest.mark.processes
def test_what_the_pages_tell_to_type_does_what_they_say(tmp_path: Path) -> None:
    shutil.copytree(ROOT / LAMINARDB, tmp_path / "old")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("LAMINAR_DELTA_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**inherited, "PATH": path, "COLUMNS": "200"}
    for page in HOW_TOS:
        printed = " ".join(type_page(ROOT / page, tmp_path, environment).split())
        for words in SHOWN.get(page, ()):
            _, found, printed = printed.partition(words)
            assert found, f"{page}: no {words!r} in what is left: {printed}"
    assert (tmp_path / "report.html").stat().st_size > 500_000
    assert list((tmp_path / "out").rglob("manifest.json"))
