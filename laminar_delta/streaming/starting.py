"""Options that make a source begin where a checkpoint was, for a query with a checkpoint directory of its own.

Where options cannot say it exactly, that is an error that names what can: `restore_spark_checkpoint` always does.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, NotFoundError
from laminar_delta.interop.sparkdir.logs import flattened
from laminar_delta.model import KafkaPartitionOffset, KafkaPosition, SourcePosition
from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import I64_RANGE
from laminar_delta.streaming.kept import find_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint

KAFKA, DELTA, FILES = "kafka", "spark-delta", "spark-file"
"""What sources are called in the metadata of their offsets."""

END_INDEX = 2**63 - 1 - 100
"""Delta's index behind the last file of a version."""

_EXACTLY = "`restore_spark_checkpoint` makes a checkpoint directory that goes on exactly there."


def starting_options(
    catalog: Catalog, pipeline: str, source: str, checkpoint_id: int | None = None, *, repeat: bool = False
) -> dict[str, str]:
    """The options with which `readStream` begins where a checkpoint was.

    Args:
        catalog: Where the checkpoint is.
        pipeline: Whose.
        source: Which of its sources.
        checkpoint_id: Which; the newest by default.
        repeat: Where a Delta source stood in the middle of a version, begin with that version, which repeats a part of it.

    Returns:
        `startingOffsets` for Kafka, `startingVersion` for Delta.

    Raises:
        ConflictError: A Delta source stood where no option can begin: in the middle of a version, or of its first snapshot.
        InvalidInputError: Code `unsupported`: a file source, for which Spark has no such option.
        NotFoundError: There is no such checkpoint or source.
    """
    manifest, found = find_source(catalog, pipeline, source, checkpoint_id)
    kind = kind_of(found)
    if kind == KAFKA:
        return {"startingOffsets": json.dumps(kafka_offsets(source, found), sort_keys=True, separators=(",", ":"))}
    if kind == DELTA:
        return {"startingVersion": str(delta_version(source, found, repeat=repeat))}
    is_files = kind == FILES
    raise InvalidInputError(
        f"source {source!r} of checkpoint {manifest.checkpoint_id} is of kind {kind}: Spark has no option to begin there",
        code=ErrorCode.UNSUPPORTED,
        expected=[KAFKA, DELTA],
        found=kind,
        next_step=_EXACTLY + (" `files_read` tells which files were read, to leave them out." if is_files else ""),
    )


def files_read(catalog: Catalog, pipeline: str, source: str, checkpoint_id: int | None = None) -> list[str]:
    """The files a file source had read by a checkpoint, as Spark names them: `_metadata.file_path` compares with them.

    Raises:
        InvalidInputError: It is no file source.
        NotFoundError: There is no such checkpoint or source, or not all of what the source noted is kept.
    """
    manifest, found = find_source(catalog, pipeline, source, checkpoint_id)
    index = source.rpartition("-")[2]
    if kind_of(found) != FILES or not index.isdigit():
        raise InvalidInputError(f"source {source!r} reads no files", expected=FILES, found=kind_of(found))
    logs = find_batch(catalog, pipeline, manifest.checkpoint_id).source_logs
    paths: set[str] = set()
    for name, entry in logs.items():
        if name.startswith(f"sources/{index}/"):
            try:
                paths.update(str(json.loads(line)["path"]) for line in entry.decode().split("\n")[1:] if line)
            except (KeyError, TypeError, ValueError) as error:
                raise CorruptionError(f"what is kept of {name} cannot be read: {error}") from error
    return sorted(paths)


def find_source(
    catalog: Catalog, pipeline: str, source: str, checkpoint_id: int | None
) -> tuple[CheckpointManifest, ConnectorCheckpoint]:
    """A source of a checkpoint, the newest by default. Raises `NotFoundError`."""
    manifest = find_manifest(catalog, pipeline, checkpoint_id)
    if source not in manifest.source_offsets:
        raise NotFoundError(
            f"checkpoint {manifest.checkpoint_id} of pipeline {pipeline!r} has no offsets of source {source!r}",
            expected=source,
            found=sorted(manifest.source_offsets),
            next_step=f"There are: {', '.join(sorted(manifest.source_offsets)) or 'none'}.",
        )
    return manifest, manifest.source_offsets[source]


def find_manifest(catalog: Catalog, pipeline: str, checkpoint_id: int | None) -> CheckpointManifest:
    """A checkpoint, the newest by default. Raises `NotFoundError`."""
    found = catalog.pipeline(pipeline)
    manifest = found.latest() if checkpoint_id is None else found.get(checkpoint_id)
    if manifest is None:
        raise NotFoundError(f"pipeline {pipeline!r} has no checkpoint", expected="a checkpoint", found=None)
    return manifest


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
    version, index = _number(source, found.offsets, "reservoirVersion"), _number(source, found.offsets, "index")
    is_snapshot = found.offsets.get("isStartingVersion") == "true"
    if is_snapshot:
        raise ConflictError(
            f"source {source!r} was in the middle of its first snapshot, version {version}: no option begins there",
            expected="between two versions",
            found=dict(found.offsets),
            next_step=_EXACTLY,
        )
    if index >= END_INDEX:
        return version + 1
    if index >= 0 and not repeat:
        raise ConflictError(
            f"source {source!r} had read {index + 1} files of version {version}: options begin with whole versions",
            expected="between two versions",
            found=dict(found.offsets),
            next_step=f"{_EXACTLY} `repeat=True` begins with version {version} and reads those files again.",
        )
    return version


def _number(source: str, offsets: Mapping[str, str], name: str) -> int:
    found = parse_integer(offsets.get(name, ""), I64_RANGE)
    if found is None:
        raise CorruptionError(f"{name} of source {source!r} is no number", expected="a number", found=offsets.get(name))
    return found
