"""Documents that the real readers accepted or refused, and the exact text the real writers produced."""

import json
from pathlib import Path
from typing import Any

import pytest

from laminar_delta import model
from laminar_delta.errors import FormatError
from laminar_delta.model import (
    CheckpointId,
    CheckpointManifest,
    CheckpointManifestV2,
    FilePosition,
    PostgresCdcPosition,
    SourceOffset,
    WireModel,
)

VECTORS = Path(__file__).parents[2] / "data" / "golden" / "vectors"
PARSE: list[dict[str, Any]] = json.loads((VECTORS / "json_parse.json").read_text("utf-8"))
EXACT = {case["text"]: case["what"] for case in json.loads((VECTORS / "serialize_exact.json").read_text("utf-8"))}


def reader(name: str) -> type[WireModel]:
    kind: type[WireModel] = getattr(model, name)
    assert issubclass(kind, WireModel)
    return kind


@pytest.mark.parametrize("case", PARSE, ids=lambda case: f"{case['type']}-{case['input'][:60]}")
@pytest.mark.parametrize("as_bytes", [False, True], ids=["str", "bytes"])
def test_document_is_read_as_the_real_reader_reads_it(case: dict[str, Any], as_bytes: bool) -> None:
    kind, document = reader(case["type"]), case["input"]
    given = document.encode("utf-8", "surrogatepass") if as_bytes else document
    if "ok" in case["result"]:
        value = kind.from_json(given)
        assert value.to_dict() == case["result"]["ok"]
        assert kind.from_json(value.to_json()) == value
        assert kind.from_dict(value.to_dict()) == value
    else:
        with pytest.raises(FormatError) as caught:
            kind.from_json(given)
        assert caught.value.expected
        assert caught.value.found is not None
        assert str(caught.value).startswith(case["type"])


def test_every_vector_names_a_type_that_exists() -> None:
    assert len(PARSE) == 93
    assert {case["type"] for case in PARSE} >= {"CheckpointManifest", "SourcePosition", "CheckpointManifestV2"}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (CheckpointManifest.new(1, 2, 3), "CheckpointManifest::new(1,2) with timestamp_ms=3, pretty"),
        (
            CheckpointManifestV2.new(CheckpointId("019cd000-0001-7000-8000-00000000000a"), 2, 3),
            "CheckpointManifestV2 pretty",
        ),
        (
            SourceOffset(source_id="src", position=PostgresCdcPosition(confirmed_flush_lsn="0/1", slot_name="s")),
            "SourceOffset compact",
        ),
        (SourceOffset(source_id="src", position=FilePosition(path="p", byte_offset=9)), "SourceOffset compact"),
    ],
    ids=["manifest", "v2", "postgres", "file"],
)
def test_written_text_is_what_the_real_writer_wrote(value: WireModel, what: str) -> None:
    assert EXACT[value.to_json().decode("utf-8")] == what


def test_every_exact_text_is_covered() -> None:
    assert len(EXACT) == 4


def test_pretty_and_compact_can_be_asked_for() -> None:
    manifest = CheckpointManifest.new(1, 2, 3)
    assert b"\n" not in manifest.to_json(pretty=False)
    assert manifest.to_json(pretty=False).startswith(b'{"version":1,"checkpoint_id":1,"epoch":2,')
    assert CheckpointManifest.from_json(manifest.to_json(pretty=False)) == manifest
    offset = SourceOffset(source_id="s", position=FilePosition(path="p", byte_offset=1))
    assert offset.to_json(pretty=True).startswith(b'{\n  "source_id": "s",\n  "position": {\n    "type": "File"')


def test_text_is_written_raw_except_for_what_json_must_escape() -> None:
    offset = SourceOffset(source_id='ü日😀/"\\\x00\x1f\x7f\n', position=FilePosition(path="", byte_offset=0))
    assert offset.to_json().startswith('{"source_id":"ü日😀/\\"\\\\\\u0000\\u001f\x7f\\n",'.encode())
