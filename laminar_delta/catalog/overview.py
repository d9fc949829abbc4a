"""Where every pipeline stands, in one look at the tables: for listings, metrics and reports over many pipelines."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import inline_bytes
from laminar_delta.catalog.choosing import names_damage
from laminar_delta.catalog.standing import Standing, standings
from laminar_delta.catalog.statuses import combined_statuses, intact_changes
from laminar_delta.catalog.tables import MANIFESTS, RECOVERIES, WRITERS
from laminar_delta.engine.predicate import col
from laminar_delta.model.status import SinkCommitKind

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row

_MANIFEST_COLUMNS = [
    "pipeline",
    "checkpoint_id",
    "epoch",
    "created_at",
    "attempt_id",
    "size_bytes",
    "watermark",
    "sinks",
]
_FEW_IDS = 200
"""Up to how many checkpoints are asked for by their ids; beyond, by the lowest of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineOverview:
    """One pipeline. Checkpoints that are retired are counted as such and nowhere else."""

    pipeline: str
    latest_id: int | None
    latest_epoch: int | None
    latest_at: dt.datetime | None
    latest_size_bytes: int | None
    """Of operator state: as its manifest says, and what is inline in the manifest."""
    watermark: int | None
    """Of the newest checkpoint."""
    delivered_id: int | None
    """The newest checkpoint that all its sinks have: where recovery goes back to if nothing is damaged."""
    checkpoints: int
    pinned: int
    retired: int
    """Not visible, and not removed yet."""
    abandoned: int
    """Visible, but passed over by a writer's recovery for good."""
    sinks_pending: int
    """Sinks of visible checkpoints that have not delivered, those of abandoned checkpoints left out."""
    sinks_failed: int
    """Of those, the ones that recovery goes back behind: a newer checkpoint that all its sinks have supersedes what failed."""
    failed_ids: tuple[int, ...]
    """The checkpoints these are of, ascending."""
    generation: int
    """Of the newest writer; 0 before there was any."""
    owner: str | None
    held: bool
    """Whether that writer has not let go."""
    recoveries: int
    last_recovery_at: dt.datetime | None
    last_recovery_chose: int | None
    last_recovery_skipped: int
    recovery_damage: int
    """Checkpoints that recoveries passed over because they were damaged, each counted once."""
    recovery_healed: int
    """How often recoveries read rows from an earlier version of a table."""


def overviews(reading: Reading, pipelines: Iterable[str] | None = None) -> list[PipelineOverview]:
    """All pipelines that have a checkpoint or had a writer, by name; or those named, also ones without either."""
    decided = standings(reading)
    rows = _by_pipeline(reading.rows(MANIFESTS, columns=_MANIFEST_COLUMNS))
    changes = _by_attempt(intact_changes(reading))
    writers = _by_pipeline(reading.rows(WRITERS))
    recoveries = _by_pipeline(
        reading.rows(RECOVERIES, columns=["pipeline", "started_at", "chosen_id", "skipped", "healed"])
    )
    names = sorted({*rows, *writers} if pipelines is None else set(pipelines))
    standing = {name: decided.get(name, Standing()) for name in names}
    visible = {name: _visible(rows.get(name, []), standing[name]) for name in names}
    inline = _latest_inline(reading, {found[-1]["checkpoint_id"] for found in visible.values() if found})
    return [
        _overview(
            name,
            visible[name],
            standing[name],
            changes,
            inline,
            writers.get(name, []),
            recoveries.get(name, []),
        )
        for name in names
    ]


def _visible(rows: list[Row], seen: Standing) -> list[Row]:
    return sorted(
        (row for row in rows if row["checkpoint_id"] not in seen.retired), key=lambda row: row["checkpoint_id"]
    )


def _latest_inline(reading: Reading, numbers: set[int]) -> Mapping[tuple[str, int], int]:
    """The inline state of some checkpoints, whosever they are: that of all others is not read for its length."""
    if not numbers:
        return {}
    if len(numbers) > _FEW_IDS:
        return inline_bytes(reading, col("checkpoint_id").ge(min(numbers)))
    return inline_bytes(reading, col("checkpoint_id").is_in(sorted(numbers)))


def _overview(
    pipeline: str,
    visible: list[Row],
    seen: Standing,
    changes: Mapping[tuple[str, int, str], list[Row]],
    inline: Mapping[tuple[str, int], int],
    writers: list[Row],
    recoveries: list[Row],
) -> PipelineOverview:
    latest: Row = visible[-1] if visible else dict.fromkeys(_MANIFEST_COLUMNS)
    pending = 0
    failed: Counter[int] = Counter()
    delivered: int | None = None
    for row in visible:
        if row["checkpoint_id"] in seen.abandoned:
            continue
        key = (pipeline, row["checkpoint_id"], row["attempt_id"])
        statuses = combined_statuses(row, changes.get(key, ()))
        kinds = Counter(status.kind for status in statuses.values())
        pending += kinds[SinkCommitKind.PENDING]
        if kinds[SinkCommitKind.FAILED]:
            failed[row["checkpoint_id"]] = kinds[SinkCommitKind.FAILED]
        if all(status.is_committed for status in statuses.values()):
            delivered = row["checkpoint_id"]
            failed.clear()
    writer = max(writers, key=lambda row: row["generation"], default=None)
    recovered = max(recoveries, key=lambda row: row["started_at"], default=None)
    ids = {row["checkpoint_id"] for row in visible}
    return PipelineOverview(
        pipeline=pipeline,
        latest_id=latest["checkpoint_id"],
        latest_epoch=latest["epoch"],
        latest_at=latest["created_at"],
        latest_size_bytes=None
        if latest["size_bytes"] is None
        else int(latest["size_bytes"]) + inline.get((pipeline, latest["checkpoint_id"]), 0),
        watermark=latest["watermark"],
        delivered_id=delivered,
        checkpoints=len(visible),
        pinned=len(seen.pinned & ids),
        retired=len(seen.retired - seen.removed),
        abandoned=len(seen.abandoned & ids),
        sinks_pending=pending,
        sinks_failed=sum(failed.values()),
        failed_ids=tuple(failed),
        generation=0 if writer is None else writer["generation"],
        owner=None if writer is None else writer["owner"],
        held=writer is not None and writer["released_at"] is None,
        recoveries=len(recoveries),
        last_recovery_at=None if recovered is None else recovered["started_at"],
        last_recovery_chose=None if recovered is None else recovered["chosen_id"],
        last_recovery_skipped=0 if recovered is None else len(recovered["skipped"]),
        recovery_damage=len(
            {
                skipped["checkpoint_id"]
                for row in recoveries
                for skipped in row["skipped"]
                if names_damage(skipped["reason"])
            }
        ),
        recovery_healed=sum(len(row["healed"]) for row in recoveries),
    )


def _by_pipeline(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["pipeline"], []).append(row)
    return found


def _by_attempt(rows: Iterable[Row]) -> dict[tuple[str, int, str], list[Row]]:
    found: dict[tuple[str, int, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row["pipeline"], row["checkpoint_id"], row["attempt_id"]), []).append(row)
    return found
