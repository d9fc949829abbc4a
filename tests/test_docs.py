"""Python in README and docs runs. A block can opt out only with a written reason, `python notest: why`."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```(\S+)([^\n]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def _blocks() -> list[tuple[str, str, str]]:
    found = []
    for page in PAGES:
        for number, match in enumerate(FENCE.finditer(page.read_text())):
            found.append((f"{page.relative_to(ROOT)}-{number}", match[1] + match[2], match[3]))
    return found


@pytest.mark.parametrize(
    "code", [pytest.param(code, id=name) for name, language, code in _blocks() if language.strip() == "python"]
)
def test_a_python_block_runs(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "block", "exec"), {"__name__": "block"})


def test_every_block_names_its_language_and_every_exception_its_reason() -> None:
    for name, language, _ in _blocks():
        kind, _, rest = language.partition(" ")
        assert kind in ("python", "bash", "text", "sql", "json"), name
        assert not rest.strip() or re.fullmatch(r"notest: \S.{10,}", rest.strip()), name


def test_links_within_the_repository_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)}: {target}"


def test_links_of_the_pages_stay_among_them() -> None:
    """The site is made of `docs` and nothing else."""
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            inside = "://" in target or (page.parent / target).resolve().is_relative_to(ROOT / "docs")
            assert inside, f"{page.relative_to(ROOT)}: {target}"


def test_decisions_are_numbered_once() -> None:
    numbers = [path.name[:4] for path in (ROOT / "docs" / "adr").glob("*.md")]
    assert sorted(numbers) == [f"{n:04}" for n in range(len(numbers))]
