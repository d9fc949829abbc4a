"""What a checkpoint's offsets of a source say, by the kind of source: where Kafka goes on, with which version Delta does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laminar_delta.errors import ConflictError, CorruptionError
from laminar_delta.interop.sparkdir.logs import flattened
from laminar_delta.model import KafkaPartitionOffset, KafkaPosition, SourcePosition
from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import I64_RANGE

if TYPE_CHECKING:
    from laminar_delta.model import ConnectorCheckpoint

KAFKA, DELTA, FILES = "kafka", "spark-delta", "spark-file"
"""What sources are called in the metadata of their offsets."""

END_INDEX = 2**63 - 1 - 100
"""Delta's index behind the last file of a version."""

EXACTLY = "`restore_spark_checkpoint` makes a checkpoint directory that goes on exactly there."


def kind_of(found: ConnectorCheckpoint) -> str:
    """What kind of source offsets are of, by what is said of them or by what they look like."""
    said = found.metadata.get("connector_type")
    if said is not None:
        return said
    if found.metadata.get("topic") is not None:
        return KAFKA
    if "reservoirVersion" in found.offsets:
        return DELTA
    return flattened(json.dumps(dict(found.offsets)))[0]


def kafka_offsets(source: str, found: ConnectorCheckpoint) -> dict[str, dict[str, int]]:
    """Per topic and partition the next offset to read, from the offsets themselves: they may have been edited.

    Raises:
        CorruptionError: One of them is no number.
    """
    topic = found.metadata.get("topic")
    partitions: list[KafkaPartitionOffset] = []
    if topic is not None and all(key.isdigit() for key in found.offsets):
        named = {f"{topic}-{key}": value for key, value in found.offsets.items()}
    else:
        named = dict(found.offsets)
    position = SourcePosition.from_connector_checkpoint(type(found)(offsets=named, epoch=found.epoch), KAFKA)
    if isinstance(position, KafkaPosition):
        partitions.extend(position.partitions)
    if not partitions or len(partitions) != len(found.offsets):
        raise CorruptionError(
            f"the offsets of source {source!r} are not Kafka's",
            expected="<topic>-<partition> and a number each",
            found=dict(found.offsets),
            next_step="Keep the topic in the offsets' keys, or as `topic` in the source's metadata.",
        )
    topics: dict[str, dict[str, int]] = {}
    for entry in partitions:
        topics.setdefault(entry.topic, {})[str(entry.partition)] = entry.offset
    return topics


def delta_version(source: str, found: ConnectorCheckpoint, *, repeat: bool = False) -> int:
    """The version a Delta source goes on with. Raises `ConflictError` where that is not the beginning of one."""
    version, index = offset_number(source, found, "reservoirVersion"), offset_number(source, found, "index")
    is_snapshot = found.offsets.get("isStartingVersion") == "true"
    if is_snapshot:
        raise ConflictError(
            f"source {source!r} was in the middle of its first snapshot, version {version}: no option begins there",
            expected="between two versions",
            found=dict(found.offsets),
            next_step=EXACTLY,
        )
    if index >= END_INDEX:
        return version + 1
    if index >= 0 and not repeat:
        raise ConflictError(
            f"source {source!r} had read {index + 1} files of version {version}: options begin with whole versions",
            expected="between two versions",
            found=dict(found.offsets),
            next_step=f"{EXACTLY} `repeat=True` begins with version {version} and reads those files again.",
        )
    return version


def offset_number(source: str, found: ConnectorCheckpoint, name: str) -> int:
    """A number among a source's offsets. Raises `CorruptionError` when it is none."""
    number = parse_integer(found.offsets.get(name, ""), I64_RANGE)
    if number is None:
        raise CorruptionError(
            f"{name} of source {source!r} is no number", expected="a number", found=found.offsets.get(name)
        )
    return number
