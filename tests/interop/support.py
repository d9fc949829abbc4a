"""Trees of checkpoints for tests, and ways to see that nothing changed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import laminar_delta as ld
from laminar_delta.catalog.tables import TABLES
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint

GOLDEN = Path(__file__).parents[1] / "data" / "golden"


def expected(kind: str) -> dict[str, Any]:
    """What LaminarDB itself answered for the golden trees."""
    found: dict[str, Any] = json.loads((GOLDEN / kind / "expected.json").read_text())
    return found


def fingerprint(root: Path) -> dict[str, str]:
    """Every file of a tree with its digest: equal when nothing changed."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def memory_catalog() -> ld.Catalog:
    """A catalog of its own on the reference engine: what is imported is the same on every engine, and this one is quick."""
    return ld.open_catalog("memory", engine="memory", store={})


def versions(catalog: ld.Catalog) -> dict[str, int]:
    """The version of every table: equal when nothing was committed."""
    return {spec.name: catalog.engine.version(spec.name) for spec in TABLES}


def manifest(number: int, **fields: Any) -> CheckpointManifest:
    made = CheckpointManifest.new(number, number, 1_773_000_000_000 + number * 1000)
    offsets = {"orders": ConnectorCheckpoint.with_offsets(number, {"0": str(number * 10)})}
    return replace(made, **{"source_offsets": offsets, **fields})


def write_files(
    root: Path, manifests: Mapping[int, CheckpointManifest], states: Mapping[int, bytes] | None = None
) -> None:
    """A tree as LaminarDB's file-system store writes it."""
    for number, document in manifests.items():
        directory = root / "checkpoints" / f"checkpoint_{number:06}"
        directory.mkdir(parents=True)
        (directory / "manifest.json").write_bytes(document.to_json())
        if states and number in states:
            (directory / "state.bin").write_bytes(states[number])
    (root / "checkpoints" / "latest.txt").write_text(f"checkpoint_{max(manifests):06}")
