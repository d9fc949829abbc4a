"""Metrics in Prometheus's text format. Names are stable: `conf/alerts.yml` and people's dashboards go by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta._version import __version__

if TYPE_CHECKING:
    import datetime as dt

    from laminar_delta.catalog.overview import PipelineOverview
    from laminar_delta.catalog.usage import PipelineUsage

PREFIX = "laminar_delta_"
Value = float | int | None


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with one sample per pipeline."""

    name: str
    kind: str
    meaning: str
    value: Callable[[PipelineOverview], Value]
    """None: no sample."""


def _seconds(moment: dt.datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


PER_PIPELINE: Sequence[Metric] = (
    Metric(
        "latest_checkpoint_timestamp_seconds",
        "gauge",
        "When the newest checkpoint was saved; its age is time() minus this.",
        lambda one: _seconds(one.latest_at),
    ),
    Metric("latest_checkpoint_id", "gauge", "Id of the newest checkpoint.", lambda one: one.latest_id),
    Metric(
        "latest_checkpoint_size_bytes",
        "gauge",
        "Operator state of the newest checkpoint.",
        lambda one: one.latest_size_bytes,
    ),
    Metric(
        "delivered_checkpoint_id", "gauge", "Newest checkpoint that all its sinks have.", lambda one: one.delivered_id
    ),
    Metric("checkpoints", "gauge", "Visible checkpoints.", lambda one: one.checkpoints),
    Metric("pinned_checkpoints", "gauge", "Pinned checkpoints.", lambda one: one.pinned),
    Metric(
        "retired_checkpoints", "gauge", "Retired checkpoints that maintenance has not removed.", lambda one: one.retired
    ),
    Metric("abandoned_checkpoints", "gauge", "Checkpoints a writer's recovery passed over.", lambda one: one.abandoned),
    Metric(
        "sinks_pending", "gauge", "Sinks of visible checkpoints that have not delivered.", lambda one: one.sinks_pending
    ),
    Metric(
        "sinks_failed",
        "gauge",
        "Sinks that failed, of visible checkpoints newer than the newest that all its sinks have.",
        lambda one: one.sinks_failed,
    ),
    Metric("writer_generation", "gauge", "Generation of the newest writer.", lambda one: one.generation),
    Metric("writer_held", "gauge", "1 while a writer holds the pipeline.", lambda one: int(one.held)),
    Metric("recoveries", "counter", "Recoveries on record.", lambda one: one.recoveries),
    Metric(
        "last_recovery_timestamp_seconds",
        "gauge",
        "When the last recovery was.",
        lambda one: _seconds(one.last_recovery_at),
    ),
    Metric(
        "last_recovery_skipped",
        "gauge",
        "Checkpoints the last recovery passed over.",
        lambda one: one.last_recovery_skipped,
    ),
    Metric(
        "damaged_checkpoints", "counter", "Checkpoints that recoveries found damaged.", lambda one: one.recovery_damage
    ),
    Metric(
        "healed_rows", "counter", "Times recoveries read rows from an earlier version.", lambda one: one.recovery_healed
    ),
)
"""In the order they are printed; a counter is printed as `<name>_total`."""

INTACT = "latest_checkpoint_valid"
RESUMABLE = "latest_checkpoint_resumable"
"""Printed with --validate. Apart, because damage is for someone to get up for, and a sink that is behind is not yet."""

DOWN = f"# HELP {PREFIX}up 1 if the catalog could be read.\n# TYPE {PREFIX}up gauge\n{PREFIX}up 0\n"
"""What is printed for a catalog that cannot be read."""


def render(
    found: Sequence[PipelineOverview],
    used: Sequence[PipelineUsage],
    looked_at: Mapping[str, int],
    invalid: Mapping[str, int],
) -> str:
    """All metrics of a catalog.

    Args:
        found: Where each pipeline stands.
        used: What each takes.
        looked_at: The checkpoints that were read whole, by pipeline.
        invalid: Those of them that are damaged.
    """
    lines = list(_family("up", "gauge", "1 if the catalog could be read.", [({}, 1)]))
    lines += _family("build_info", "gauge", "The laminar_delta that looked.", [({"version": __version__}, 1)])
    lines += _family("pipelines", "gauge", "Pipelines in the catalog.", [({}, len(found))])
    for metric in PER_PIPELINE:
        samples = [({"pipeline": one.pipeline}, metric.value(one)) for one in found]
        name = f"{metric.name}_total" if metric.kind == "counter" else metric.name
        lines += _family(name, metric.kind, metric.meaning, samples)
    kinds: dict[str, Callable[[PipelineUsage], int]] = {
        "live": lambda one: one.live_bytes,
        "pinned": lambda one: one.pinned_bytes,
        "reclaimable": lambda one: one.reclaimable_bytes,
        "staged": lambda one: one.staged_bytes,
    }
    sizes = [({"pipeline": one.pipeline, "kind": kind}, of(one)) for one in used for kind, of in kinds.items()]
    lines += _family("state_bytes", "gauge", "Operator state; pinned is part of live.", sizes)
    if looked_at:
        of_newest: Sequence[tuple[str, str, Callable[[PipelineOverview], bool]]] = (
            (INTACT, "1 if the newest checkpoint is intact", lambda one: one.pipeline not in invalid),
            (
                RESUMABLE,
                "1 if a restart would go on from the newest checkpoint: it is intact, and all its sinks have it",
                lambda one: one.pipeline not in invalid and one.delivered_id == one.latest_id,
            ),
        )
        for name, meaning, holds in of_newest:
            told = [({"pipeline": one.pipeline}, int(holds(one))) for one in found if one.pipeline in looked_at]
            lines += _family(name, "gauge", f"{meaning} (with --validate).", told)
    return "".join(f"{line}\n" for line in lines)


def _family(name: str, kind: str, meaning: str, samples: Iterable[tuple[Mapping[str, str], Value]]) -> Iterable[str]:
    yield f"# HELP {PREFIX}{name} {meaning}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    for labels, value in samples:
        if value is not None:
            inner = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"{PREFIX}{name}{{{inner}}} {value}" if inner else f"{PREFIX}{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
