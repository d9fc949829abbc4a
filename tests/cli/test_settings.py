"""Configuration, logs and secrets as a caller of the command line meets them."""

import json
from pathlib import Path

import pytest

from laminar_delta.cli.exits import MEANING, Exit, exit_for
from laminar_delta.errors import LaminarDeltaError
from tests.cli.support import ORDERS, Run

SECRET = "hunter2hunter2"


def test_the_catalog_is_named_by_file_environment_or_argument(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = run("ls")
    assert nobody.returncode == 2
    assert "no catalog is named. Give --catalog, set LAMINAR_DELTA_CATALOG" in nobody.stderr
    Path("conf").mkdir()
    Path("conf/laminar-delta.toml").write_text(f'catalog = "{place}"\n')
    assert ORDERS in run("ls").stdout
    Path("laminar-delta.toml").write_text(f'catalog = "{place}"\n[retention]\nkeep_last = 1\n')
    assert ORDERS in run("ls").stdout
    assert "would go" in run("prune", ORDERS).stdout
    monkeypatch.setenv("LAMINAR_DELTA_CATALOG", "nowhere")
    assert run("ls").returncode == 3
    assert ORDERS in run("ls", "--catalog", place).stdout
    told = run("doctor", "--json").json["settings"]
    assert told["catalog"] == "LAMINAR_DELTA_CATALOG"
    assert told["retention.keep_last"] == "laminar-delta.toml"


def test_what_maintenance_is_told_comes_from_the_file_too(run: Run, place: Path) -> None:
    Path("laminar-delta.toml").write_text(f'catalog = "{place}"\n[maintenance]\ngrace = "0s"\nvacuum_after = "1h"\n')
    refused = run("maintain")
    assert refused.returncode == 2
    assert "would cut the healing window" in refused.stderr
    unhealthy = run("doctor", "--json")
    assert unhealthy.returncode == 1
    assert next(one for one in unhealthy.json["checks"] if one["name"] == "retention")["level"] == "problem"
    assert run("maintain", "--no-vacuum", "--json").json["removed"] == {"payments": [1]}


def test_owner_is_who_it_was(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_DELTA_OWNER", "ann")
    assert run("pin", ORDERS, 3, "--reason", "x", "--catalog", place).returncode == 0
    newest = run("history", ORDERS, "--catalog", place, "--json").json["events"][0]
    assert (newest["what"], newest["owner"], newest["reason"]) == ("pinned: checkpoint 3", "ann", "x")


def test_a_misspelt_setting_is_refused_with_the_nearest(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINAR_DELTA_CATALGO", "x")
    done = run("ls")
    assert done.returncode == 2
    assert "Did you mean 'LAMINAR_DELTA_CATALOG'?" in done.stderr


def test_logs_are_json_lines_on_standard_error(run: Run, place: Path) -> None:
    options = ["--catalog", place, "--log-level", "info", "--log-format", "json"]
    done = run("pin", ORDERS, 3, "--reason", "x", *options, "--json")
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert [record["event"] for record in records] == ["retention.decided"]
    assert records[0]["fields"]["decisions"] == {"3": "pinned"}
    assert done.json["decision"] == "pinned"
    # Of the next call nothing is left over.
    assert run("unpin", ORDERS, 3, "--catalog", place).stderr == ""


@pytest.mark.parametrize("more", [[], ["--json"], ["--debug"]])
def test_a_secret_is_printed_nowhere(run: Run, more: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an error that quotes what it was given, such as a store's that parses its options."""
    import laminar_delta as ld

    def fails(*_: object, **options: object) -> None:
        raise ld.StorageError(f"cannot sign with {SECRET}: {options}", found=SECRET)

    monkeypatch.setattr("laminar_delta.catalog.opening.open_engine", fails)
    monkeypatch.setenv("LAMINAR_DELTA_STORAGE_OPTIONS_aws_secret_access_key", SECRET)
    location = ["--catalog", f"s3://me:{SECRET}@bucket", "--storage-option", f"token={SECRET}x"]
    done = run("ls", *location, *more, "--log-level", "debug")
    assert done.returncode == 6
    assert "cannot sign with ***" in done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("option", "value"), [("retry_timeout", "1s"), ("timeout", SECRET), ("aws_allow_http", SECRET)]
)
def test_a_real_store_that_quotes_what_it_was_given_gives_nothing_away(run: Run, option: str, value: str) -> None:
    """An object store that does not answer, or cannot make sense of an option."""
    options = {
        "aws_access_key_id": "AKIASECRETID",
        "aws_secret_access_key": SECRET,
        "aws_endpoint_url": "http://127.0.0.1:9",
        "aws_region": "eu",
        "aws_allow_http": "true",
        "max_retries": "0",
        option: value,
    }
    given = [word for name, text in options.items() for word in ("--storage-option", f"{name}={text}")]
    done = run("ls", "--catalog", "s3://bucket/catalog", *given, "--debug", "--log-level", "debug")
    assert done.returncode == 6
    assert "Traceback" in done.stderr
    for secret in (SECRET, "AKIASECRETID"):
        assert secret not in done.stdout + done.stderr


def test_a_location_with_credentials_is_named_without_them(tmp_path: Path) -> None:
    """Also by the library, to whoever catches the error."""
    import laminar_delta as ld
    from laminar_delta.engine.memory import MemoryEngine

    place = f"nosuch://me:{SECRET}@bucket"
    with pytest.raises(ld.NotFoundError, match=r"nosuch://\*\*\*@bucket") as caught:
        ld.open_catalog(place, engine="memory", create=False)
    assert SECRET not in repr(caught.value) + repr(vars(caught.value))
    assert SECRET not in repr(ld.Catalog(MemoryEngine(place)))


def test_a_storage_option_that_is_no_pair_is_refused_without_showing_it(run: Run) -> None:
    done = run("ls", "--catalog", "x", "--storage-option", SECRET)
    assert done.returncode == 2
    assert SECRET not in done.stderr


def test_doctor_names_storage_options_and_hides_their_values(run: Run, place: Path) -> None:
    done = run("doctor", "--catalog", place, "--storage-option", f"region={SECRET}")
    assert "storage option region = ***" in done.stdout
    assert SECRET not in done.stdout


def test_a_mistake_of_the_program_is_a_sentence_too(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nnought")

    monkeypatch.setattr("laminar_delta.catalog.catalog.Catalog.overview", breaks)
    done = run("ls", "--catalog", place)
    assert (done.returncode, done.stderr.count("\n")) == (70, 1)
    assert "ZeroDivisionError: by nought" in done.stderr
    assert "Traceback" in run("ls", "--catalog", place, "--debug").stderr


def test_every_kind_of_error_has_an_exit_code_and_every_code_a_meaning() -> None:
    assert set(MEANING) == set(Exit)

    def kinds(kind: type[LaminarDeltaError]) -> list[type[LaminarDeltaError]]:
        return [kind, *(inner for found in kind.__subclasses__() for inner in kinds(found))]

    for kind in kinds(LaminarDeltaError)[1:]:
        assert exit_for(kind("x")) not in (Exit.OK, Exit.FINDING, Exit.INTERNAL, Exit.DECLINED), kind


def test_shell_completion_knows_commands_and_pipelines(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LAMINAR_DELTA_COMPLETE", "complete_bash")
    monkeypatch.setenv("LAMINAR_DELTA_CATALOG", str(place))

    def complete(words: str) -> list[str]:
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        return run().stdout.split()

    assert complete("laminar-delta va") == ["validate"]
    assert complete("laminar-delta show pay") == ["payments"]
    monkeypatch.setenv("LAMINAR_DELTA_CATALOG", "nowhere")
    assert complete("laminar-delta show pay") == []
