"""Which files of a state directory one version of the state needs: what Spark would read to load it, and nothing else.

A store's version is a full file (`snapshot`, `zip`) and the changes after it (`delta`, `changelog`), without a gap. A
RocksDB zip names the tables it uses, which lie beside it and belong to several versions. What the files hold stays opaque.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.errors import CorruptionError, LaminarDeltaError, NotFoundError
from laminar_delta.interop.sparkdir.states import STATE, StateFile, StateListing, version_of

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

_FULL = ("snapshot", "zip")
_TABLES = ("SSTs", "logs")
"""Where RocksDB's own files are, below a store."""
_METADATA = "metadata"

Partition = tuple[str, int]
"""Spark's number of a stateful operator, and of its partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNeeds:
    """The files of one version, paths below the state directory."""

    partitions: Mapping[Partition, tuple[StateFile, ...]]
    common: tuple[StateFile, ...] = ()
    """Of all partitions: schemas and what operators noted of themselves."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for files in (*self.partitions.values(), self.common) for file in files)


def state_needs(place: Place, listing: StateListing, version: int) -> StateNeeds:
    """What a version of the state needs.

    Raises:
        NotFoundError: Some of it is not there: Spark removed it, or never wrote it.
        CorruptionError: A file that tells what is needed cannot be read.
    """
    versioned: dict[str, dict[int, list[StateFile]]] = defaultdict(lambda: defaultdict(list))
    for number, files in listing.versions.items():
        for file in files:
            versioned[file.path.rpartition("/")[0]][number].append(file)
    beside: dict[str, dict[str, StateFile]] = defaultdict(dict)
    common = []
    for file in listing.shared:
        directory, _, name = file.path.rpartition("/")
        store, _, last = directory.rpartition("/")
        if last in _TABLES and store in versioned:
            beside[store][name] = file
        else:
            common.append(file)
    partitions: dict[Partition, list[StateFile]] = defaultdict(list)
    for store in sorted(versioned):
        chain = _chain(store, versioned[store], version)
        tables = [beside[store][name] for name in _tables_used(place, store, chain, beside[store])]
        partitions[_partition(store)].extend([*tables, *chain])
    return StateNeeds(
        partitions={key: tuple(files) for key, files in sorted(partitions.items())},
        common=tuple(sorted(common, key=lambda file: file.path)),
    )


def _chain(store: str, versions: Mapping[int, list[StateFile]], wanted: int) -> list[StateFile]:
    """The newest full file up to the version, and the changes after it."""
    fulls = {n: [f for f in files if version_of(f.path)[1] in _FULL] for n, files in versions.items() if n <= wanted}
    base = max((number for number, files in fulls.items() if files), default=0)
    chain = list(fulls.get(base, ()))
    for number in range(base + 1, wanted + 1):
        changes = [file for file in versions.get(number, ()) if version_of(file.path)[1] not in _FULL]
        if not changes:
            raise NotFoundError(
                f"the state of {store} is not complete: there is nothing of version {number}",
                expected=wanted,
                found=sorted(versions),
                next_step="Capture sooner: Spark keeps the last 100 versions by default.",
            )
        chain.extend(changes)
    return chain


def _tables_used(place: Place, store: str, chain: list[StateFile], beside: Mapping[str, StateFile]) -> Iterator[str]:
    for file in chain:
        if not file.path.endswith(".zip"):
            continue
        for name in _named(place, file):
            if name not in beside:
                raise NotFoundError(f"{file.path} needs {store}/{name}, which is not there", expected=name)
            yield name


def _named(place: Place, file: StateFile) -> list[str]:
    """The files outside it that a zip of RocksDB's says it needs."""
    try:
        with zipfile.ZipFile(io.BytesIO(place.read(f"{STATE}/{file.path}"))) as archive:
            text = archive.read(_METADATA).decode("utf-8")
        said = json.loads(text.partition("\n")[2])
        tables = [str(entry["dfsSstFileName"]) for entry in said.get("sstFiles", ())]
        logs = [str(entry["dfsLogFileName"]) for entry in said.get("logFiles", ())]
    except LaminarDeltaError:
        raise
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError, AttributeError, NotImplementedError, OSError) as error:
        raise CorruptionError(f"{file.path} does not tell which files it needs: {error}") from error
    return sorted({*tables, *logs})


def _partition(store: str) -> Partition:
    operator, _, rest = store.partition("/")
    number = rest.partition("/")[0]
    if not number.isdigit():
        raise CorruptionError(f"{store} is no directory of a partition", expected="operator/partition", found=store)
    return operator, int(number)
