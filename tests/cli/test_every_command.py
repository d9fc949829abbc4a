"""Every command that is registered: its text, its JSON, a wrong call, its help. A new one fails here until it has a case."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_delta.cli.main import FAMILIES, application
from laminar_delta.cli.registry import COMMANDS, GROUPS
from tests.cli.cases import BEFORE, CASES, Case
from tests.cli.support import ORDERS, Run, paths

application()  # registers them
every_command = pytest.mark.parametrize("name", list(COMMANDS))


def test_every_command_has_a_case() -> None:
    assert set(CASES) == set(COMMANDS)


def test_a_call_knows_the_family_of_its_command() -> None:
    for family, words in FAMILIES.items():
        own = {
            name.partition(" ")[0] for name, found in COMMANDS.items() if found.run.__module__.endswith(f".{family}")
        }
        assert own == set(words)
    assert {found.run.__module__ for found in COMMANDS.values()} == {f"laminar_delta.cli.{name}" for name in FAMILIES}


def test_a_call_imports_its_own_family_and_nothing_that_only_spark_needs(template: Path) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        "from laminar_delta.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, "latest", ORDERS, "--catalog", str(template)]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())
    assert "pyarrow" in loaded
    assert not loaded & {"numpy", "pandas", "laminar_delta.catalog.maintenance"}
    assert loaded & {f"laminar_delta.cli.{family}" for family in FAMILIES} == {"laminar_delta.cli.looking"}


def _prepared(run: Run, name: str, place: Path) -> list[str]:
    """What makes the catalog known to a command."""
    for earlier in BEFORE.get(name, []):
        assert run(*earlier, "--catalog", place).returncode == 0
    return ["--catalog", str(place)] if CASES[name].catalog else []


@every_command
def test_text_is_for_people(run: Run, place: Path, name: str) -> None:
    case = CASES[name]
    done = run(*case.good, *_prepared(run, name, place))
    assert (done.returncode, done.stderr) == (case.exit_code, "")
    assert case.says in done.stdout


@every_command
def test_json_has_the_fields_that_are_declared(run: Run, place: Path, name: str) -> None:
    case, declared = CASES[name], COMMANDS[name].fields
    option = _prepared(run, name, place)
    seen: set[str] = set()
    for arguments in [case.good, *case.more]:
        done = run(*arguments, *option, "--json")
        assert done.stderr == ""
        assert isinstance(done.json, dict)
        found = set(paths(done.json, declared))
        assert found <= set(declared)
        seen |= found
    # What is inside a list shows only where the list has something.
    listed = {path for path in declared if path.partition("[]")[0] in seen}
    assert set(declared) - seen <= listed


@every_command
def test_a_wrong_call_is_one_sentence_and_the_exit_code_of_its_kind(run: Run, place: Path, name: str) -> None:
    case: Case = CASES[name]
    option = [] if "--catalog" in case.wrong or not case.catalog else ["--catalog", str(place)]
    done = run(*case.wrong, *option)
    assert done.returncode == case.code
    assert done.stderr.startswith("error: ")
    assert case.sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout.replace("laminar_delta_up 0", "").count("\n") <= 3
    told = run(*case.wrong, *option, "--json")
    assert (told.returncode, told.stdout) == (case.code, "")
    assert f'"exit_code": {int(case.code)}' in told.stderr


@every_command
def test_an_option_that_is_not_there_is_a_usage_error(run: Run, name: str) -> None:
    done = run(*name.split(), "--no-such-option")
    assert done.returncode == 2
    assert "No such option" in done.stderr


@every_command
def test_help_says_what_it_does_and_what_all_have(run: Run, name: str) -> None:
    done = run(*name.split(), "--help")
    assert done.returncode == 0
    assert COMMANDS[name].summary.rstrip(".") in done.stdout
    for option in ("--json", "--debug", "--config", "--log-format"):
        assert option in done.stdout
    assert ("--catalog" in done.stdout) == CASES[name].catalog
    # A command that asks can be told not to ask, and one that does nothing by itself how to.
    assert ("--yes" in done.stdout) == ("--apply" in done.stdout)


def test_the_list_has_every_command_under_its_heading(run: Run) -> None:
    done = run("--help")
    assert done.returncode == 0
    assert re.findall(r"^(\w[\w ,]+):$", done.stdout, re.MULTILINE) == ["Options", *GROUPS]
    for found in COMMANDS.values():
        assert f"\n  {found.name.partition(' ')[0]} " in done.stdout
    # Each is told in full: nothing is cut off in the list.
    assert "..." not in done.stdout.split("Look:")[1]
    assert run("--version").stdout.startswith("laminar-delta ")
    assert run("nonsense").returncode == 2
