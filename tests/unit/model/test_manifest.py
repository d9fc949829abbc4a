import json
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.errors import CorruptionError, ErrorCode
from laminar_delta.model import INLINE_THRESHOLD_BYTES, CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint

VECTORS = Path(__file__).parents[2] / "data" / "golden" / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((VECTORS / name).read_text("utf-8"))
    return cases


def test_manifest_has_the_22_fields_in_order() -> None:
    assert " ".join(field.name for field in fields(CheckpointManifest)) == (
        "version checkpoint_id epoch timestamp_ms source_offsets sink_epochs sink_commit_statuses table_offsets "
        "operator_states table_store_checkpoint_path wal_position per_core_wal_positions watermark source_watermarks "
        "source_names sink_names pipeline_hash inflight_data size_bytes is_incremental parent_id state_checksum"
    )


def test_new_manifest_is_of_version_1_and_created_now() -> None:
    before = time.time_ns() // 1_000_000
    manifest = CheckpointManifest.new(7, 8)
    assert before <= manifest.timestamp_ms <= time.time_ns() // 1_000_000
    assert (manifest.version, manifest.checkpoint_id, manifest.epoch) == (1, 7, 8)
    assert CheckpointManifest.new(0, 0, 0).timestamp_ms == 0


def test_clock_before_1970_counts_as_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: -5_000_000)
    assert CheckpointManifest.new(1, 1).timestamp_ms == 0


def test_connector_checkpoint_shorthands() -> None:
    assert ConnectorCheckpoint.new(5) == ConnectorCheckpoint(offsets={}, epoch=5, metadata={})
    assert ConnectorCheckpoint.with_offsets(5, {"a": "1"}) == ConnectorCheckpoint(offsets={"a": "1"}, epoch=5)


@pytest.mark.parametrize("case", vectors("base64.json"), ids=lambda case: repr(case["state_b64"]))
def test_inline_state_is_decoded_as_strictly_as_the_real_code(case: dict[str, Any]) -> None:
    entry = OperatorCheckpoint(state_b64=case["state_b64"])
    lenient = entry.decode_inline()
    assert (None if lenient is None else lenient.hex()) == case["decode_inline_hex"]
    if "ok_hex" in case["try_decode_inline"]:
        decoded = entry.try_decode_inline()
        assert decoded is not None
        assert decoded.hex() == case["try_decode_inline"]["ok_hex"]
    else:
        with pytest.raises(CorruptionError, match="LDB-4004") as caught:
            entry.try_decode_inline()
        assert caught.value.code is ErrorCode.CORRUPTION
        assert caught.value.expected
        assert caught.value.found


@pytest.mark.parametrize("text", ["ü", "QQ-_", "QQ", "QQ=", "Q===", "QQ==QQ==", "QQ== ", "\0"])
def test_more_text_that_is_not_base64(text: str) -> None:
    with pytest.raises(CorruptionError):
        OperatorCheckpoint(state_b64=text).try_decode_inline()


def test_absent_state_is_none_and_empty_state_is_empty() -> None:
    assert OperatorCheckpoint().try_decode_inline() is None
    assert OperatorCheckpoint().decode_inline() is None
    assert OperatorCheckpoint.inline(b"") == OperatorCheckpoint(state_b64="")
    assert OperatorCheckpoint.inline(b"").try_decode_inline() == b""


def test_decoding_looks_only_at_the_text() -> None:
    assert OperatorCheckpoint(state_b64="eA==", external=True).try_decode_inline() == b"x"
    assert OperatorCheckpoint.external_at(1, 2).decode_inline() is None


@settings(deadline=None)
@given(st.binary())
def test_inline_state_comes_back(data: bytes) -> None:
    assert OperatorCheckpoint.inline(data).try_decode_inline() == data


@pytest.mark.parametrize("case", vectors("from_bytes.json"), ids=lambda case: f"{case['len']}-{case['threshold']}")
def test_state_is_placed_by_size(case: dict[str, Any]) -> None:
    data = b"x" * case["len"]
    entry, sidecar = OperatorCheckpoint.from_bytes(data, case["threshold"], case["current_offset"])
    assert (entry.state_b64 is not None) == case["inline"]
    assert entry.external == case["external"]
    assert (entry.external_offset, entry.external_length) == (case["external_offset"], case["external_length"])
    assert (None if sidecar is None else len(sidecar)) == case["sidecar_len"]


def test_state_above_the_threshold_goes_to_the_sidecar() -> None:
    entry, sidecar = OperatorCheckpoint.from_bytes(b"abcd", 3, 17)
    assert entry == OperatorCheckpoint.external_at(17, 4)
    assert sidecar == b"abcd"
    assert INLINE_THRESHOLD_BYTES == 1024 * 1024
