"""Looking before a query resumes: whether its sources still have what comes next, and whether they and it are the same.

Everything that speaks against resuming is a finding, with the next step. Only a checkpoint that does not exist raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.codec.checksum import block_hash
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.model import Severity
from laminar_delta.streaming.kafka_checks import KafkaSettings, broker_range
from laminar_delta.streaming.offsets import DELTA, KAFKA, delta_version, kafka_offsets, kind_of, offset_number
from laminar_delta.streaming.starting import find_manifest, passed_over

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.model import ConnectorCheckpoint


class ResumeCode(str, Enum):
    """Stable names of the findings. Append only."""

    OFFSET_GONE = "offset-gone"
    OFFSET_AHEAD = "offset-ahead"
    PARTITION_GONE = "partition-gone"
    PARTITION_NEW = "partition-new"
    SOURCE_UNREACHABLE = "source-unreachable"
    VERSION_GONE = "version-gone"
    VERSION_AHEAD = "version-ahead"
    TABLE_REPLACED = "table-replaced"
    QUERY_CHANGED = "query-changed"
    QUERY_UNKNOWN = "query-unknown"
    NOT_CHECKED = "not-checked"
    NOT_DELIVERED = "not-delivered"
    VERSION_AWAITED = "version-awaited"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeFinding:
    """One thing that was noticed."""

    severity: Severity
    code: ResumeCode
    message: str
    next_step: str
    source: str | None = None
    expected: object = None
    found: object = None

    def __str__(self) -> str:
        return f"{self.message}. {self.next_step}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeCheck:
    """What a look at a checkpoint's sources found."""

    pipeline: str
    checkpoint_id: int
    findings: tuple[ResumeFinding, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing found speaks against resuming."""
        return not any(finding.severity is Severity.FATAL for finding in self.findings)


def check_resume(
    catalog: Catalog,
    pipeline: str,
    checkpoint_id: int | None = None,
    *,
    failed_sinks: FailedSinks = FailedSinks.SKIP,
    kafka: KafkaSettings | None = None,
    tables: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    query_hash: int | None = None,
    timeout_s: float = 20.0,
) -> ResumeCheck:
    """Looks whether a query could resume from a checkpoint.

    Args:
        catalog: Where the checkpoint is.
        pipeline: Whose.
        checkpoint_id: Which; by default the one that recovery goes on from.
        failed_sinks: Whether a checkpoint may be gone on from that a sink failed to deliver.
        kafka: How to reach the brokers, in librdkafka's names or in Spark's: at least `bootstrap.servers`, or
            `kafka.bootstrap.servers`. Needs the extra `kafka`.
        tables: Per Delta source its table, a path or a name. Needs `spark`.
        spark: The session to ask for tables.
        query_hash: What the query is now (`schema_hash`), to be compared with the `pipeline_hash` of the checkpoint.
        timeout_s: How long a broker may take to answer.
    """
    manifest = find_manifest(catalog, pipeline, checkpoint_id, failed_sinks)
    findings = list(_check_delivered(catalog, pipeline, manifest.checkpoint_id, failed_sinks))
    for name, source in sorted(manifest.source_offsets.items()):
        kind = kind_of(source)
        if kind == KAFKA and kafka is not None:
            findings.extend(_check_kafka(name, source, kafka, timeout_s))
        elif kind == DELTA and spark is not None and name in (tables or {}):
            findings.extend(_check_delta(name, source, spark, (tables or {})[name]))
        else:
            findings.append(
                ResumeFinding(
                    severity=Severity.INFO,
                    code=ResumeCode.NOT_CHECKED,
                    source=name,
                    message=f"source {name!r} of kind {kind} was not looked at",
                    next_step="Give `kafka`, or `spark` and its table in `tables`, to have it looked at.",
                )
            )
    if query_hash is not None:
        findings.extend(_check_query(manifest.pipeline_hash, query_hash))
    return ResumeCheck(pipeline=pipeline, checkpoint_id=manifest.checkpoint_id, findings=tuple(findings))


def schema_hash(schema: Any) -> int:
    """A number for a query's schema, to be kept as `pipeline_hash`: another one when a name, a type or the order changes.

    Args:
        schema: A DataFrame, or its schema.
    """
    fields = getattr(schema, "schema", schema)
    return block_hash(str(fields.json()).encode())


def _check_delivered(
    catalog: Catalog, pipeline: str, checkpoint_id: int, failed_sinks: FailedSinks
) -> Iterator[ResumeFinding]:
    reason = passed_over(catalog, pipeline, checkpoint_id, failed_sinks)
    if reason is not None:
        yield ResumeFinding(
            severity=Severity.FATAL,
            code=ResumeCode.NOT_DELIVERED,
            message=f"checkpoint {checkpoint_id} is not one to go on from: {reason}",
            next_step="Leave the id out to look at the one that recovery goes on from.",
            expected="a checkpoint that all its sinks have",
            found=reason,
        )


def _check_query(kept: int | None, now: int) -> Iterator[ResumeFinding]:
    if kept is None:
        yield ResumeFinding(
            severity=Severity.WARNING,
            code=ResumeCode.QUERY_UNKNOWN,
            message="the checkpoint does not tell what the query was: nothing was compared",
            next_step="Keep `schema_hash` as its pipeline_hash from now on; `foreach_batch` does so by itself.",
            expected=now,
        )
    elif kept != now:
        yield ResumeFinding(
            severity=Severity.FATAL,
            code=ResumeCode.QUERY_CHANGED,
            message=f"the query is another than it was: its hash is {now}, the checkpoint was saved with {kept}",
            next_step="Run the query as it was, or begin a new line with `starting_options`: its state may not fit.",
            expected=kept,
            found=now,
        )


def _check_kafka(
    name: str, source: ConnectorCheckpoint, settings: KafkaSettings, timeout_s: float
) -> Iterator[ResumeFinding]:
    try:
        wanted = {
            (topic, int(partition)): offset
            for topic, partitions in kafka_offsets(name, source).items()
            for partition, offset in partitions.items()
        }
        there = broker_range(settings, {topic for topic, _ in wanted}, timeout_s=timeout_s)
    except LaminarDeltaError as error:
        yield _unreachable(name, error)
        return
    for (topic, partition), offset in sorted(wanted.items()):
        span = there.get((topic, partition))
        what = f"source {name!r}: {topic}-{partition}"
        if span is None:
            yield _fatal(
                ResumeCode.PARTITION_GONE,
                name,
                f"{what} is not on the broker",
                "Check the brokers and the topic; with another topic begin anew with `starting_options` after `edit_offsets`.",
                expected=f"{topic}-{partition}",
                found=sorted(f"{t}-{p}" for t, p in there),
            )
        elif 0 <= offset < span[0]:
            yield _fatal(
                ResumeCode.OFFSET_GONE,
                name,
                f"{what} goes on at {offset}, and the broker begins at {span[0]}: {span[0] - offset} records are gone",
                "Bring them in from elsewhere, or move the source there with `edit_offsets`, which says so in the history.",
                expected=offset,
                found=span[0],
            )
        elif offset > span[1]:
            yield _fatal(
                ResumeCode.OFFSET_AHEAD,
                name,
                f"{what} goes on at {offset}, and the broker ends at {span[1]}: the topic was made anew or lost records",
                "Find out which; then move the source with `edit_offsets`.",
                expected=offset,
                found=span[1],
            )
    for topic, partition in sorted(there.keys() - wanted.keys()):
        yield ResumeFinding(
            severity=Severity.INFO,
            code=ResumeCode.PARTITION_NEW,
            source=name,
            message=f"source {name!r}: {topic}-{partition} is new since",
            next_step="A query that goes on in a checkpoint directory reads it from its beginning. One that begins with "
            "`starting_options` needs it named: give that function `kafka` too.",
            found=f"{topic}-{partition}",
        )


def _check_delta(name: str, source: ConnectorCheckpoint, spark: SparkSession, table: str) -> Iterator[ResumeFinding]:
    from laminar_delta.streaming.delta_checks import WAYS_ON, table_facts

    try:
        # Whole or not does not matter here: the version itself must be there.
        is_snapshot = source.offsets.get("isStartingVersion") == "true"
        version = (
            offset_number(name, source, "reservoirVersion") if is_snapshot else delta_version(name, source, repeat=True)
        )
        facts = table_facts(spark, table)
    except LaminarDeltaError as error:
        yield _unreachable(name, error)
        return
    kept = source.offsets.get("reservoirId")
    if kept is not None and kept != facts.table_id:
        yield _fatal(
            ResumeCode.TABLE_REPLACED,
            name,
            f"source {name!r} read table {kept}, and {table} is {facts.table_id}: it was dropped and made anew",
            "Begin a new line on the new table: versions of the one mean nothing in the other.",
            expected=kept,
            found=facts.table_id,
        )
        return
    if version < facts.oldest:
        yield _fatal(
            ResumeCode.VERSION_GONE,
            name,
            f"source {name!r} goes on with version {version}, and the log of {table} begins with {facts.oldest}",
            "Begin a new line with a new snapshot of the table, or bring in what is missing from elsewhere.",
            expected=version,
            found=facts.oldest,
        )
    elif version > (facts.newest if is_snapshot else facts.newest + 1):
        yield _fatal(
            ResumeCode.VERSION_AHEAD,
            name,
            f"source {name!r} goes on with version {version}, and {table} has only {facts.newest}: it was copied or set back",
            "Find the table the query read, or begin a new line.",
            expected=version,
            found=facts.newest,
        )
    elif version == facts.newest + 1:
        # No reason not to resume: a query that goes on in a checkpoint directory waits for the version.
        yield ResumeFinding(
            severity=Severity.WARNING,
            code=ResumeCode.VERSION_AWAITED,
            source=name,
            message=f"source {name!r} has read all of {table}: no option begins with version {version} until it is there",
            next_step=WAYS_ON,
            expected=version,
            found=facts.newest,
        )


def _unreachable(name: str, error: LaminarDeltaError) -> ResumeFinding:
    return _fatal(
        ResumeCode.SOURCE_UNREACHABLE,
        name,
        f"source {name!r} cannot be looked at: {error.message}",
        error.next_step or "Try again when it answers.",
        expected=error.expected,
        found=error.found,
    )


def _fatal(
    code: ResumeCode, source: str, message: str, next_step: str, *, expected: object, found: object
) -> ResumeFinding:
    return ResumeFinding(
        severity=Severity.FATAL,
        code=code,
        source=source,
        message=message,
        next_step=next_step,
        expected=expected,
        found=found,
    )
