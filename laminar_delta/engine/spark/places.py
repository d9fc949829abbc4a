"""Where an engine's tables are: by path or by name, and whether their files are on this machine's disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar_delta.engine.local import durability
from laminar_delta.engine.local.lock import CatalogLock
from laminar_delta.engine.local.place import local_path
from laminar_delta.engine.predicate import quote_name
from laminar_delta.engine.spark.ddl import SQL
from laminar_delta.engine.spark.faults import may_be_at_work, reading
from laminar_delta.errors import ErrorCode, InvalidInputError

if TYPE_CHECKING:
    from laminar_delta.engine.spark.session import OwnSessions

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


class Place:
    """A location as the user gave it: a directory, an object-store URI, or a schema's name."""

    def __init__(self, location: str | Path) -> None:
        text = str(location)
        self.root: Path | None = None
        """The directory, where it is one."""
        self.schema: tuple[str, ...] = ()
        """The parts of the schema's name, where it is one."""
        if "${" in text:
            # Spark resolves such a name under the settings of the user's session, not of the engine's.
            raise InvalidInputError(f"Spark reads {text!r} as a template", expected="a location without ${", found=text)
        if isinstance(location, Path) or "/" in text or text.startswith((".", "~")):
            if text.startswith("file:") or not _URI.match(text):
                self.root = local_path(str(Path(text).expanduser()) if text.startswith("~") else text)
            self.location = text.rstrip("/") if self.root is None else str(self.root)
        else:
            self.schema = tuple(text.split("."))
            self.location = text
            if not all(self.schema):
                raise InvalidInputError(
                    f"{text!r} is neither a path nor the name of a schema",
                    expected="a path, a URI, or a name such as main.checkpoints",
                    found=text,
                )

    def check_reach(self, own: OwnSessions, *, started_here: bool) -> None:
        """Refuses sessions that would put the tables where nobody finds them again."""
        if self.root is not None and not own.on_this_machine:
            what = "a Connect server" if own.connect else "a cluster"
            raise InvalidInputError(
                f"{self.root} is a directory of this machine, and {what} commits elsewhere, past this machine's lock",
                code=ErrorCode.UNSUPPORTED,
                expected="an object-store URI or the name of a schema",
                found=self.location,
                next_step="Give the catalog a place both reach, or commit with the embedded engine.",
            )
        if self.schema and started_here and own.forgets_names():
            raise InvalidInputError(
                f"schema {self.location!r} would end with this process: Spark was started here, with a catalog in memory",
                code=ErrorCode.UNSUPPORTED,
                expected="a Spark session with a catalog that lasts",
                found="spark.sql.catalogImplementation=in-memory",
                next_step="Give your session as `spark`. For a directory, write it as a path, such as `./checkpoints`.",
            )


class Places:
    """The tables of one place, as a session sees them."""

    def __init__(self, place: Place, own: OwnSessions, lock_timeout_s: float) -> None:
        self._place = place
        self._own = own
        self._lock_timeout_s = lock_timeout_s
        self._guard = threading.Lock()
        self._locks: dict[Path, CatalogLock] = {}
        self._directories: dict[str, Path | None] = {}
        self._schema_reference = ""

    def reference(self, table: str) -> str:
        """The table in SQL."""
        if self._place.schema:
            return f"{self.schema_reference()}.{quote_name(table, SQL)}"
        # With the scheme spelled out: a bare path would belong to whatever file system Spark takes as its default.
        base = self._place.location if self._place.root is None else f"file:{self._place.root}"
        return f"delta.{quote_name(f'{base}/{table}', SQL)}"

    def schema_reference(self) -> str:
        """The schema in SQL; a bare name belongs to the catalog that the user's session has as its current one."""
        if not self._schema_reference:
            parts = self._place.schema
            if len(parts) == 1:
                parts = (self._own.current_catalog(), *parts)
            self._schema_reference = ".".join(quote_name(part, SQL) for part in parts)
        return self._schema_reference

    def detail(self, table: str) -> dict[str, Any]:
        """What DESCRIBE DETAIL says. Raises `NotFoundError` without the table."""
        with reading(table):
            found: list[dict[str, Any]] = (
                self._own.main.sql(f"DESCRIBE DETAIL {self.reference(table)}").toArrow().to_pylist()
            )
        return found[0]

    def directory(self, table: str) -> Path | None:
        """The table's directory where it is on this machine's disk, whether given by path or by name."""
        if self._place.root is not None:
            return self._place.root / table
        if not self._place.schema or not self._own.on_this_machine:
            return None
        if table not in self._directories:
            uri = self.detail(table)["location"]
            # Spark writes the path as it is, without percent-encoding.
            local = Path(uri.removeprefix("file:").removeprefix("//")) if uri.startswith("file:/") else None
            self._directories[table] = local
        return self._directories[table]

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Makes the place, and holds its lock for creating a table; a schema's catalog decides such races itself."""
        root = self._place.root
        if root is not None:
            durability.make_directory(root)
            with self._held(root):
                yield
            return
        if self._place.schema:
            with reading(self._place.location):
                self._own.main.sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema_reference()}").collect()
        yield

    @contextmanager
    def turn(self, table: str) -> Iterator[None]:
        """A writer's turn: the catalog's lock on a local disk; elsewhere the store decides between concurrent commits."""
        directory = self.directory(table)
        if directory is None:
            yield
            return
        with self._held(directory.parent):
            yield

    @contextmanager
    def _held(self, root: Path) -> Iterator[None]:
        with self._guard:
            if root not in self._locks:
                self._locks[root] = CatalogLock(root, self._lock_timeout_s)
            lock = self._locks[root]
        with lock.held(jvm=self._own.jvm(), still_at_work=may_be_at_work):
            yield
