"""`inspect`, `import` and `export` as people and scripts type them."""

import json
from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from tests.cli.support import Done, Run
from tests.interop.support import GOLDEN, fingerprint


def _json(done: Done) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_look_bring_in_look_again_and_take_out(run: Run, tmp_path: Path) -> None:
    tree, catalog = GOLDEN / "fs" / "full", tmp_path / "catalog"
    before = fingerprint(tree)
    looked = run("inspect", tree)
    assert (looked.returncode, looked.stderr) == (0, "")
    assert "LaminarDB, file-system store, 10 found" in looked.stdout
    assert "Recovery would use 1234567." in looked.stdout
    assert "Intact." in looked.stdout
    planned = run("import", tree, "--catalog", catalog, "--pipeline", "p", "--dry-run")
    assert planned.returncode == 0
    assert "10 would be imported" in planned.stdout
    assert not catalog.exists()
    done = run("import", tree, "--catalog", catalog, "--pipeline", "p")
    assert done.returncode == 0
    assert "10 imported into pipeline 'p', 0 were there already, 0 skipped" in done.stdout
    again = run("import", tree, "--catalog", catalog, "--pipeline", "p", "--json")
    assert (_json(again)["imported"], _json(again)["already_there"]) == ([], 10)
    assert [head.checkpoint_id for head in ld.open_catalog(str(catalog)).pipeline("p").list()][-1] == 1234567
    written = run("export", tmp_path / "out", "--catalog", catalog, "--pipeline", "p", "--layout", "objects", "--json")
    assert written.returncode == 0
    assert _json(written)["latest"] == "1234567"
    assert _json(run("inspect", tmp_path / "out", "--json"))["intact"] is True
    some = run(
        "export", tmp_path / "some", "--catalog", catalog, "--pipeline", "p", "--checkpoint", 4, "--checkpoint", 5
    )
    assert "2 checkpoints written" in some.stdout
    own = run("inspect", catalog, "--json")
    assert _json(own)["kind"] == "laminar-delta-catalog"
    # Two of them hold what LaminarDB never notices, and say so themselves.
    assert [one["name"] for one in _json(own)["checkpoints"] if not one["usable"]] == ["p/9"]
    assert fingerprint(tree) == before


def test_damage_is_a_finding_and_names_everything(run: Run, tmp_path: Path) -> None:
    tree = GOLDEN / "fs" / "corrupt"
    looked = run("inspect", tree)
    assert looked.returncode == 1
    assert "Recovery would use 3, passing over 11, 10, 9, 8, 7, 6, 5, 4." in looked.stdout
    assert "8 of 11 cannot be used." in looked.stdout
    done = run("import", tree, "--catalog", tmp_path / "catalog", "--pipeline", "p", "--json")
    assert done.returncode == 1
    report = _json(done)
    assert report["imported"] == [1, 2, 3]
    assert {one["name"] for one in report["skipped"]} == {str(n) for n in range(4, 12)}
    shown = run("import", tree, "--catalog", tmp_path / "catalog", "--pipeline", "p")
    assert shown.returncode == 1
    assert "state.bin referenced by checksum but not found" in shown.stdout


def test_a_batch_alone_can_be_looked_at(run: Run) -> None:
    good = run("inspect", GOLDEN / "lcb1" / "crafted" / "good_v2.lz4", "--json")
    assert (good.returncode, _json(good)["kind"]) == (0, "lcb1-batch")
    assert _json(good)["details"] == {"version": 2, "entries": {"k": 1}}
    bad = run("inspect", GOLDEN / "lcb1" / "crafted" / "bad_body_byte.lz4")
    assert bad.returncode == 1
    assert "CRC32C mismatch" in bad.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["inspect", "nowhere"], 3, "holds no checkpoints of a kind known here"),
        (["inspect", "nowhere", "--kind", "flink"], 2, "there is no kind of source 'flink'"),
        (["import", "nowhere", "--catalog", "c", "--pipeline", "p"], 3, "holds no checkpoints of a kind known here"),
        (["import", "tree", "--catalog", "tree/checkpoints/c", "--pipeline", "p"], 2, "a source is never changed"),
        (["import", "tree", "--catalog", "tree", "--pipeline", "p"], 2, "a source is never changed"),
        (["import", "tree", "--catalog", "tree/checkpoint_1/c", "--pipeline", "p"], 2, "a source is never changed"),
        (["import", "checkpoints", "--catalog", "checkpoints/c", "--pipeline", "p"], 2, "a source is never changed"),
        (["export", "out", "--catalog", "nowhere", "--pipeline", "p"], 3, "there is no catalog at"),
        (["inspect", "nosuch://me:secret@bucket"], 2, "nosuch://***@bucket is no place files can be read from"),
    ],
)
def test_an_error_is_one_sentence_and_leaves_nothing_behind(
    run: Run, arguments: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    places = {
        "nowhere",
        "tree",
        "tree/checkpoints/c",
        "tree/checkpoint_1/c",
        "checkpoints",
        "checkpoints/c",
        "out",
        "c",
    }
    done = run(*(tmp_path / word if word in places else word for word in arguments))
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["cwd"]
    assert list((tmp_path / "cwd").iterdir()) == []


def test_help_and_wrong_calls(run: Run) -> None:
    for command in ("inspect", "import", "export"):
        done = run(command, "--help")
        assert done.returncode == 0
        assert "--json" in done.stdout
    assert run("import", "somewhere").returncode == 2
    assert run("export").returncode == 2


def test_a_terminal_escape_in_a_name_is_not_passed_on(run: Run, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints" / "checkpoint_000001"
    directory.mkdir(parents=True)
    document = ld.CheckpointManifest.new(2, 1).to_dict()
    document["operator_states"] = {"\x1b[31m[bold]evil": {"state_b64": "!"}}
    (directory / "manifest.json").write_text(json.dumps(document))
    done = run("inspect", tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "[bold]evil" in done.stdout
