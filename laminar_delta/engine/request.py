"""What callers ask of an engine, as small frozen values, and the checks that come before anything is written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from uuid_utils import uuid7

from laminar_delta.engine.predicate import MAX_BIGINT
from laminar_delta.errors import ErrorCode, InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.predicate import Predicate

COMMIT_KEY = "commit"
"""The entry of `userMetadata` with a commit's own id: how a commit is found in the log again."""
FENCES_KEY = "fences"
"""The entry of `userMetadata` with the fences a commit carried, application id to version."""


@dataclass(frozen=True, slots=True)
class Fence:
    """An application's claim on a table: commits under `application_id` go up in `version`, each version once."""

    application_id: str
    version: int

    def __post_init__(self) -> None:
        if not self.application_id:
            raise InvalidInputError("a fence needs an application id", expected="a name", found="")
        if not 0 <= self.version <= MAX_BIGINT:
            raise InvalidInputError(
                f"fence version {self.version} of {self.application_id!r} is out of range",
                code=ErrorCode.NUMBER_TOO_LARGE,
                expected=f"0 to {MAX_BIGINT}",
                found=self.version,
            )


@dataclass(frozen=True, slots=True)
class Ahead:
    """Rows that an engine wrote ahead of the append that is to take them along; in no version until then."""

    files: tuple[object, ...]
    """As the engine names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table to create."""

    name: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    """Delta table properties, set explicitly so that a platform's defaults never make a table one engine cannot use."""
    comment: str = ""


@dataclass(frozen=True, slots=True)
class WhenMatched:
    """What happens to a row that both sides have. The first clause whose condition is true decides."""

    delete: bool = False
    """Delete the row; otherwise update it."""
    columns: tuple[str, ...] | None = None
    """Which columns an update takes from the source; all by default."""
    condition: Predicate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """A merge: rows are the same when all `keys` are equal (a null is equal to nothing)."""

    keys: tuple[str, ...]
    scope: Predicate | None = None
    """A condition with literals on target columns. Rows outside are not looked at, and where it names a partition
    column, commits to other partitions do not conflict."""
    when_matched: tuple[WhenMatched, ...] = ()
    insert: bool = True
    """Insert the source rows that the table does not have."""
    insert_condition: Predicate | None = None
    delete_absent: Predicate | None = None
    """Delete the target rows in scope that the source does not have and for which this is true."""
    guard: Predicate | None = None
    """Merge only while the table has a row in scope for which this is true, judged in the very version that is merged into;
    otherwise the merge is without effect. Not together with `delete_absent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What one commit carries: its id, its fences, and the JSON that goes into `userMetadata`."""

    commit_id: str
    fences: tuple[Fence, ...]
    user_metadata: str
    ahead: tuple[Ahead, ...] = ()
    """What it takes along."""


def stamp(fences: Sequence[Fence], metadata: Mapping[str, object] | None, *, ahead: Sequence[Ahead] = ()) -> Stamp:
    """A stamp under a fresh commit id."""
    commit_id = str(uuid7())
    content = dict(metadata or {})
    for reserved in (COMMIT_KEY, FENCES_KEY):
        if reserved in content:
            raise InvalidInputError(
                f"commit metadata cannot set {reserved!r}: the engine does", expected="another name", found=reserved
            )
    content[COMMIT_KEY] = commit_id
    if fences:
        content[FENCES_KEY] = {fence.application_id: fence.version for fence in fences}
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode("utf-8")
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"commit metadata is not JSON: {error}", expected="JSON values", found=type(error).__name__
        ) from error
    return Stamp(commit_id=commit_id, fences=tuple(fences), user_metadata=text, ahead=tuple(ahead))


def parse_user_metadata(text: object) -> dict[str, object]:
    """The JSON object in a log entry's `userMetadata`; empty for anything else, since others may write there too."""
    if not isinstance(text, str):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def check_fences(fences: Sequence[Fence], engine: Engine) -> None:
    """Refuses fences that no commit could carry."""
    names = [fence.application_id for fence in fences]
    if len(set(names)) != len(names):
        raise InvalidInputError(
            "one commit carries at most one fence per application", expected="distinct application ids", found=names
        )
    if len(fences) > 1 and not engine.many_fences:
        raise InvalidInputError(
            f"the {engine.name} engine commits one fence at a time",
            code=ErrorCode.UNSUPPORTED,
            expected=1,
            found=len(fences),
            next_step="Commit each pipeline by itself, or use an engine with `many_fences`.",
        )


def check_merge(merge: Merge, rows: pa.Table) -> None:
    """Refuses a merge whose outcome would depend on the engine: unknown keys, or two source rows for one target row."""
    missing = [name for name in merge.keys if name not in rows.column_names]
    if missing or not merge.keys:
        raise InvalidInputError(
            f"merge keys {list(merge.keys)} are not all columns of the table", expected=rows.column_names, found=missing
        )
    if merge.guard is not None and merge.delete_absent is not None:
        # Where the guard does not hold there are no source rows, and then every row would be absent from them.
        raise InvalidInputError(
            "a guarded merge cannot delete what its source does not have",
            expected="guard or delete_absent",
            found="both",
            next_step="Name the rows to delete in the source.",
        )
    keys = rows.select(list(merge.keys)).to_pylist()
    seen: set[tuple[object, ...]] = set()
    for row in keys:
        key = tuple(row.values())
        if key in seen:
            raise InvalidInputError(
                f"two source rows have the merge key {dict(row)}", expected="one row per key", found=dict(row)
            )
        seen.add(key)
