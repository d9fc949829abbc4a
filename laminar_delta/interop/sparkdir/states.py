"""What lies in the state directory of a streaming query: which files, of which version, how large. What they hold is opaque."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

STATE = "state"
DEEPEST = 6
"""Directories below `state`: operator, partition, store, and what RocksDB puts below."""

# `5.delta`, `5.snapshot`, `5.zip`, `5.changelog`, and with a unique id of newer releases `5_<id>.zip`.
_OF_VERSION = re.compile(r"([0-9]{1,19})(?:_[^.]*)?\.(delta|snapshot|zip|changelog)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFile:
    """One file below the state directory."""

    path: str
    """Below `state`."""
    size: int


@dataclass(slots=True)
class StateListing:
    """All files of a state directory, by the version they were written for."""

    versions: dict[int, list[StateFile]] = field(default_factory=dict)
    shared: list[StateFile] = field(default_factory=list)
    """Of no one version: schemas, operator metadata, RocksDB's tables and logs."""

    @property
    def operators(self) -> dict[str, dict[str, int]]:
        """Per stateful operator its partitions, files and bytes."""
        found: dict[str, dict[str, int]] = {}
        partitions: dict[str, set[str]] = {}
        for file in [*self.shared, *(file for files in self.versions.values() for file in files)]:
            operator, _, rest = file.path.partition("/")
            counts = found.setdefault(operator, {"partitions": 0, "files": 0, "bytes": 0})
            counts["files"] += 1
            counts["bytes"] += file.size
            partition = rest.partition("/")[0]
            if partition.isdigit():
                partitions.setdefault(operator, set()).add(partition)
                counts["partitions"] = len(partitions[operator])
        return dict(sorted(found.items()))


def list_state(place: Place) -> StateListing:
    """Lists the state directory; empty when there is none."""
    listing = StateListing()
    for path, name, size in _walk(place, STATE, DEEPEST):
        file = StateFile(path=path.removeprefix(f"{STATE}/"), size=size)
        version = version_of(name)[0]
        if version is not None:
            listing.versions.setdefault(version, []).append(file)
        else:
            listing.shared.append(file)
    return listing


def version_of(path: str) -> tuple[int | None, str | None]:
    """The version a file was written for, and its kind (`delta`, `snapshot`, `zip`, `changelog`); None for neither."""
    match = _OF_VERSION.fullmatch(path.rpartition("/")[2])
    return (None, None) if match is None else (int(match[1]), match[2])


def _walk(place: Place, directory: str, depth: int) -> Iterator[tuple[str, str, int]]:
    for entry in place.entries(directory):
        path = f"{directory}/{entry.name}"
        if entry.is_directory:
            if depth > 0:
                yield from _walk(place, path, depth - 1)
        elif not entry.name.startswith("."):  # checksums and temporary files of Hadoop's
            yield path, entry.name, entry.size or 0
