"""Configuration: who wins, what is refused, what is never shown."""

import datetime as dt
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.config import KEYS, STORAGE_TABLE, Settings, load_settings, parse_duration, variable_of
from laminar_delta.errors import InvalidInputError, NotFoundError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SECRET = "hunter2hunter2"
EXAMPLE = Path(__file__).parents[2] / "conf" / "laminar-delta.toml"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _file(text: str) -> Path:
    path = Path("some.toml")
    path.write_text(text)
    return path


def test_arguments_beat_the_environment_which_beats_the_file() -> None:
    path = _file('catalog = "file"\nengine = "spark"\nowner = "file"\n[retention]\nkeep_last = 1\nkeep_for = "2d"')
    found = load_settings(
        file=path,
        environment={"LAMINAR_DELTA_OWNER": "env", "LAMINAR_DELTA_RETENTION_KEEP_LAST": "7", "OTHER": "x"},
        arguments={"owner": "argument", "engine": None},
    )
    assert (found.catalog, found.engine, found.owner) == ("file", "spark", "argument")
    assert (found.keep_last, found.keep_for) == (7, dt.timedelta(days=2))
    assert found.sources["owner"] == "argument"
    assert found.sources["retention.keep_last"] == "LAMINAR_DELTA_RETENTION_KEEP_LAST"
    assert found.sources["catalog"] == "some.toml"


def test_the_file_is_named_or_lies_here() -> None:
    assert load_settings(environment={}) == Settings()
    Path("conf").mkdir()
    Path("conf/laminar-delta.toml").write_text('catalog = "in conf"\nengine = "spark"')
    assert load_settings(environment={}).sources["catalog"] == "conf/laminar-delta.toml"
    assert load_settings(environment={}).catalog == "in conf"
    Path("laminar-delta.toml").write_text('catalog = "here"')
    # One file is read, not two put together.
    assert (load_settings(environment={}).catalog, load_settings(environment={}).engine) == ("here", None)
    path = _file('catalog = "named"')
    assert load_settings(environment={"LAMINAR_DELTA_CONFIG": str(path)}).catalog == "named"
    with pytest.raises(NotFoundError, match=r"nowhere\.toml"):
        load_settings(environment={"LAMINAR_DELTA_CONFIG": "nowhere.toml"})


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ('catalogue = "x"', "'catalog'"),
        ("[retention]\nkeep_lst = 1", "'retention.keep_last'"),
        ("[retentoin]\nkeep_last = 1", "'retention.keep_last'"),
        ("[maintain]\n", "'maintenance."),
        ("[log]\nformt = 'json'", "'log.format'"),
        ("storage_option = 'x'", "'storage_options'"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"Did you mean {nearest}"):
        load_settings(file=_file(text), environment={})


def test_an_unknown_variable_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match="Did you mean 'LAMINAR_DELTA_CATALOG'"):
        load_settings(environment={"LAMINAR_DELTA_CATALGO": "x"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("catalog", 7),
        ("catalog", ""),
        ("engine", "duck"),
        ("retention.keep_last", "many"),
        ("retention.keep_last", True),
        ("retention.keep_last", -3),
        ("maintenance.compact_after", "-1"),
        ("retention.keep_for", "a while"),
        ("retention.keep_for", 7),
        ("maintenance.vacuum", "perhaps"),
        ("log.level", "loud"),
        ("log.format", "xml"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_name_of_its_key(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(f"{name} from argument is {value!r}, not ")):
        load_settings(environment={}, arguments={name: value})


@pytest.mark.parametrize("text", ["catalog = ", "= 1", "catalog = 'x'\ncatalog = 'y'", "\x00"])
def test_what_is_no_toml_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"some\.toml is no TOML"):
        load_settings(file=_file(text), environment={})


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    Path("bad.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path, Path("bad.toml")):
        with pytest.raises(InvalidInputError, match="cannot be read"):
            load_settings(file=path, environment={})


def test_secrets_are_read_and_shown_nowhere() -> None:
    path = _file(f'[storage_options]\nAWS_SECRET_ACCESS_KEY = "{SECRET}"\nregion = "eu"')
    found = load_settings(
        file=path, environment={"LAMINAR_DELTA_STORAGE_OPTIONS_token": SECRET}, storage_options={"region": "us"}
    )
    assert found.storage_options["AWS_SECRET_ACCESS_KEY"] == found.storage_options["token"] == SECRET
    assert found.storage_options["region"] == "us"
    for shown in (repr(found), str(found), repr(found.storage_options), str(found.storage_options), f"{found}"):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "text",
    [
        f'storage_options = "{SECRET}"',
        f'[storage_options]\nkey = ["{SECRET}"]',
        f'[storage_options]\nkey = "{SECRET}',
        f'[storage_options]\nkey = "{SECRET}"\nkey = "{SECRET}"',
        f'[storage_option]\nkey = "{SECRET}"',
        f'[log]\nlevel = "debug"\n[storage_options]\nkey = {SECRET}',
    ],
)
def test_no_error_about_a_file_shows_a_secret_in_it(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        load_settings(file=_file(text), environment={})
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(vars(caught.value))


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("90s", dt.timedelta(seconds=90)),
        ("30m", dt.timedelta(minutes=30)),
        (" 12 h ", dt.timedelta(hours=12)),
        ("0d", dt.timedelta(0)),
        ("2w", dt.timedelta(days=14)),
    ],
)
def test_spans_of_time(text: str, span: dt.timedelta) -> None:
    assert parse_duration(text) == span


@pytest.mark.parametrize("text", ["", "7", "d", "-7d", "7 days", "1.5h", "99999999999999999w"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_duration(text)


def test_the_example_names_every_key_and_no_other() -> None:
    """With its keys uncommented it is a file that is accepted."""
    text = re.sub(r"^# (?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    document = tomllib.loads(text)
    names = {
        f"{name}.{inner}" if isinstance(value, dict) else name
        for name, value in document.items()
        if name != STORAGE_TABLE
        for inner in (value if isinstance(value, dict) else [""])
    }
    assert names == set(KEYS)
    found = load_settings(file=_file(text), environment={})
    defaults = load_settings(file=EXAMPLE, environment={})
    assert defaults == Settings()
    assert (found.log_level, found.log_format) == (defaults.log_level, defaults.log_format)


def test_the_example_shows_the_defaults_of_maintenance() -> None:
    from laminar_delta.catalog.maintenance import MaintenancePolicy

    text = re.sub(r"^# (?=\w+ = )", "", EXAMPLE.read_text(), flags=re.MULTILINE)
    found, policy = load_settings(file=_file(text), environment={}), MaintenancePolicy()
    assert (found.grace, found.compact_after, found.vacuum) == (policy.grace, policy.compact_after, policy.vacuum)


def test_every_key_has_a_variable_of_its_own() -> None:
    assert len({variable_of(name) for name in KEYS}) == len(KEYS)
    assert {key.attribute for key in KEYS.values()} == set(Settings.__dataclass_fields__) - {
        "storage_options",
        "sources",
    }
