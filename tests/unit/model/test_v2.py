import base64
import json
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.errors import CorruptionError, ErrorCode
from laminar_delta.model import CheckpointId, CheckpointManifestV2, PartitionSnapshotEntry

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "verify_integrity.json").read_text("utf-8")
)


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["expected"][:8] or "empty")
def test_digest_is_compared_as_the_real_code_compares_it(case: dict[str, Any]) -> None:
    data = base64.b64decode(case["data_b64"])
    entry = PartitionSnapshotEntry(
        partition_id=0, is_delta=False, path="p/x", size_bytes=len(data), sha256=case["expected"]
    )
    if case["result"] == "ok":
        entry.verify(data)
    else:
        with pytest.raises(CorruptionError, match="p/x") as caught:
            entry.verify(data)
        assert caught.value.code is ErrorCode.CHECKSUM_MISMATCH
        assert caught.value.expected == case["expected"]
        assert f"got {caught.value.found}" in case["result"]["display"]


def test_entry_without_digest_takes_anything() -> None:
    PartitionSnapshotEntry(partition_id=0, is_delta=False, path="p", size_bytes=1).verify(b"anything")


def test_new_manifest_is_of_version_2() -> None:
    manifest = CheckpointManifestV2.new(CheckpointId.now(), 3)
    assert (manifest.version, manifest.epoch, manifest.parent_id) == (2, 3, None)
    assert manifest.timestamp_ms > 1_600_000_000_000
