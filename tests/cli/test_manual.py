"""The page about the command line says what the code does."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from laminar_delta.cli.application import QUESTIONS, application
from laminar_delta.cli.exits import Exit
from laminar_delta.cli.manual import SECTIONS, written
from laminar_delta.cli.registry import COMMANDS
from tests.cli.support import Run

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
PAGES = [PAGE, *sorted(PAGE.parent.glob("**/*.md")), PAGE.parents[1] / "README.md"]


def test_the_page_is_what_the_code_says() -> None:
    """If not: `python -m laminar_delta.cli.manual docs/cli.md`."""
    assert PAGE.read_text() == written(PAGE.read_text())
    with pytest.raises(KeyError):
        written("no markers")


def test_every_command_has_a_place_on_the_page() -> None:
    text = SECTIONS["commands"]()
    for name, found in COMMANDS.items():
        assert f"\n#### {name}\n" in text
        assert found.summary in text
        for path, meaning in found.fields.items():
            assert f"| `{path}` | {meaning} |" in text


def _typed() -> list[tuple[str, str]]:
    """The calls that pages show."""
    found = []
    for page in PAGES:
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            found += [(page.name, line) for line in block.splitlines() if line.startswith("laminar-delta ")]
    return found


@pytest.mark.parametrize(("page", "line"), _typed())
def test_what_pages_show_can_be_typed(page: str, line: str) -> None:
    """Parsed with the options the commands have; nothing is run."""
    words = shlex.split(line, comments=True)[1:]
    group = typer.main.get_command(application())
    context = group.make_context("laminar-delta", list(words), resilient_parsing=False)
    name, command, rest = group.resolve_command(context, [*context._protected_args, *context.args])  # type: ignore[attr-defined]
    while hasattr(command, "commands"):
        inner = command.make_context(name, list(rest), parent=context)
        name, command, rest = command.resolve_command(inner, [*inner._protected_args, *inner.args])
    command.make_context(name, list(rest), parent=context)


@pytest.mark.parametrize("line", re.findall(r"`(laminar-delta [^`]+)`", (PAGE.parent / "operations.md").read_text()))
def test_what_operations_says_to_run_can_be_run_as_it_stands(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("LAMINAR_DELTA_CATALOG", str(place))
    done = run(*shlex.split(line)[1:])
    assert done.stderr == ""
    assert done.returncode in (Exit.OK, Exit.FINDING)


def test_the_answers_of_the_page_are_found(run: Run, place: Path) -> None:
    """The four questions, on a catalog in which the answers are known."""
    option = ["--catalog", place]
    safe = run("recover", "orders", *option)
    assert "orders would go on from checkpoint 5" in safe.stdout
    assert "orders: checkpoint 5" in run("latest", "orders", "--at", "0s ago", *option).stdout
    why = run("recover", "orders", "--past", "--chose", 3, *option)
    assert "undelivered: sink 'warehouse' is Failed" in why.stdout
    pruned = run("prune", "orders", "--keep-last", "1", *option)
    assert "pinned" in pruned.stdout
    assert "would go" in pruned.stdout


def test_the_readme_answers_the_questions_of_the_help() -> None:
    readme = PAGES[-1].read_text()
    for question, answer in list(QUESTIONS.items())[:4]:
        assert question.lower() in readme
        for command in answer.replace("then ", "").split(", "):
            assert f"`{command}`" in readme
