"""Tables that came after a format was released: made when they are first needed, and missed by nobody until then.

Adding one does not change the format: a version that does not know it neither reads nor writes it, and what it does read
means what it meant. So a catalog may be without such a table, and whoever goes over all tables asks here which there are.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.tables import BY_NAME, ENGINE_PROPERTY, LATER, MANIFESTS, TABLES
from laminar_delta.catalog.views import VIEWS, views_without
from laminar_delta.engine.sql import mentioned
from laminar_delta.errors import ErrorCode, InvalidInputError, LaminarDeltaError, NotFoundError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.request import TableSpec

_LOG = logging.getLogger(__name__)

ABSENT = -1
"""The version of a table in a catalog as it was before the table was made."""


def ensure(engine: Engine, spec: TableSpec) -> bool:
    """Makes a later table unless it is there; whether it did. Safe when several do so at once."""
    if engine.exists(spec.name):
        return False
    owner = engine.properties(MANIFESTS.name)[ENGINE_PROPERTY]
    made = engine.create(replace(spec, properties={**spec.properties, ENGINE_PROPERTY: owner}))
    if engine.by_name:
        try:
            # Until now the views over it were ones without rows.
            create_views(engine)
        except LaminarDeltaError as error:
            log_event(
                _LOG,
                logging.WARNING,
                Event.VIEWS_MISSING,
                "the views over table %s could not be made: %s",
                spec.name,
                error,
                table=spec.name,
                error=str(error),
            )
    return made


def present(engine: Engine) -> tuple[TableSpec, ...]:
    """All tables this catalog has."""
    return (*TABLES, *(spec for spec in LATER if engine.exists(spec.name)))


def create_views(engine: Engine) -> None:
    """Creates or replaces the views beside the tables of a catalog given by name."""
    tables = [spec.name for spec in present(engine)]
    engine.create_views(views_without(_missing(tables)), tables=tables)


def relations(
    engine: Engine, query: str, versions: Mapping[str, int]
) -> tuple[dict[str, int | None], Mapping[str, str]]:
    """What a query may use: tables with their versions, and views. Whether a later table is there is asked only if it matters.

    Args:
        engine: Whose.
        query: The query.
        versions: The version of some tables; `ABSENT` for one that was not there.
    """
    tables: dict[str, int | None] = dict.fromkeys(spec.name for spec in TABLES)
    wanted = mentioned(query, {**dict.fromkeys(spec.name for spec in LATER), **VIEWS})
    for spec in LATER:
        if spec.name in wanted and versions.get(spec.name) != ABSENT and engine.exists(spec.name):
            tables[spec.name] = None
    tables.update({name: version for name, version in versions.items() if version != ABSENT})
    return tables, views_without(_missing(tables))


def checked_moment(timestamp_ms: object) -> int:
    """A time that was asked for. Raises `InvalidInputError` when it is no number."""
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int):
        raise InvalidInputError(
            f"timestamp_ms is {timestamp_ms!r}",
            expected="milliseconds since 1970, as a whole number",
            found=timestamp_ms,
            next_step="Give int(moment.timestamp() * 1000).",
        )
    return timestamp_ms


def checked_versions(versions: object) -> dict[str, int]:
    """Versions that were asked for, by table. Raises `InvalidInputError` when no catalog can have them."""
    if not isinstance(versions, Mapping) or not versions:
        raise InvalidInputError(
            f"versions is {versions!r}",
            expected="the version of one table at least",
            found=versions,
            next_step="Give some, such as {'manifests': 7}; without any it would be the catalog as it is.",
        )
    unknown = sorted(str(name) for name in versions.keys() - BY_NAME.keys())
    if unknown:
        raise InvalidInputError(
            f"the catalog has no table {unknown[0]!r}",
            expected=sorted(BY_NAME),
            found=unknown,
            next_step=f"There are: {', '.join(sorted(BY_NAME))}.",
        )
    return {name: check_ordering_number(f"version of table {name!r}", version) for name, version in versions.items()}


def versions_at(engine: Engine, timestamp_ms: int) -> dict[str, int]:
    """The version each table had at a time. Raises `NotFoundError` (code `version-gone`) before the catalog was made."""
    versions = {spec.name: engine.version_at(spec.name, timestamp_ms) for spec in TABLES}
    for spec in LATER:
        try:
            versions[spec.name] = engine.version_at(spec.name, timestamp_ms)
        except NotFoundError as error:
            if error.code is ErrorCode.VERSION_GONE and _was_there(engine, spec, timestamp_ms):
                raise
            versions[spec.name] = ABSENT
    return versions


def _was_there(engine: Engine, spec: TableSpec, timestamp_ms: int) -> bool:
    """Whether a table's log no longer tells of its making, so that it may have been there before what it tells of."""
    entries = engine.history(spec.name)
    return bool(entries) and entries[-1].version > 0 and entries[-1].timestamp_ms > timestamp_ms


def _missing(there: Collection[str]) -> frozenset[str]:
    return frozenset(spec.name for spec in LATER if spec.name not in there)
