"""Options that make a source begin where a checkpoint was, for a query with a checkpoint directory of its own.

Where options cannot say it exactly, that is an error that names what can: `restore_spark_checkpoint` always does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.deliveries import Deliveries
from laminar_delta.catalog.healing import committed_row, find_rows
from laminar_delta.catalog.reconcile import open_checkpoints
from laminar_delta.catalog.standing import standing
from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, NotFoundError
from laminar_delta.model.status import SinkCommitKind
from laminar_delta.streaming.finding import find_batch
from laminar_delta.streaming.kafka_checks import broker_range
from laminar_delta.streaming.offsets import DELTA, EXACTLY, FILES, KAFKA, delta_version, kafka_offsets, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint
    from laminar_delta.streaming.kafka_checks import KafkaSettings

_LOCAL = re.compile(r"^file:/{3}(?!/)")

EARLIEST = -2
"""Where Kafka's beginning is, in Spark's words."""

_ASK_THEM = (
    "Run the query that was before once more in its own directory: it asks the sinks, and records what they have or completes "
    "it. Then ask again."
)


def starting_options(
    catalog: Catalog,
    pipeline: str,
    source: str,
    checkpoint_id: int | None = None,
    *,
    repeat: bool = False,
    failed_sinks: FailedSinks = FailedSinks.SKIP,
    kafka: KafkaSettings | None = None,
    spark: SparkSession | None = None,
    table: str | None = None,
    timeout_s: float = 20.0,
) -> dict[str, str]:
    """The options with which `readStream` begins where a checkpoint was.

    Args:
        catalog: Where the checkpoint is.
        pipeline: Whose.
        source: Which of its sources.
        checkpoint_id: Which; by default the one that recovery goes on from.
        repeat: Where a Delta source stood in the middle of a version, begin with that version, which repeats a part of it.
        failed_sinks: Whether a checkpoint may be begun at that a sink failed to deliver.
        kafka: How to reach the brokers, as for `check_resume`. Spark wants each partition of the topics named: with this, those
            that are new since begin at their beginning.
        spark: The session to ask for a Delta source's table. With `table` or not at all.
        table: That table, a path or a name: whether it has the version already, or else `ConflictError`. Delta refuses one that
            is still to come, and a source that has read everything goes on with such a one. Without, only the start of the
            query tells.
        timeout_s: How long a broker may take to answer.

    Returns:
        `startingOffsets` for Kafka, `startingVersion` for Delta.

    Raises:
        ConflictError: The checkpoint was passed over by a recovery, or a sink does not have it: what comes after it is not all
            that is missing. Without an id, also while a later one waits for its sinks, which may have it, or was passed over
            and some sinks have it. Or a Delta source stood where no option can begin: in the middle of a version, or of its
            first snapshot.
        InvalidInputError: Code `unsupported`: a file source, for which Spark has no such option.
        NotFoundError: There is no such checkpoint or source.
    """
    manifest, found = find_source(catalog, pipeline, source, checkpoint_id, failed_sinks)
    kind = kind_of(found)
    if kind == KAFKA:
        topics = kafka_offsets(source, found)
        if kafka is not None:
            for topic, partition in broker_range(kafka, topics.keys(), timeout_s=timeout_s):
                topics[topic].setdefault(str(partition), EARLIEST)
        return {"startingOffsets": json.dumps(topics, sort_keys=True, separators=(",", ":"))}
    if kind == DELTA:
        version = delta_version(source, found, repeat=repeat)
        _check_table(source, version, spark, table)
        return {"startingVersion": str(version)}
    is_files = kind == FILES
    raise InvalidInputError(
        f"source {source!r} of checkpoint {manifest.checkpoint_id} is of kind {kind}: Spark has no option to begin there",
        code=ErrorCode.UNSUPPORTED,
        expected=[KAFKA, DELTA],
        found=kind,
        next_step=EXACTLY + (" `files_read` tells which files were read, to leave them out." if is_files else ""),
    )


def files_read(catalog: Catalog, pipeline: str, source: str, checkpoint_id: int | None = None) -> list[str]:
    """The files a file source had read by a checkpoint, as `_metadata.file_path` names them: it compares with these.

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
    # The log has local files under an empty authority, and the column under none. Encoded they are alike.
    return sorted(_LOCAL.sub("file:/", path) for path in paths)


def find_source(
    catalog: Catalog,
    pipeline: str,
    source: str,
    checkpoint_id: int | None,
    failed_sinks: FailedSinks = FailedSinks.SKIP,
) -> tuple[CheckpointManifest, ConnectorCheckpoint]:
    """A source of a checkpoint to go on from, by default of the one that recovery chooses.

    Raises:
        ConflictError: The checkpoint is not one to go on from; or none was named, and its sinks may have a later one.
        NotFoundError: There is no such checkpoint or source.
    """
    manifest = find_manifest(catalog, pipeline, checkpoint_id, failed_sinks)
    if checkpoint_id is None:
        _check_settled(catalog, pipeline, manifest.checkpoint_id)
    reason = passed_over(catalog, pipeline, manifest.checkpoint_id, failed_sinks)
    if reason is not None:
        raise ConflictError(
            f"checkpoint {manifest.checkpoint_id} of pipeline {pipeline!r} is not one to go on from: {reason}",
            expected="a checkpoint that all its sinks have",
            found=reason,
            next_step="Leave the id out to begin where recovery goes on.",
        )
    if source not in manifest.source_offsets:
        raise NotFoundError(
            f"checkpoint {manifest.checkpoint_id} of pipeline {pipeline!r} has no offsets of source {source!r}",
            expected=source,
            found=sorted(manifest.source_offsets),
            next_step=f"There are: {', '.join(sorted(manifest.source_offsets)) or 'none'}.",
        )
    return manifest, manifest.source_offsets[source]


def find_manifest(
    catalog: Catalog, pipeline: str, checkpoint_id: int | None, failed_sinks: FailedSinks = FailedSinks.SKIP
) -> CheckpointManifest:
    """A checkpoint, by default the one that recovery goes on from. Raises `NotFoundError`."""
    found = catalog.pipeline(pipeline)
    if checkpoint_id is not None:
        return found.get(checkpoint_id)
    report = found.recover(failed_sinks=failed_sinks, dry_run=True)
    if report.manifest is None:
        passed = [f"{skipped.checkpoint_id}: {skipped.reason}" for skipped in report.skipped]
        raise NotFoundError(
            f"pipeline {pipeline!r} has no checkpoint to go on from", expected="a checkpoint", found=passed or None
        )
    return report.manifest


def _check_settled(catalog: Catalog, pipeline: str, checkpoint_id: int) -> None:
    """Refuses to go on from a checkpoint while some sinks have a later one, or nobody has asked them whether they do.

    A dry run cannot ask them. Begun behind this one, a query would give them again what they have or turn out to have.
    """
    _check_completed(catalog, pipeline, checkpoint_id)
    waiting = [
        left for left in open_checkpoints(catalog.reading, pipeline) if left.row["checkpoint_id"] > checkpoint_id
    ]
    if not waiting:
        return
    newer, statuses = waiting[-1].row["checkpoint_id"], sorted(waiting[-1].statuses.items())
    owed = [f"sink {name!r} is {status}" for name, status in statuses if not status.is_committed]
    raise ConflictError(
        f"recovery of pipeline {pipeline!r} would go on from checkpoint {checkpoint_id}, and checkpoint {newer} may be in its "
        f"sinks although that was not recorded: {', '.join(owed)}",
        expected="no later checkpoint that waits for its sinks",
        found=[left.row["checkpoint_id"] for left in waiting],
        next_step=_ASK_THEM,
        details={"checkpoint_id": checkpoint_id},
    )


def _check_completed(catalog: Catalog, pipeline: str, checkpoint_id: int) -> None:
    deliveries = Deliveries(catalog.reading, pipeline)
    abandoned = standing(catalog.reading, pipeline).abandoned
    for row in sorted(find_rows(catalog.reading, pipeline).rows, key=lambda row: -int(row["checkpoint_id"])):
        number = row["checkpoint_id"]
        if number <= checkpoint_id or number not in abandoned:
            continue
        shown = sorted(name for name, status in deliveries.statuses(row).items() if status.is_committed)
        if shown:
            raise ConflictError(
                f"recovery of pipeline {pipeline!r} would go on from checkpoint {checkpoint_id}, and sink {shown[0]!r} has "
                f"checkpoint {number}, which was passed over",
                expected="no later checkpoint that a sink has",
                found=[number],
                next_step=f"{_ASK_THEM} Where the sinks were taken back to what they were, name checkpoint "
                f"{checkpoint_id}.",
                details={"checkpoint_id": checkpoint_id, "sinks": shown},
            )


def passed_over(
    catalog: Catalog, pipeline: str, checkpoint_id: int, failed_sinks: FailedSinks = FailedSinks.SKIP
) -> str | None:
    """Why nobody may go on from a checkpoint that is whole: its records are not all in the sinks. None when one may."""
    if checkpoint_id in standing(catalog.reading, pipeline).abandoned:
        return "a later recovery passed over it"
    refused = {SinkCommitKind.PENDING} | ({SinkCommitKind.FAILED} if failed_sinks is FailedSinks.SKIP else set())
    # As recovery finds them, also those that somebody took out of the table.
    row = committed_row(catalog.reading, pipeline, checkpoint_id)
    statuses = Deliveries(catalog.reading, pipeline).statuses(row)
    owed = [f"sink {name!r} is {status}" for name, status in sorted(statuses.items()) if status.kind in refused]
    return ", ".join(owed) or None


def _check_table(source: str, version: int, spark: SparkSession | None, table: str | None) -> None:
    if spark is None and table is None:
        return
    if spark is None or table is None:
        raise InvalidInputError(
            f"whether the table of source {source!r} has version {version} cannot be asked",
            expected="spark and table",
            found="table" if spark is None else "spark",
            next_step="Give both, or neither.",
        )
    from laminar_delta.streaming.delta_checks import check_begins  # loads pyspark

    check_begins(spark, table, source, version)
