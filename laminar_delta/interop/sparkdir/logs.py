"""The logs of a Structured Streaming checkpoint directory, format v1.

metadata          {"id":"<query id>"}
offsets/<batch>   v1, then a line of metadata, then a line per source: its offset as JSON, or `-`
commits/<batch>   v1, then {"nextBatchWatermarkMs":...}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from laminar_delta.errors import FormatError
from laminar_delta.model import ConnectorCheckpoint
from laminar_delta.model.jsontext import Inexact, parse_json, render_json
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import I64_RANGE, U64_RANGE, IntRange

VERSION = "v1"
NO_OFFSET = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedBatch:
    """One entry of the offset log."""

    timestamp_ms: int
    watermark_ms: int | None
    """None while there is no watermark, which the log writes as 0."""
    offsets: tuple[str, ...]
    """Per source its offset as the source wrote it; `-` for a source that had none."""


def parse_query_id(data: bytes) -> str:
    """The query's id in `metadata`."""
    found = _object(_lines("metadata", data, versioned=False)[0], "metadata").get("id")
    if not isinstance(found, str) or not found:
        raise FormatError("metadata names no query id", expected="an id", found=str(found)[:60])
    return found


def parse_offsets(name: str, data: bytes) -> PlannedBatch:
    """An entry of the offset log."""
    lines = _lines(name, data)
    if not lines:
        raise FormatError(f"{name} ends after its version", expected="a line of metadata", found="the end")
    said = _object(lines[0], name)
    watermark = _number(said, "batchWatermarkMs", I64_RANGE, name)
    return PlannedBatch(
        timestamp_ms=_number(said, "batchTimestampMs", U64_RANGE, name),
        watermark_ms=watermark or None,
        offsets=tuple(lines[1:]),
    )


def check_commit(name: str, data: bytes) -> None:
    """Raises `FormatError` unless it is an entry of the commit log: a half-written one is no commit."""
    lines = _lines(name, data)
    _object(lines[0] if lines else "", name)


def flattened(offset: str) -> tuple[str, dict[str, str]]:
    """A source's offset as a type and a map, as manifests hold it; what has no known form stays one text."""
    try:
        parsed = parse_json(offset)
    except Mismatch:
        return "spark", {"offset": offset}
    if isinstance(parsed, Mapping) and parsed:
        topics = [(topic, parts) for topic, parts in parsed.items() if isinstance(parts, Mapping) and parts]
        if len(topics) == len(parsed) and all(_is_partitions(parts) for _, parts in topics):
            return "kafka", {f"{topic}-{part}": str(at) for topic, parts in topics for part, at in parts.items()}
        kind = "file" if "logOffset" in parsed else "delta" if "reservoirId" in parsed else "spark"
        return (f"spark-{kind}" if kind != "spark" else kind), {str(key): _text(item) for key, item in parsed.items()}
    return "spark", {"offset": offset}


def connector_checkpoints(planned: PlannedBatch, epoch: int) -> dict[str, ConnectorCheckpoint]:
    """Where the sources of a batch are after it, named by their place in the query; one without an offset is left out."""
    found = {}
    for index, offset in enumerate(planned.offsets):
        if offset != NO_OFFSET:
            kind, offsets = flattened(offset)
            found[f"source-{index}"] = ConnectorCheckpoint(
                offsets=offsets, epoch=epoch, metadata={"connector_type": kind, "spark_offset": offset}
            )
    return found


def _is_partitions(parts: Mapping[str, Any]) -> bool:
    return all(key.isascii() and key.isdigit() and type(item) is int for key, item in parts.items())


def _lines(name: str, data: bytes, *, versioned: bool = True) -> list[str]:
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise FormatError(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from error
    if not versioned:
        return lines
    if lines[0] != VERSION:
        raise FormatError(
            f"{name} has log version {lines[0][:20]!r}; {VERSION!r} is read here", expected=VERSION, found=lines[0][:20]
        )
    # A last newline ends the last line rather than beginning another.
    return lines[1:-1] if lines[-1] == "" else lines[1:]


def _object(text: str, name: str) -> Mapping[str, Any]:
    try:
        parsed = parse_json(text)
    except Mismatch as mismatch:
        raise mismatch.as_format_error(name) from None
    if not isinstance(parsed, Mapping):
        raise FormatError(f"{name} holds no JSON object", expected="an object", found=type(parsed).__name__)
    return parsed


def _number(said: Mapping[str, Any], key: str, limits: IntRange, name: str) -> int:
    try:
        return limits.take(said.get(key, 0))
    except Mismatch as mismatch:
        raise mismatch.as_format_error(f"{name}: {key}") from None


def _text(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, Inexact):
        return item.digits
    return render_json(_plain(item), pretty=False).decode()


def _plain(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(key): _plain(value) for key, value in item.items()}
    if isinstance(item, list):
        return [_plain(value) for value in item]
    return item.digits if isinstance(item, Inexact) else item
