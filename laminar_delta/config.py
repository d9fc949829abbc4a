"""Configuration: one TOML file, the environment, arguments; what comes later in this list wins.

    catalog = "./checkpoints"

    [retention]
    keep_last = 10
    keep_for = "7d"

A key is known to all three: `retention.keep_last` in the file, `LAMINAR_DELTA_RETENTION_KEEP_LAST` in the environment. A name
that is not known is refused with the nearest one there is. Storage options are secrets: read, never written or shown.
"""

from __future__ import annotations

import datetime as dt
import difflib
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from laminar_delta.errors import InvalidInputError, NotFoundError
from laminar_delta.masking import MaskedOptions, masked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "LAMINAR_DELTA_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
STORAGE_PREFIX = f"{PREFIX}STORAGE_OPTIONS_"
DEFAULT_FILES = ("laminar-delta.toml", "conf/laminar-delta.toml")
"""Where the file is looked for; the first that is there is read, and no other."""
STORAGE_TABLE = "storage_options"

LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("debug", "info", "warning", "error")

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DURATION = re.compile(r"\s*(\d+)\s*([smhdw])\s*")


def parse_duration(text: str) -> dt.timedelta:
    """A span such as `90s`, `30m`, `12h`, `7d` or `2w`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{text!r} is no span of time",
            expected="such as 7d",
            found=text,
            next_step="Write it as 90s, 30m, 12h, 7d or 2w.",
        )
    try:
        return dt.timedelta(**{_UNITS[found[2]]: int(found[1])})
    except OverflowError as error:
        raise InvalidInputError(f"{text!r} is too long a span", expected="less", found=text) from error


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text of one character or more")
    if not value.isascii() and value != value.encode("utf-8", "replace").decode():
        raise ValueError("text in UTF-8")
    return value


def _number(value: object) -> int:
    """All numbers are counts of something: none is below 0."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ValueError("a whole number")
    try:
        number = int(value)
    except ValueError:
        raise ValueError("a whole number") from None
    if number < 0:
        raise ValueError("0 or more")
    return number


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("true or false")


def _span(value: object) -> dt.timedelta:
    if isinstance(value, dt.timedelta):
        return value
    try:
        return parse_duration(_text(value))
    except InvalidInputError:
        raise ValueError("a span such as 7d") from None


def _one_of(*words: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return parse


@dataclass(frozen=True, slots=True)
class Key:
    """One thing that can be configured."""

    attribute: str
    """Of `Settings`."""
    parse: Callable[[object], Any]
    """Raises `ValueError` saying what it should be."""
    meaning: str


KEYS: Mapping[str, Key] = {
    "catalog": Key("catalog", _text, "where the catalog is: a directory, a URI, or a schema name on Spark"),
    "engine": Key(
        "engine", _one_of("embedded", "spark", "memory"), "which engine commits; by default what the location says"
    ),
    "owner": Key("owner", _text, "who you are, for the audit; by default user and process"),
    "retention.keep_last": Key("keep_last", _number, "`prune` keeps the newest so many"),
    "retention.keep_for": Key("keep_for", _span, "`prune` keeps those younger than this"),
    "maintenance.grace": Key("grace", _span, "how long after it was retired a checkpoint's rows are removed"),
    "maintenance.compact_after": Key(
        "compact_after", _number, "commits to a table that make compaction worth its cost"
    ),
    "maintenance.vacuum": Key("vacuum", _flag, "whether files that no version needs are deleted"),
    "maintenance.vacuum_after": Key("vacuum_after", _span, "how long such files stay; at least the healing window"),
    "maintenance.keep_progress_for": Key(
        "keep_progress_for", _span, "how long what streaming queries said of themselves is kept; for ever unless set"
    ),
    "log.level": Key("log_level", _one_of(*LOG_LEVELS), "what is logged to standard error"),
    "log.format": Key("log_format", _one_of(*LOG_FORMATS), "how: for people, or a JSON object per line"),
}
"""All keys by their dotted name; `storage_options` is a table of its own with any names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What was configured. None where nobody said anything."""

    catalog: str | None = None
    engine: str | None = None
    owner: str | None = None
    keep_last: int | None = None
    keep_for: dt.timedelta | None = None
    grace: dt.timedelta | None = None
    compact_after: int | None = None
    vacuum: bool | None = None
    vacuum_after: dt.timedelta | None = None
    keep_progress_for: dt.timedelta | None = None
    log_level: str = "warning"
    log_format: str = "text"
    storage_options: MaskedOptions = field(default_factory=MaskedOptions)
    sources: Mapping[str, str] = field(default_factory=dict)
    """For each key that was set, where: the file, the environment variable, or `argument`."""


def load_settings(
    *,
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Settings:
    """Puts file, environment and arguments together.

    Args:
        file: The TOML file; by default the one `LAMINAR_DELTA_CONFIG` names, else `laminar-delta.toml` here or in `conf`.
        environment: The environment variables; those of this process by default.
        arguments: Values by dotted name; None for those not given.
        storage_options: Further storage options, stronger than all others.

    Raises:
        InvalidInputError: A name is not known, or a value is not what it should be. No value of a storage option is shown.
        NotFoundError: The file that was named is not there.
    """
    variables = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    options = MaskedOptions()
    path = _file(file, variables)
    if path is not None:
        _take(_flattened(_read(path), options), str(path), values, sources)
    _take_environment(variables, values, sources, options)
    given = {name: value for name, value in (arguments or {}).items() if value is not None}
    _take(given, "argument", values, sources)
    options.update(storage_options or {})
    return Settings(storage_options=options, sources=sources, **values)


def _file(named: str | Path | None, variables: Mapping[str, str]) -> Path | None:
    wanted = named or variables.get(CONFIG_VARIABLE)
    if wanted:
        return Path(wanted)
    return next((path for path in map(Path, DEFAULT_FILES) if path.is_file()), None)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise NotFoundError(f"there is no configuration file {path}", expected=str(path)) from error
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidInputError(f"the configuration file {path} cannot be read: {reason}") from error
    except tomllib.TOMLDecodeError as error:
        # Without the parser's own words beyond the place: they may quote a secret.
        place = re.search(r"\(at .*\)", str(error))
        raise InvalidInputError(
            f"{path} is no TOML {place[0] if place else ''}".rstrip(), expected="TOML", found="something else"
        ) from None
    return found


def _flattened(document: Mapping[str, Any], options: MaskedOptions) -> dict[str, object]:
    """The keys with dotted names; storage options go where they belong."""
    found: dict[str, object] = {}
    for name, value in document.items():
        if name == STORAGE_TABLE:
            if not isinstance(value, dict) or not all(isinstance(option, str) for option in value.values()):
                raise InvalidInputError(f"{STORAGE_TABLE} is no table of texts", expected="a table of texts")
            options.update(value)
        elif isinstance(value, dict):
            inner = {f"{name}.{key}": item for key, item in value.items()}
            # An empty table of ours says nothing; one that is not known is a misspelt name.
            found.update(inner or ({} if any(key.startswith(f"{name}.") for key in KEYS) else {name: value}))
        else:
            found[name] = value
    return found


def _take_environment(
    variables: Mapping[str, str], values: dict[str, Any], sources: dict[str, str], options: MaskedOptions
) -> None:
    known = {variable_of(name): name for name in KEYS}
    for variable, text in sorted(variables.items()):
        if not variable.startswith(PREFIX) or variable == CONFIG_VARIABLE:
            continue
        if variable.startswith(STORAGE_PREFIX) and variable != STORAGE_PREFIX:
            options[variable.removeprefix(STORAGE_PREFIX)] = text
        elif variable in known:
            _take({known[variable]: text}, variable, values, sources)
        else:
            raise _unknown(variable, "an environment variable", [*known, CONFIG_VARIABLE, f"{STORAGE_PREFIX}…"])


def variable_of(name: str) -> str:
    """The environment variable of a key."""
    return PREFIX + name.upper().replace(".", "_")


def _take(found: Mapping[str, object], source: str, values: dict[str, Any], sources: dict[str, str]) -> None:
    for name, value in found.items():
        key = KEYS.get(name)
        if key is None:
            raise _unknown(name, f"a key in {source}", [*KEYS, STORAGE_TABLE])
        try:
            values[key.attribute] = key.parse(value)
        except ValueError as error:
            raise InvalidInputError(
                masked(f"{name} from {source} is {value!r}, not {error}"), expected=str(error), found=value
            ) from None
        sources[name] = source


def _unknown(name: str, what: str, known: list[str]) -> InvalidInputError:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return InvalidInputError(
        f"there is no such setting: {name!r} is {what}",
        expected=sorted(known),
        found=name,
        next_step=f"Did you mean {nearest[0]!r}?",
    )
