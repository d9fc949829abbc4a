"""The golden trees: what LaminarDB's own code wrote, read as it read them itself; in, out, and in again."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta import interop
from laminar_delta.catalog.pipeline import Pipeline
from laminar_delta.errors import NotFoundError
from laminar_delta.interop.laminardb.conversion import connector_to_v2
from laminar_delta.model import CheckpointManifest, CheckpointManifestV2
from laminar_delta.stores import DeltaCheckpointStore
from tests.interop.support import GOLDEN, expected, fingerprint, memory_catalog

NUMBERED = [
    (kind, name)
    for kind in ("fs", "obj")
    for name, scenario in expected(kind).items()
    if scenario["observed"]["list_ids"]["ok"]
]
DISTRIBUTED = list(expected("v2"))

ACCEPTED_BY_NEWER_RELEASES = {("fs", "other_versions"): {4}}
"""Valid by the rule of releases after 0.18, whose manifests these are; 0.18 itself misses a sidecar."""
REFUSED_HERE = {("fs", "odd_names"): {11, 2**64 - 1}}
"""A document under another id, which LaminarDB does not notice; an id that no BIGINT holds."""


def _place(kind: str, name: str) -> Path:
    return GOLDEN / kind / name


@pytest.fixture
def catalog() -> ld.Catalog:
    return memory_catalog()


@pytest.mark.parametrize(("kind", "name"), NUMBERED)
def test_recovery_of_a_tree_chooses_and_skips_as_laminardb_does(kind: str, name: str) -> None:
    scenario = expected(kind)[name]
    seen = scenario["observed"]["recover_latest_validated"]["ok"]
    found = interop.inspect_source(_place(kind, name), prefix=scenario.get("prefix") or "")
    if (kind, name) in ACCEPTED_BY_NEWER_RELEASES:
        assert {int(found.chosen or 0)} == ACCEPTED_BY_NEWER_RELEASES[kind, name]
        return
    assert found.chosen == str(seen["chosen_id"])
    assert [skipped.name for skipped in found.skipped] == [str(number) for number, _ in seen["skipped"]]
    for ours, (_, theirs) in zip(found.skipped, seen["skipped"], strict=True):
        if theirs.startswith("corrupt manifest: "):
            # The rest is the JSON parser's own way to put it.
            assert ours.reason.startswith("corrupt manifest: ")
        else:
            assert ours.reason == theirs


@pytest.mark.parametrize(("kind", "name"), NUMBERED)
def test_every_valid_checkpoint_comes_in_with_its_manifest_and_the_bytes_of_its_state(
    kind: str, name: str, catalog: ld.Catalog
) -> None:
    scenario = expected(kind)[name]
    before = fingerprint(_place(kind, name))
    report = interop.import_checkpoints(_place(kind, name), catalog, "p", prefix=scenario.get("prefix") or "")
    valid = _valid(scenario) | ACCEPTED_BY_NEWER_RELEASES.get((kind, name), set())
    assert set(report.imported) == valid - REFUSED_HERE.get((kind, name), set())
    for number in REFUSED_HERE.get((kind, name), set()):
        assert str(number) in {skipped.name for skipped in report.skipped}
    store = DeltaCheckpointStore(catalog, "p")
    for number in report.imported:
        seen = scenario["observed"]["by_id"][str(number)]
        assert catalog.pipeline("p").get(number) == CheckpointManifest.from_dict(seen["load_by_id"]["ok"])
        state = seen["load_state_data"]["ok"]
        data = store.load_state_data(number)
        assert (data is None) == (state is None)
        if data is not None:
            assert (len(data), hashlib.sha256(data).hexdigest()) == (state["len"], state["sha256"])
    assert fingerprint(_place(kind, name)) == before


@pytest.mark.parametrize(("kind", "name"), NUMBERED)
def test_every_checkpoint_is_judged_as_laminardb_judges_it(kind: str, name: str) -> None:
    scenario = expected(kind)[name]["observed"]["by_id"]
    found = interop.inspect_source(_place(kind, name), prefix=expected(kind)[name].get("prefix") or "")
    otherwise = ACCEPTED_BY_NEWER_RELEASES.get((kind, name), set()) | REFUSED_HERE.get((kind, name), set())
    compared = 0
    for one in found.checkpoints:
        if one.checkpoint_id is None or one.checkpoint_id in otherwise:
            continue
        seen = scenario[str(one.checkpoint_id)]["validate_checkpoint"]["ok"]
        assert one.usable == seen["valid"]
        # In its words and its order; what it does not notice comes after.
        said = [_parser_aside(text) for text in seen["issues"]]
        assert [_parser_aside(text) for text in one.problems][: len(said)] == said
        compared += 1
    assert compared > 0


def _parser_aside(text: str) -> str:
    """The rest is the JSON parser's own way to put it."""
    return "corrupt manifest: " if text.startswith("corrupt manifest: ") else text


@pytest.mark.parametrize(("kind", "name"), NUMBERED)
def test_the_pointer_is_shown_as_it_is_and_recovery_does_not_depend_on_it(kind: str, name: str) -> None:
    prefix = expected(kind)[name].get("prefix") or ""
    found = interop.inspect_source(_place(kind, name), prefix=prefix)
    path = _place(kind, name) / f"{prefix}manifests" / "latest.json"
    path = path if path.exists() else _place(kind, name) / f"{prefix}checkpoints" / "latest.txt"
    assert found.pointer == path.read_text().strip()
    if name.startswith("ptr_"):
        # LaminarDB starts afresh here, although all three are fine.
        assert expected(kind)[name]["observed"]["load_latest_id"] == {"ok": None}
        assert found.chosen == "3"


def _valid(scenario: dict[str, Any]) -> set[int]:
    return {
        int(number)
        for number, seen in scenario["observed"]["by_id"].items()
        if seen["validate_checkpoint"]["ok"]["valid"] and seen["load_by_id"]["ok"] is not None
    }


@pytest.mark.parametrize(("kind", "name"), NUMBERED)
@pytest.mark.parametrize("layout", ["files", "objects"])
def test_out_and_in_again_is_the_same(kind: str, name: str, layout: str, catalog: ld.Catalog, tmp_path: Path) -> None:
    prefix = expected(kind)[name].get("prefix") or ""
    brought = interop.import_checkpoints(_place(kind, name), catalog, "p", prefix=prefix)
    written = interop.export_checkpoints(catalog, "p", tmp_path / "out", layout=layout)
    assert written.exported == brought.imported
    seen = interop.inspect_source(tmp_path / "out")
    assert seen.intact
    assert seen.kind == f"laminardb-{layout}"
    assert seen.chosen == str(brought.imported[-1])
    again = memory_catalog()
    assert interop.import_checkpoints(tmp_path / "out", again, "p").imported == brought.imported
    _assert_same(catalog, again, brought.imported)


def _assert_same(one: ld.Catalog, other: ld.Catalog, numbers: tuple[int, ...]) -> None:
    for number in numbers:
        assert one.pipeline("p").get(number) == other.pipeline("p").get(number)
        ours, theirs = one.pipeline("p").state(number), other.pipeline("p").state(number)
        assert ours.partitions() == theirs.partitions()
        for operator, partitions in ours.partitions().items():
            for partition in partitions:
                assert ours.read(operator, partition) == theirs.read(operator, partition)


@pytest.mark.parametrize("name", ["nonexistent", "empty"])
def test_nothing_there_is_said_so(name: str, tmp_path: Path, catalog: ld.Catalog) -> None:
    if name == "empty":
        (tmp_path / name).mkdir()
    with pytest.raises(NotFoundError, match="holds no checkpoints"):
        interop.import_checkpoints(tmp_path / name, catalog, "p")


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_a_distributed_tree_comes_in_in_uuid_order(name: str, catalog: ld.Catalog) -> None:
    scenario = expected("v2")[name]
    listed = scenario["list_checkpoints"]["ok"]
    broken = {"019cd000-0003-7fff-bfff-ffffffffffff"} if name == "corrupt_latest_artifact" else set()
    report = interop.import_checkpoints(_place("v2", name), catalog, "p")
    assert {skipped.name for skipped in report.skipped} == broken
    assert report.imported == tuple(range(1, len(listed) - len(broken) + 1))
    for number, external in zip(report.imported, listed, strict=False):
        head = catalog.pipeline("p").get(number)
        document = CheckpointManifestV2.from_json(_document(name, external))
        assert (head.epoch, head.timestamp_ms, head.watermark) == (
            document.epoch,
            document.timestamp_ms,
            document.watermark,
        )
        assert head.parent_id == (None if document.parent_id is None else listed.index(str(document.parent_id)) + 1)
        assert head.source_offsets["kafka_src"].offsets.keys() == {"my-topic-0", "my-topic-12"}
        assert head.source_offsets["kafka_src"].metadata == {"connector_type": "kafka", "group_id": "g1"}


def _document(name: str, external: str) -> bytes:
    root = _place("v2", name) / "checkpoints"
    path = root / external / "manifest.json"
    return (path if path.exists() else root / f"{external}manifest.json").read_bytes()


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_every_file_of_a_distributed_tree_comes_in_with_its_bytes(name: str, catalog: ld.Catalog) -> None:
    report = interop.import_checkpoints(_place("v2", name), catalog, "p")
    listed = expected("v2")[name]["list_checkpoints"]["ok"]
    for number in report.imported:
        document = CheckpointManifestV2.from_json(_document(name, listed[number - 1]))
        state = catalog.pipeline("p").state(number)
        for operator, entry in document.operators.items():
            for partition in entry.partitions:
                stored = f"__delta__/{operator}" if partition.is_delta else operator
                data = state.read(stored, partition.partition_id)
                assert (len(data), hashlib.sha256(data).hexdigest()) == (partition.size_bytes, partition.sha256)


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_recovery_of_a_distributed_tree_does_what_laminardb_did(name: str, catalog: ld.Catalog) -> None:
    scenario = expected("v2")[name]
    seen = scenario["recovery"]["default"]
    looked = interop.inspect_source(_place("v2", name))
    assert looked.pointer == scenario["read_latest"]["ok"]
    interop.import_checkpoints(_place("v2", name), catalog, "p")
    pipeline = catalog.pipeline("p")
    chosen = pipeline.recover(dry_run=True).chosen_id
    assert chosen is not None
    listed = scenario["list_checkpoints"]["ok"]
    assert looked.chosen == listed[chosen - 1]
    if name == "documented_layout":
        # The newest lies where its documentation says, and where LaminarDB itself does not find it.
        assert (chosen, seen["result"]["ok"]["epoch"]) == (3, 2)
        return
    assert listed[chosen - 1] == seen["result"]["ok"]["checkpoint_id"]
    manifest = pipeline.get(chosen)
    assert (manifest.epoch, manifest.watermark) == (seen["result"]["ok"]["epoch"], seen["result"]["ok"]["watermark"])
    # Of each checkpoint's own files LaminarDB applied these, full ones first. What they are against it does not look up.
    for operator in seen["operator_calls"]:
        partitions = [number for number in range(3) if _has(pipeline, chosen, operator["operator"], number)]
        own = [interop.state_chain(pipeline, chosen, operator["operator"], number)[-1] for number in partitions]
        own.sort(key=lambda piece: piece.is_delta)
        assert [(piece.is_delta, len(piece.data), hashlib.sha256(piece.data).hexdigest()) for piece in own] == [
            (call["call"] == "apply_delta", call["len"], call["sha256"]) for call in operator["calls"]
        ]
    for source in seen["seeks"]:
        if source["calls"]:
            assert connector_to_v2(manifest.source_offsets[source["source"]]).offsets == source["calls"][0]
        else:
            assert source["source"] not in manifest.source_offsets


def _has(pipeline: Pipeline, number: int, operator: str, partition: int) -> bool:
    there = pipeline.state(number).partitions()
    return partition in (*there.get(operator, ()), *there.get(f"__delta__/{operator}", ()))


def test_deltas_come_back_with_what_they_are_against_in_the_order_to_apply_them(catalog: ld.Catalog) -> None:
    interop.import_checkpoints(_place("v2", "default"), catalog, "p")
    chain = interop.state_chain(catalog.pipeline("p"), 3, "window-agg", 0)
    assert [(piece.checkpoint_id, piece.is_delta) for piece in chain] == [(1, False), (2, True), (3, True)]


@pytest.mark.parametrize("name", DISTRIBUTED)
@pytest.mark.parametrize("layout", ["distributed", "distributed-0.18"])
def test_a_distributed_tree_goes_out_and_comes_in_again(
    name: str, layout: str, catalog: ld.Catalog, tmp_path: Path
) -> None:
    brought = interop.import_checkpoints(_place("v2", name), catalog, "p")
    written = interop.export_checkpoints(catalog, "p", tmp_path / "out", layout=layout)
    external = written.latest
    path = f"{external}/manifest.json" if layout == "distributed" else f"{external}manifest.json"
    assert (tmp_path / "out" / "checkpoints" / path).is_file()
    assert (tmp_path / "out" / "checkpoints" / "_latest").read_text() == external
    assert interop.inspect_source(tmp_path / "out").intact
    again = memory_catalog()
    assert interop.import_checkpoints(tmp_path / "out", again, "p").imported == brought.imported
    _assert_same(catalog, again, brought.imported)


def test_an_export_as_0_18_writes_it_has_the_very_paths_of_the_original(catalog: ld.Catalog, tmp_path: Path) -> None:
    interop.import_checkpoints(_place("v2", "default"), catalog, "p")
    interop.export_checkpoints(catalog, "p", tmp_path / "out", layout="distributed-0.18")
    assert fingerprint(tmp_path / "out").keys() == fingerprint(_place("v2", "default")).keys()
    for name in ("checkpoints/_latest", *(n for n in fingerprint(tmp_path / "out") if "operators" in n)):
        assert (tmp_path / "out" / name).read_bytes() == (_place("v2", "default") / name).read_bytes()


def test_both_forms_of_a_path_are_the_same_checkpoint(catalog: ld.Catalog, tmp_path: Path) -> None:
    shutil.copytree(_place("v2", "default"), tmp_path / "both")
    external = "019cd000-0001-7000-8000-00000000000a"
    root = tmp_path / "both" / "checkpoints"
    (root / external).mkdir()
    shutil.copy(root / f"{external}manifest.json", root / external / "manifest.json")
    assert interop.import_checkpoints(tmp_path / "both", catalog, "p").imported == (1, 2, 3)
    (root / external / "manifest.json").write_bytes(b"{}")
    seen = interop.inspect_source(tmp_path / "both")
    assert "two manifests" in seen.checkpoints[0].problems[0]
    # Its children are against it, so they are of no use either.
    assert [one.usable for one in seen.checkpoints] == [False, False, False]
