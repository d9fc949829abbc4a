"""Every LCB1 file of the golden set, against what LaminarDB 0.18.0 itself answered."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from laminar_delta.codec import BatchEntry, crc32c, decode_batch, encode_batch, parse_header
from laminar_delta.errors import CorruptionError, ErrorCode, FormatError, LaminarDeltaError

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "lcb1"
EXPECTED: dict[str, Any] = json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))
CRAFTED: dict[str, Any] = EXPECTED["crafted"]
FLUSHED: dict[str, Any] = {name: case for name, case in EXPECTED.items() if isinstance(case, dict) and case.get("file")}

STRICTER = {
    "count_too_small": "the header says 1 entry of 2: LaminarDB drops the second without a word",
    "count_zero": "the header says no entry of 2: LaminarDB drops both",
    "extra_body_bytes": "bytes after the last entry: LaminarDB ignores them",
    "count_u32_max": "LaminarDB allocates for 2^32-1 entries and aborts the process",
}
"""Files that LaminarDB reads, or dies of, and we refuse because count, lengths and end do not agree."""

FORMAT_ERRORS = {"bad_magic", "version_0", "version_3"}


def accepted(cases: dict[str, Any]) -> list[str]:
    return [name for name, case in cases.items() if "ok" in case["decode"] and name not in STRICTER]


def refused() -> list[str]:
    return [name for name, case in CRAFTED.items() if "err" in case["decode"]]


def refusal(name: str) -> LaminarDeltaError:
    with pytest.raises((CorruptionError, FormatError)) as caught:
        decode_batch((GOLDEN / CRAFTED[name]["file"]).read_bytes())
    return caught.value


def assert_entries(entries: list[BatchEntry], expected: list[dict[str, Any]]) -> None:
    assert [entry.key for entry in entries] == [row["key"] for row in expected]
    for entry, row in zip(entries, expected, strict=True):
        assert len(entry.data) == row["len"]
        if "data_b64" in row:
            assert entry.data == base64.b64decode(row["data_b64"])
        else:
            assert hashlib.sha256(entry.data).hexdigest() == row["sha256"]


def test_every_file_of_the_golden_set_is_used() -> None:
    named = {GOLDEN / case["file"] for case in (*CRAFTED.values(), *FLUSHED.values())}
    assert named == set(GOLDEN.rglob("*.lz4"))
    assert set(accepted(CRAFTED)) | set(refused()) | set(STRICTER) == set(CRAFTED)
    assert (len(CRAFTED), len(FLUSHED)) == (42, 6)


@pytest.mark.parametrize("name", sorted(FLUSHED))
def test_flushed_batch_reads_as_the_entries_that_went_in(name: str) -> None:
    case = FLUSHED[name]
    payload = (GOLDEN / case["file"]).read_bytes()
    header = parse_header(payload)
    assert payload[: header.size].hex() == case["header_hex"]
    assert header.version == 2
    assert header.entry_count == case["metrics"]["entries_flushed"]
    assert header.raw_length == case["metrics"]["bytes_before_compression"]
    assert len(payload) == case["metrics"]["bytes_after_compression"]
    assert_entries(decode_batch(payload), case["decode"]["ok"])


@pytest.mark.parametrize("name", sorted(FLUSHED))
def test_flushed_batch_written_again_differs_in_nothing_but_the_compression(name: str) -> None:
    payload = (GOLDEN / FLUSHED[name]["file"]).read_bytes()
    again = encode_batch(decode_batch(payload))
    assert again[:16] == payload[:16]
    assert again[20:24] == payload[20:24]
    assert decode_batch(again) == decode_batch(payload)


@pytest.mark.parametrize("name", ["one_small", "two"])
def test_batch_of_literals_only_is_written_byte_for_byte(name: str) -> None:
    payload = (GOLDEN / FLUSHED[name]["file"]).read_bytes()
    assert encode_batch(decode_batch(payload)) == payload


@pytest.mark.parametrize("name", ["good_v2", "zero_entries"])
def test_crafted_batch_of_literals_only_is_written_byte_for_byte(name: str) -> None:
    payload = bytes.fromhex(CRAFTED[name]["hex"])
    assert encode_batch(decode_batch(payload)) == payload


@pytest.mark.parametrize("name", accepted(CRAFTED))
def test_crafted_batch_laminardb_reads_is_read_alike(name: str) -> None:
    payload = (GOLDEN / CRAFTED[name]["file"]).read_bytes()
    assert_entries(decode_batch(payload), CRAFTED[name]["decode"]["ok"])


@pytest.mark.parametrize("name", refused())
def test_crafted_batch_laminardb_refuses_is_refused_in_its_words(name: str) -> None:
    display: str = CRAFTED[name]["decode"]["err"]["display"].removeprefix("checkpoint I/O error: ")
    # What follows the colon is the text of the LZ4 library, another one here.
    words = "LZ4 decompression failed: " if display.startswith("LZ4") else display
    error = refusal(name)
    assert error.message.startswith(words)
    assert type(error) is (FormatError if name in FORMAT_ERRORS else CorruptionError)


@pytest.mark.parametrize("name", [name for name in refused() if "CRC32C" in CRAFTED[name]["decode"]["err"]["display"]])
def test_crc_mismatch_gives_both_values_as_laminardb_prints_them(name: str) -> None:
    error = refusal(name)
    assert error.code is ErrorCode.CHECKSUM_MISMATCH
    display: str = CRAFTED[name]["decode"]["err"]["display"]
    assert display.endswith(f"expected {error.expected}, actual {error.found}")


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_batch_whose_count_and_body_disagree_is_refused(name: str) -> None:
    error = refusal(name)
    assert type(error) is CorruptionError
    assert error.message.startswith(("batch count and body do not agree", "truncated batch entry"))
    assert error.expected != error.found


def test_crc_check_value() -> None:
    assert crc32c(b"123456789") == int(EXPECTED["crc32c_123456789"], 16)
