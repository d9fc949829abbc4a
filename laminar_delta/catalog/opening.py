"""Opening a catalog: which engine, which tables, and whether this code may touch them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.catalog import Catalog
from laminar_delta.catalog.formats import UpgradePlan, check_format, plan_upgrade, upgrade
from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.said import check_said
from laminar_delta.catalog.tables import (
    ENGINE_PROPERTY,
    MANIFESTS,
    RETENTION,
    SOURCE_CHECKPOINTS,
    STATE_BATCHES,
    TABLES,
)
from laminar_delta.engine import EMBEDDED, engine_for, open_engine
from laminar_delta.errors import (
    ConflictError,
    FormatError,
    InvalidInputError,
    LaminarDeltaError,
    NotFoundError,
    StorageError,
)
from laminar_delta.logs import Event, log_event
from laminar_delta.masking import masked

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.request import TableSpec

_LOG = logging.getLogger(__name__)

_FORBIDDEN_PROPERTY = "delta.setTransactionRetentionDuration"
_FENCED = (SOURCE_CHECKPOINTS, RETENTION, STATE_BATCHES)
"""The tables beside `manifests` whose commits carry fences."""


def open_catalog(
    location: str | os.PathLike[str], *, engine: str | None = None, create: bool = True, **options: Any
) -> Catalog:
    """Opens the catalog at a location, making its tables if it is new. Safe when many do so at once.

    Args:
        location: A directory or URI (committed by the `embedded` engine), or a schema name such as `main.checkpoints`
            (committed by `spark`); a `Path` is a directory, whatever it looks like.
        engine: Which engine commits; by default what the location says. Recorded when the catalog is made.
        create: Make the catalog if there is none; otherwise that is `NotFoundError`.
        **options: What the engine takes, such as `spark` or `storage_options`. A job gives its `spark` wherever the catalog is:
            the embedded engine commits without it.

    Raises:
        ConflictError: Another engine commits to this catalog.
        FormatError: The catalog has another format, or its fences could expire.
        InvalidInputError: It is no location, or a directory whose path the engine cannot write to. Nothing was made.
    """
    place = _located(location)
    name = engine or engine_for(place)
    if name == EMBEDDED:
        options.pop("spark", None)
    opened = open_engine(name, place, **options)
    is_new = not opened.exists(MANIFESTS.name)
    if is_new:
        if not create:
            _check_there(opened)
        _check_unused(opened)
        for spec in TABLES:
            opened.create(replace(spec, properties={**spec.properties, ENGINE_PROPERTY: name}))
        log_event(_LOG, logging.INFO, Event.CATALOG_CREATED, "made a catalog for the %s engine", name, engine=name)
    _check(opened)
    catalog = Catalog(opened)
    if is_new and opened.by_name:
        _add_views(catalog)
    return catalog


def upgrade_catalog(
    location: str | os.PathLike[str], *, engine: str | None = None, dry_run: bool = False, **options: Any
) -> UpgradePlan:
    """Takes a catalog that `open_catalog` refuses as too old to the format of this code. Stop its writers first.

    Args:
        location: Where it is.
        engine: Which engine commits to it; by default what the location says.
        dry_run: Only tell what would be done.
        **options: What the engine takes.

    Raises:
        FormatError: It is newer than this code, which formats never go back to.
        NotFoundError: There is no catalog.
    """
    place = _located(location)
    opened = open_engine(engine or engine_for(place), place, **options)
    _check_there(opened)
    check_engine(opened)
    return plan_upgrade(opened) if dry_run else upgrade(opened)


def _located(location: object) -> str:
    """A location as text. Raises `InvalidInputError` for what names no place."""
    text: object = os.fspath(location) if isinstance(location, os.PathLike) else location
    if isinstance(text, str) and text is not location:
        # A path is one also where it looks like the name of a schema.
        text = str(Path(text).absolute())
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidInputError(
            f"{location!r} is no place for a catalog",
            expected="a directory, a URI, or a schema name such as main.checkpoints",
            found=type(location).__name__ if not isinstance(location, str) else location,
        )
    check_said(location=text)
    return text


def _check_there(engine: Engine) -> None:
    if not engine.exists(MANIFESTS.name):
        if engine.location.startswith("/") and Path(engine.location).is_file():
            raise InvalidInputError(
                f"{engine.location!r} is a file",
                expected="a directory",
                found="a file",
                next_step="Name the directory that the catalog is in, or is to be made in.",
            )
        raise NotFoundError(
            f"there is no catalog at {masked(engine.location)!r}",
            expected=masked(engine.location),
            next_step="Check the location, or make one there: `open_catalog(location)`, or `laminar-delta init`.",
        )


def _add_views(catalog: Catalog) -> None:
    """Adds the views for people. Not every catalog of Spark's holds views, and none of ours needs them."""
    try:
        catalog.create_views()
    except LaminarDeltaError as error:
        log_event(
            _LOG,
            logging.WARNING,
            Event.VIEWS_MISSING,
            "the catalog %s has no views: %s",
            catalog.engine.location,
            error,
            error=str(error),
        )


def _check_unused(engine: Engine) -> None:
    """Refuses to make `manifests` anew beside tables that were written to: its checkpoints were lost, not never made."""
    for spec in TABLES:
        if spec is not MANIFESTS and engine.exists(spec.name) and engine.version(spec.name) > 0:
            if engine.exists(MANIFESTS.name):
                # Somebody else made it meanwhile, and then wrote to the others: nobody does before it is there.
                return
            raise StorageError(
                f"the catalog at {masked(engine.location)!r} has no table {MANIFESTS.name!r}, but {spec.name!r} was written to",
                expected=MANIFESTS.name,
                found=spec.name,
                next_step="Bring the table back from a backup: it holds the checkpoints. Nothing was made in its place.",
            )


def _check(engine: Engine) -> None:
    check_format(engine)
    check_engine(engine)


def check_engine(engine: Engine) -> None:
    """Refuses an engine that is not the one that commits to the catalog, and a catalog whose fences could expire."""
    stored = engine.properties(MANIFESTS.name)
    owner = stored.get(ENGINE_PROPERTY)
    if owner != engine.name:
        raise ConflictError(
            f"the catalog at {masked(engine.location)!r} is committed by the {owner} engine, not by {engine.name}",
            expected=engine.name,
            found=owner,
            next_step=f"Open it with engine={owner!r}: two engines committing to one catalog can lose commits.",
        )
    _check_fences_stay(engine, MANIFESTS, stored)
    # Side by side: on an object store or Spark each look takes its time.
    with ThreadPoolExecutor(len(_FENCED), thread_name_prefix="laminar-open") as beside:
        for spec, properties in zip(_FENCED, beside.map(partial(_properties, engine), _FENCED), strict=True):
            _check_fences_stay(engine, spec, properties)


def _properties(engine: Engine, spec: TableSpec) -> Mapping[str, str]:
    try:
        return engine.properties(spec.name)
    except (StorageError, NotFoundError) as error:
        # Damaged or gone: whoever needs the table is told then. It does not close the catalog to all others.
        raise_unless_damage(error)
        return {}


def _check_fences_stay(engine: Engine, spec: TableSpec, properties: Mapping[str, str]) -> None:
    if _FORBIDDEN_PROPERTY in properties:
        raise FormatError(
            f"{_FORBIDDEN_PROPERTY} is set on table {spec.name!r} at {masked(engine.location)!r}: it lets fences expire",
            expected="unset",
            found=properties[_FORBIDDEN_PROPERTY],
            next_step="Unset that property, and make sure that no writer of an older generation still runs.",
        )
