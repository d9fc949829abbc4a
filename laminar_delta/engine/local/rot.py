"""Which file of a log on this machine's disk is damaged: looked for once a table could not be read, to name it.

Engines do not always say which entry they stumbled over, and pass over some damage: a letter that changed in the name of an
action makes it one that nobody knows, and readers ignore it. So every entry is held against what Delta requires of it and what
its commit told of itself, and every log checkpoint is read whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from laminar_delta.engine.local.log import (
    LAST_CHECKPOINT,
    actions_of,
    damaged_entry,
    entry_path,
    entry_versions,
    log_checkpoints,
)
from laminar_delta.engine.request import FENCES_KEY
from laminar_delta.errors import ErrorCode, StorageError

_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "add": {"path": str, "partitionValues": dict, "size": int, "modificationTime": int, "dataChange": bool},
    "remove": {"path": str, "dataChange": bool},
    "metaData": {"id": str, "format": dict, "schemaString": str, "partitionColumns": list},
    "protocol": {"minReaderVersion": int, "minWriterVersion": int},
    "txn": {"appId": str, "version": int},
    "commitInfo": {"timestamp": int, "operation": str},
}
_OPTIONAL: Mapping[str, frozenset[str]] = {
    "add": frozenset({"stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion", "clusteringProvider"}),
    "remove": frozenset(
        {"deletionTimestamp", "extendedFileMetadata", "partitionValues", "size", "stats", "tags", "deletionVector"}
        | {"baseRowId", "defaultRowCommitVersion"}
    ),
    "metaData": frozenset({"name", "description", "createdTime", "configuration"}),
    "protocol": frozenset({"readerFeatures", "writerFeatures"}),
    "txn": frozenset({"lastUpdated"}),
}
_OTHERS = frozenset({"cdc", "domainMetadata", "checkpointMetadata", "sidecar"})
_PARSED = frozenset({"stats_parsed", "partitionValues_parsed"})
"""What log checkpoints have beside what entries have."""
_TEXTS = {"add": "stats", "metaData": "schemaString", "commitInfo": "userMetadata"}
"""Where JSON stands in JSON."""
_TYPE = re.compile(
    r"string|long|integer|short|byte|float|double|boolean|binary|date|timestamp|timestamp_ntz|decimal\(\d+, ?\d+\)"
)


def check_log(
    table: Path, whole: set[tuple[Path, int, int]], *, version: int | None = None, history: bool = False
) -> None:
    """Raises `StorageError` (code `log-damaged`) naming the first file of a table's log that is damaged, if one is.

    Args:
        table: The table's directory.
        whole: Files that had nothing wrong before, with size and time of change; those that have not now are added.
        version: Look at what readers of this version go by; of the newest by default.
        history: Look at all entries, as readers of the history do.
    """
    checkpoints = sorted(log_checkpoints(table).items())
    used = [found for found in checkpoints if version is None or found[0] <= version][-1:]
    since = -1 if history or not used else used[0][0]
    entries = entry_versions(table)
    partitions: set[str] | None = None
    for entry in entries:
        if partitions is None:
            partitions = _partitions(table, entry)
        if since < entry and (version is None or entry <= version):
            # Cleaned away meanwhile, it is not what is damaged.
            with suppress(FileNotFoundError):
                key = _key(entry_path(table, entry))
                if key not in whole:
                    _check_entry(table, entry, partitions)
                    whole.add(key)
    for _, paths in used:
        for path in paths:
            with suppress(FileNotFoundError):
                key = _key(path)
                what = None if key in whole else _checkpoint_problem(path)
                if what is not None:
                    raise _damaged_checkpoint(path, what, all_entries=entries == list(range(len(entries))))
                whole.add(key)


def _key(path: Path) -> tuple[Path, int, int]:
    there = path.stat()
    return path, there.st_size, there.st_mtime_ns


def _damaged_checkpoint(path: Path, what: str, *, all_entries: bool) -> StorageError:
    return StorageError(
        f"log checkpoint {path} {what}",
        code=ErrorCode.LOG_DAMAGED,
        expected="a whole log checkpoint",
        found=what,
        next_step=f"Move it and {LAST_CHECKPOINT!r} beside it away: all entries of the log are there, and tell the same."
        if all_entries
        else "Bring the file back from a backup: the entries before it have been cleaned away.",
        details={"path": str(path), "log_checkpoint": str(path)},
    )


def adding_entries(table: Path, name: str) -> list[Path]:
    """The log entries that add a data file of that name."""
    return [
        path
        for path in (entry_path(table, version) for version in entry_versions(table))
        for action in _lines(path)
        if isinstance(added := action.get("add"), dict) and name in str(added.get("path"))
    ]


def _lines(path: Path) -> list[dict[str, Any]]:
    found = []
    for line in path.read_bytes().splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [action for action in found if isinstance(action, dict)]


def _problem(action: object) -> str | None:
    """What is wrong with one action, in words."""
    if not isinstance(action, dict) or len(action) != 1:
        return "has a line that is no action"
    (name, content), *_ = action.items()
    if name in _OTHERS:
        return None
    if name not in _REQUIRED or not isinstance(content, dict):
        return f"has an action {name!r} that Delta does not know"
    for field, kind in _REQUIRED[name].items():
        if not isinstance(content.get(field), kind):
            return f"has an action {name!r} without its {field!r}"
    strange = set(content) - set(_REQUIRED[name]) - _OPTIONAL.get(name, frozenset(content)) - _PARSED
    if strange:
        return f"has an action {name!r} with {min(strange)!r}, which Delta does not know"
    text = content.get(_TEXTS.get(name, ""))
    if not isinstance(text, str) or not text.startswith("{"):
        return None
    try:
        said = json.loads(text)
    except ValueError as error:
        return f"has an action {name!r} whose {_TEXTS[name]!r} is damaged ({error})"
    unknown = _unknown_type(said) if name == "metaData" else None
    return None if unknown is None else f"has a column of the type {unknown!r}, which Delta does not know"


def _unknown_type(kind: object) -> str | None:
    """A type within a type, as Delta spells them, that there is not."""
    if isinstance(kind, str):
        return None if _TYPE.fullmatch(kind) else kind
    if not isinstance(kind, dict):
        return str(kind)
    of = kind.get("type")
    inner: list[object]
    if of == "struct" and isinstance(kind.get("fields"), list):
        inner = [found.get("type") if isinstance(found, dict) else found for found in kind["fields"]]
    elif of == "array":
        inner = [kind.get("elementType")]
    elif of == "map":
        inner = [kind.get("keyType"), kind.get("valueType")]
    else:
        return str(of)
    return next((found for found in map(_unknown_type, inner) if found is not None), None)


def _check_entry(table: Path, version: int, partitions: set[str] | None) -> None:
    actions = actions_of(table, version)
    for action in actions:
        what = _problem(action)
        if what is not None:
            raise damaged_entry(table, version, what)
        strange = set() if partitions is None else set(action.get("add", {}).get("partitionValues", ())) ^ partitions
        if strange and "add" in action:
            raise damaged_entry(table, version, f"adds a file by {min(strange)!r}, other partitions than the table has")
    # Fences are in an entry twice: as what counts, and as what the commit told of itself.
    raised = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    for action in actions:
        text = action.get("commitInfo", {}).get("userMetadata")
        told = json.loads(text).get(FENCES_KEY) if isinstance(text, str) and text.startswith("{") else None
        if isinstance(told, dict) and told != raised:
            raise damaged_entry(table, version, f"raises fences {raised}, and its commit told of {told}")


def _partitions(table: Path, version: int) -> set[str] | None:
    """The table's partition columns, where a log entry tells them and its schema has such columns."""
    with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
        for action in _lines(entry_path(table, version)):
            if "metaData" in action:
                names = set(action["metaData"]["partitionColumns"])
                columns = {field["name"] for field in json.loads(action["metaData"]["schemaString"])["fields"]}
                return names if names <= columns else None
    return None


def metadata_file(table: Path, version: int | None) -> str | None:
    """Which file of the log readers of a version have the table's columns from, in words."""
    used = max((found for found in log_checkpoints(table) if version is None or found <= version), default=-1)
    for entry in reversed(entry_versions(table)):
        if used < entry and (version is None or entry <= version):
            path = entry_path(table, entry)
            if any("metaData" in action for action in _lines(path)):
                return f"log entry {path}"
    return None if used < 0 else f"log checkpoint {log_checkpoints(table)[used][0]}"


def _checkpoint_problem(path: Path) -> str | None:
    # Imported where it is used: it takes as long as all else that opening a catalog imports.
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches():
            batch.validate(full=True)
            for row in batch.to_pylist():
                what = next((what for what in map(_problem, _as_entry(row)) if what is not None), None)
                if what is not None:
                    return what
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, ValueError) as error:
        return f"cannot be read ({' '.join(str(error).split())})"
    return None


def _as_entry(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The actions in a row of a log checkpoint, as an entry has them."""
    for name, content in row.items():
        if content is not None:
            maps = ("partitionValues", "configuration", "tags")
            yield {
                name: {
                    key: dict(value) if key in maps else value for key, value in content.items() if value is not None
                }
            }
