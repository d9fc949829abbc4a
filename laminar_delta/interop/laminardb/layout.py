"""Where LaminarDB's two stores keep numbered checkpoints.

    files     checkpoints/checkpoint_000001/manifest.json, state.bin      checkpoints/latest.txt
    objects   manifests/manifest-000001.json                              manifests/latest.json
              checkpoints/state-000001.bin, batch-000007.lz4

The object store of 0.18 also reads the first of the two, where its own files are missing. A prefix is put before all
names as it is: `a` makes `amanifests/...`, `a/` makes `a/manifests/...`.
"""

from __future__ import annotations

from dataclasses import dataclass

from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import U64_RANGE

LATEST_TEXT = "latest.txt"
LATEST_JSON = "latest.json"
MANIFEST = "manifest.json"
STATE = "state.bin"


@dataclass(frozen=True, slots=True)
class Layout:
    """The names of one tree; computes text, touches nothing."""

    prefix: str = ""
    inside: bool = False
    """The place is the directory `checkpoints` itself, rather than the one that holds it."""

    @property
    def checkpoints(self) -> str:
        """The directory with checkpoints of the file layout, and with states and batches of the other."""
        return "" if self.inside else f"{self.prefix}checkpoints"

    @property
    def manifests(self) -> str:
        """The directory with manifests of the object layout."""
        return f"{self.prefix}manifests"

    def file_directory(self, number: int) -> str:
        """A checkpoint's directory in the file layout."""
        return self.in_checkpoints(checkpoint_name(number))

    def object_manifest(self, number: int) -> str:
        """A checkpoint's manifest in the object layout."""
        return f"{self.manifests}/{manifest_name(number)}"

    def object_state(self, number: int) -> str:
        """A checkpoint's sidecar in the object layout."""
        return self.in_checkpoints(f"state-{number:06}.bin")

    def in_checkpoints(self, name: str) -> str:
        """A name in the directory `checkpoints`."""
        return name if self.inside else f"{self.checkpoints}/{name}"


def checkpoint_name(number: int) -> str:
    """What the file layout calls a checkpoint, also in its latest pointer."""
    return f"checkpoint_{number:06}"


def manifest_name(number: int) -> str:
    """What the object layout calls a manifest."""
    return f"manifest-{number:06}.json"


def parse_checkpoint_name(name: str) -> int | None:
    """The id in a directory's name. More names have one than LaminarDB finds again: it looks under `checkpoint_name` only."""
    return _number_between(name, "checkpoint_", "")


def parse_manifest_name(name: str) -> int | None:
    """The id in the name of a manifest object."""
    return _number_between(name, "manifest-", ".json")


def parse_batch_name(name: str) -> int | None:
    """The epoch in the name of a batch; ours may have a part after it that keeps several flushes apart."""
    stem = name.removesuffix(".lz4")
    return None if stem == name else _number_between(stem.rpartition("+")[0] or stem, "batch-", "")


def batch_name(epoch: int, attempt_id: str | None = None) -> str:
    """What a batch is called; flushes of an epoch after its first are told apart by their attempt."""
    return f"batch-{epoch:06}{'' if attempt_id is None else '+' + attempt_id}.lz4"


def batch_order(name: str) -> tuple[int, bool, str]:
    """Sorts batches by epoch and flush: the plain name is the first, and attempts sort by time."""
    return parse_batch_name(name) or 0, "+" in name, name


def _number_between(name: str, start: str, end: str) -> int | None:
    if not name.startswith(start) or not name.endswith(end) or len(name) < len(start) + len(end):
        return None
    return parse_integer(name[len(start) : len(name) - len(end)], U64_RANGE)
