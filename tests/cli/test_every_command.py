"""Every command that is registered: its text, its JSON, a wrong call, its help. A new one fails here until it has a case."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from laminar_delta.cli.application import FAMILIES, application
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


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("looking", ["latest", ORDERS]),
        ("looking", ["ls"]),
        ("happening", ["history", ORDERS]),
        ("deriving", ["offsets", "get", ORDERS]),
        ("safety", ["recover", ORDERS]),
        ("asking", ["metrics"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_call_imports_its_own_family_and_nothing_that_only_spark_needs(
    template: Path, family: str, words: list[str]
) -> None:
    program = (
        "import atexit, sys; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))\n"
        "from laminar_delta.cli.main import main; main()"
    )
    command = [sys.executable, "-c", program, *words, "--catalog", str(template)]
    loaded = set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())
    assert "pyarrow" in loaded
    # Each of these takes longer to import than what the command itself does.
    assert not loaded & {"numpy", "pandas", "pyarrow.compute", "filelock", "laminar_delta.catalog.maintenance"}
    assert ("laminar_delta.catalog.recovery" in loaded) == (words[0] == "recover")
    assert loaded & {f"laminar_delta.cli.{name}" for name in FAMILIES} == {f"laminar_delta.cli.{family}"}


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


def _refused(run: Run, *words: str) -> str:
    """The sentence that a call which is not understood is answered with; the same as JSON."""
    done = run(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("error: ")
    assert "--help` tells what can be given." in done.stderr or ", see `laminar-delta --help`." in done.stderr
    told = run(*words, "--json")
    assert (told.returncode, told.stdout) == (2, "")
    problem = json.loads(told.stderr)["error"]
    assert done.stderr == f"error: {problem['message']}\n"
    assert problem["message"].endswith(problem["next_step"])
    assert (problem["code"], problem["exit_code"]) == ("invalid-input", 2)
    return done.stderr


@every_command
def test_an_option_that_is_not_there_is_a_usage_error(run: Run, name: str) -> None:
    assert f"no such option: --nonsense. `laminar-delta {name} --help`" in _refused(run, *name.split(), "--nonsense")


@every_command
def test_an_argument_too_many_or_an_option_without_its_value_is_a_usage_error(run: Run, name: str) -> None:
    if name not in ("offsets set", "validate"):  # they take any number
        assert "extra argument" in _refused(run, *CASES[name].good, "7", "8", "9")
    done = run(*CASES[name].good, "--json", "--config")
    assert (done.returncode, done.stdout) == (2, "")
    assert "requires an argument" in json.loads(done.stderr)["error"]["message"]


@every_command
def test_an_option_before_the_command_is_told_where_it_goes(run: Run, name: str) -> None:
    for option in (["--engine", "spark"], ["--catalog", "x"], ["--log-level=info"]):
        flag = option[0].partition("=")[0]
        done = run(*option, *name.split())
        assert done.returncode == 2
        assert f"error: {flag} stands before the command. Put it behind: `laminar-delta COMMAND {flag}`" in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["show", ORDERS, "abc"],
            "invalid value for '[CHECKPOINT]': 'abc' is no whole number. `laminar-delta show --help`",
        ),
        (["ls", "--limit", "0"], "0 is not in the range x>=1"),
        (["latest"], "missing argument 'PIPELINE'. `laminar-delta latest --help`"),
        (["pin", ORDERS, "3"], "missing option '--reason'"),
        (["nonsense"], "no such command 'nonsense'. `laminar-delta --help`"),
        (["offsets", "nonsense"], "no such command 'nonsense'. `laminar-delta offsets --help`"),
        (["ls", "--jsn"], "no such option: --jsn. Did you mean --json? `laminar-delta ls --help`"),
        (["--bogus", "ls"], "no such option: --bogus. `laminar-delta --help`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_call_that_is_not_understood_is_one_sentence(run: Run, words: list[str], sentence: str) -> None:
    assert sentence in _refused(run, *words)


def test_a_secret_in_a_call_that_is_not_understood_is_not_shown(run: Run) -> None:
    told = run("ls", "--storage-option", "token=hunter2hunter2", "orders", "hunter2hunter2", "--debug")
    assert told.returncode == 2
    assert "hunter2" not in told.stderr


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    for words in ([], ["offsets"]):
        done = run(*words)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"Usage: {' '.join(['laminar-delta', *words])} " in done.stderr


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
    assert re.findall(r"^(\w[\w ,]+):$", done.stdout, re.MULTILINE) == ["Options", "Questions", *GROUPS]
    for found in COMMANDS.values():
        assert f"\n  {found.name.partition(' ')[0]} " in done.stdout
    # Each is told in full: nothing is cut off in the list.
    assert "..." not in done.stdout.split("Look:")[1]
    assert run("--version").stdout.startswith("laminar-delta ")
    assert run("nonsense").returncode == 2
