"""Every manifest of the golden trees, read as the real code read it and written back without loss."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.errors import FormatError
from laminar_delta.model import CheckpointManifest, CheckpointManifestV2, CheckpointPaths, validate_manifest

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


def store_manifests() -> Iterator[Any]:
    """Each manifest file of the two stores with what `load_by_id` of its id answered."""
    for store in ("fs", "obj"):
        expected = json.loads((GOLDEN / store / "expected.json").read_text("utf-8"))
        for scenario, answers in expected.items():
            for number, seen in answers["observed"]["by_id"].items():
                padded = f"{int(number):06}"
                prefix = answers.get("prefix", "")
                for name in (
                    f"{prefix}checkpoints/checkpoint_{padded}/manifest.json",
                    f"{prefix}manifests/manifest-{padded}.json",
                ):
                    path = GOLDEN / store / scenario / name
                    if path.is_file():
                        yield pytest.param(path, seen, id=f"{store}-{scenario}-{number}")


STORE_MANIFESTS = list(store_manifests())


def v2_manifests() -> Iterator[Any]:
    expected = json.loads((GOLDEN / "v2" / "expected.json").read_text("utf-8"))
    for scenario, answers in expected.items():
        prefix = answers.get("prefix", "checkpoints/")
        for text, seen in answers["manifests"].items():
            root = GOLDEN / "v2" / scenario / prefix
            for path in (*root.glob(f"{text}manifest.json"), *root.glob(f"{text}/manifest.json")):
                yield pytest.param(path, text, seen, prefix, id=f"{scenario}-{path.parent.name}-{path.name}")


V2_MANIFESTS = list(v2_manifests())


def test_trees_are_there() -> None:
    assert len(STORE_MANIFESTS) >= 40
    assert len(V2_MANIFESTS) >= 6


@pytest.mark.parametrize(("path", "seen"), STORE_MANIFESTS)
def test_store_manifest(path: Path, seen: dict[str, Any]) -> None:
    answer = seen["load_by_id"]
    if "err" in answer:
        with pytest.raises(FormatError):
            CheckpointManifest.from_json(path.read_bytes())
        return
    manifest = CheckpointManifest.from_json(path.read_bytes())
    assert manifest.to_dict() == answer["ok"]
    written = manifest.to_json()
    assert json.loads(written) == answer["ok"]
    assert CheckpointManifest.from_json(written) == manifest
    assert [finding.message for finding in validate_manifest(manifest)] == seen["self_validation"]


@pytest.mark.parametrize(("path", "text", "seen", "prefix"), V2_MANIFESTS)
def test_v2_manifest(path: Path, text: str, seen: dict[str, Any], prefix: str) -> None:
    manifest = CheckpointManifestV2.from_json(path.read_bytes())
    assert str(manifest.checkpoint_id) == text
    assert json.loads(manifest.to_json()) == json.loads(path.read_bytes())
    assert CheckpointManifestV2.from_json(manifest.to_json()) == manifest
    places = {
        CheckpointPaths(prefix, slashless=slashless).manifest(manifest.checkpoint_id) for slashless in (True, False)
    }
    assert any(path.as_posix().endswith(place) for place in places)
    if "ok" in seen and path.parent.name != text:  # the real reader knows the slash-less place only
        assert manifest.to_dict() == seen["ok"]


DAMAGED = {
    "fs/corrupt/checkpoints/checkpoint_000005/manifest.json",
    "fs/corrupt/checkpoints/checkpoint_000009/manifest.json",
    "fs/corrupt/checkpoints/checkpoint_000010/manifest.json",
    "fs/corrupt/checkpoints/checkpoint_000011/manifest.json",
    "obj/corrupt/manifests/manifest-000004.json",
    "obj/corrupt/manifests/manifest-000006.json",
    "obj/corrupt/manifests/manifest-000007.json",
}


def every_manifest_file() -> Iterator[Any]:
    """Also those under names that no store would look for."""
    for tree, kind in (("fs", CheckpointManifest), ("obj", CheckpointManifest), ("v2", CheckpointManifestV2)):
        for path in sorted((GOLDEN / tree).rglob("*manifest*.json")):
            yield pytest.param(path, kind, id=path.relative_to(GOLDEN).as_posix())


@pytest.mark.parametrize(("path", "kind"), list(every_manifest_file()))
def test_manifest_file_survives_or_is_refused(
    path: Path, kind: type[CheckpointManifest | CheckpointManifestV2]
) -> None:
    if path.relative_to(GOLDEN).as_posix() in DAMAGED:
        with pytest.raises(FormatError):
            kind.from_json(path.read_bytes())
        return
    document = json.loads(path.read_bytes())
    value = kind.from_json(path.read_bytes())
    known = value.to_dict()
    assert json.loads(value.to_json()) == known
    assert kind.from_json(value.to_json()) == kind.from_dict(document) == value
    # Manifests of other releases have fields we do not know and lack some that we do.
    assert {name: content for name, content in document.items() if name in known}.items() <= known.items()
    if path.parts[-4] != "other_versions":
        assert document == known


def test_document_written_by_us_has_the_field_order_of_the_real_one() -> None:
    path = GOLDEN / "fs" / "full" / "checkpoints" / "checkpoint_000007" / "manifest.json"
    real = json.loads(path.read_bytes())
    assert list(json.loads(CheckpointManifest.from_json(path.read_bytes()).to_json())) == list(real)
