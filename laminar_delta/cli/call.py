"""One call of the command line: its settings, its catalog, its output, and what becomes of errors."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from laminar_delta.cli.exits import Declined, Exit, exit_for
from laminar_delta.cli.output import Output
from laminar_delta.cli.texts import printable
from laminar_delta.config import Settings, load_settings
from laminar_delta.errors import ErrorCode, InvalidInputError, LaminarDeltaError
from laminar_delta.logs import Event, JsonFormatter, log_event
from laminar_delta.masking import masked

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
_own_process = False


@dataclass(slots=True)
class Call:
    """What a command works with."""

    settings: Settings
    out: Output
    exit_code: Exit = Exit.OK
    _opened: list[Catalog] = field(default_factory=list)

    def catalog(self, *, create: bool = False) -> Catalog:
        """The catalog the settings name; opened once."""
        if not self._opened:
            import laminar_delta as ld

            found = ld.open_catalog(self.location, engine=self.settings.engine, create=create, **self.options)
            self._opened.append(found)
        return self._opened[0]

    def pipeline(self, name: str) -> Pipeline:
        """A pipeline that has, or had, something in the catalog; a misspelt name is `NotFoundError`, not an empty answer."""
        return self.catalog().known_pipeline(name)

    @property
    def location(self) -> str:
        """Where the catalog is."""
        if self.settings.catalog is None:
            raise InvalidInputError(
                "no catalog is named",
                expected="a catalog",
                next_step="Give --catalog, set LAMINAR_DELTA_CATALOG, or write `catalog = …` into laminar-delta.toml, here or "
                "in conf.",
            )
        return self.settings.catalog

    @property
    def options(self) -> dict[str, Any]:
        """What the engine takes."""
        return {"storage_options": dict(self.settings.storage_options)} if self.settings.storage_options else {}

    def finding(self) -> None:
        """Something is wrong with what was looked at: the command goes on, and ends with that exit code."""
        self.exit_code = Exit.FINDING

    def close(self) -> None:
        """Lets go of the catalog."""
        for catalog in self._opened:
            catalog.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """The options that every command has."""

    catalog: str | None = None
    engine: str | None = None
    storage_option: list[str] | None = None
    config: Path | None = None
    as_json: bool = False
    yes: bool = False
    log_level: str | None = None
    log_format: str | None = None
    debug: bool = False


@contextmanager
def answering(common: Common) -> Iterator[Call]:
    """Runs a command: an error becomes one sentence and an exit code, with a traceback only if `--debug` was given."""
    settings = Settings()
    try:
        settings = _settings(common)
        out = Output(common.as_json, common.yes, lambda text: masked(text, settings.storage_options))
        call = Call(settings, out)
        _leave_out_what_spark_needs(settings)
        with _logging(settings):
            try:
                yield call
            except LaminarDeltaError as error:
                log_event(_LOG, logging.DEBUG, Event.CALL_FAILED, "%s", error, code=str(error.code))
                raise
            finally:
                call.close()
    except LaminarDeltaError as error:
        code = exit_for(error)
        tell(common, settings, code, error, str(error), str(error.code), error.next_step)
    except Declined as answer:
        code = Exit.DECLINED
        tell(common, settings, code, answer, "you said no: nothing was changed", "declined", "")
    except (typer.Exit, BrokenPipeError):
        raise
    except OSError as error:
        code = Exit.STORAGE
        tell(common, settings, code, error, unwritten(error), str(ErrorCode.STORAGE), "")
    except Exception as error:  # noqa: BLE001  # whatever it is, a person gets a sentence
        code = Exit.INTERNAL
        text = f"this program made a mistake: {type(error).__name__}: {error}. Repeat with --debug to see where, and report it."
        tell(common, settings, code, error, text, "internal", "Repeat with --debug.")
    else:
        code = call.exit_code
    raise typer.Exit(code)


def unwritten(error: OSError) -> str:
    """What the system refused. Where it names no file it is the answer: the library's own errors are of other kinds."""
    what = "the answer cannot be written" if error.filename is None else f"{error.filename!r} cannot be used"
    return f"{what}: {error.strerror or error}"


def tell(
    common: Common, settings: Settings, code: Exit, error: BaseException, text: str, name: str, next_step: str
) -> None:
    """Prints what went wrong."""
    options = {**settings.storage_options, **_pairs(common.storage_option, strict=False)}
    if common.debug:
        typer.echo(masked("".join(traceback.format_exception(error)), options), err=True)
    sentence = masked(" ".join(text.split()), options)
    if common.as_json:
        problem = {"code": name, "message": sentence, "next_step": masked(next_step, options), "exit_code": int(code)}
        typer.echo(json.dumps({"error": problem}, ensure_ascii=False), err=True)
    else:
        typer.echo(f"error: {printable(sentence)}", err=True)


def _settings(common: Common) -> Settings:
    return load_settings(
        file=common.config,
        arguments={
            "catalog": common.catalog,
            "engine": common.engine,
            "log.level": common.log_level,
            "log.format": common.log_format,
        },
        storage_options=_pairs(common.storage_option),
    )


def _pairs(texts: list[str] | None, *, strict: bool = True) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if equals and name:
            found[name] = value
        elif strict:
            # Not the text itself: it may be the secret.
            raise InvalidInputError("a --storage-option is not NAME=VALUE", expected="NAME=VALUE")
    return found


def own_process() -> None:
    """Says that this process is a call of the command line and nothing else."""
    global _own_process
    _own_process = True


def _leave_out_what_spark_needs(settings: Settings) -> None:
    """Keeps pyarrow from importing numpy, and pandas at the first timestamp, to find that it needs neither.

    Together they would be the largest part of a short call; so before the command imports anything. Never where Spark is
    used, which needs them, nor in a process that is not ours alone: pyarrow remembers for good that there are none.
    """
    from laminar_delta.engine import engine_for

    if not _own_process or settings.catalog is None or sys.modules.keys() & _LeftOut.NAMES:
        return
    if (settings.engine or engine_for(settings.catalog)) != "spark":
        sys.meta_path.insert(0, _LeftOut())


@contextmanager
def _logging(settings: Settings) -> Iterator[None]:
    """Logs of the library to standard error, for as long as the call lasts."""
    logger = logging.getLogger("laminar_delta")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Masking(settings, JsonFormatter())
        if settings.log_format == "json"
        else _Masking(settings, logging.Formatter("%(levelname)s: %(message)s"))
    )
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(settings.log_level.upper())
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


class _LeftOut:
    """Finds that there is no numpy and no pandas."""

    NAMES = frozenset({"numpy", "pandas"})

    def find_spec(self, fullname: str, *_: object) -> None:
        """See `importlib.abc.MetaPathFinder`, which is left out as well."""
        if fullname in self.NAMES:
            raise ModuleNotFoundError(f"{fullname} is left out of short calls of the command line", name=fullname)


class _Masking(logging.Formatter):
    """Another formatter's lines without secrets."""

    def __init__(self, settings: Settings, inner: logging.Formatter) -> None:
        super().__init__()
        self._settings, self._inner = settings, inner

    def format(self, record: logging.LogRecord) -> str:
        return masked(self._inner.format(record), self._settings.storage_options)
