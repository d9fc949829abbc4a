"""Storage: what each pipeline's state takes, what of it is there to stay, and what maintenance will give back.

State is told from the sizes of files, because its tables are partitioned by pipeline and checkpoint; nothing of it is read.
Small state, which travels in the manifest row, counts by its length. The other tables are small and shared by all pipelines:
they are told as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, all_heads, inline_bytes
from laminar_delta.catalog.later import present
from laminar_delta.catalog.needs import followed
from laminar_delta.catalog.standing import Standing, standings
from laminar_delta.catalog.tables import OPERATOR_DELTAS, OPERATOR_SNAPSHOTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from laminar_delta.catalog.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineUsage:
    """What the operator state of one pipeline takes: bytes of files, and of what is inline in manifest rows."""

    pipeline: str
    live_bytes: int
    """Of checkpoints that are visible, or that visible ones need, also those of other pipelines."""
    pinned_bytes: int
    """Of that, what pinned checkpoints are or need: it stays until they are unpinned."""
    reclaimable_bytes: int
    """Of checkpoints that are retired and needed by nobody: maintenance removes it after its grace period."""
    staged_bytes: int
    """Under ids that no checkpoint has: being saved now, or left behind by attempts that failed."""

    @property
    def total_bytes(self) -> int:
        """All of it."""
        return self.live_bytes + self.reclaimable_bytes + self.staged_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TableUsage:
    """What the newest version of one table takes."""

    table: str
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogUsage:
    """What a catalog takes. Files of earlier versions, which VACUUM deletes behind the healing window, are not in it."""

    pipelines: tuple[PipelineUsage, ...]
    """By name."""
    tables: tuple[TableUsage, ...]


def usage(reading: Reading) -> CatalogUsage:
    """Looks at the sizes of all files, and at who needs them."""
    sizes: dict[str, dict[int, int]] = {}
    tables = []
    # Before the manifests: what is committed by then has its row in what is read next.
    for spec in present(reading.engine):
        found = reading.engine.sizes(spec.name)
        tables.append(
            TableUsage(
                table=spec.name,
                files=sum(size.files for size in found),
                size_bytes=sum(size.size_bytes for size in found),
            )
        )
        if spec in (OPERATOR_SNAPSHOTS, OPERATOR_DELTAS):
            for size in found:
                of_pipeline = sizes.setdefault(str(size.partition["pipeline"]), {})
                number = int(str(size.partition["checkpoint_id"]))
                of_pipeline[number] = of_pipeline.get(number, 0) + size.size_bytes
    heads: dict[str, list[CheckpointHead]] = {}
    for head in all_heads(reading, None):
        heads.setdefault(head.pipeline, []).append(head)
    inline = inline_bytes(reading)
    for name, found_heads in heads.items():
        of_pipeline = sizes.setdefault(name, {})
        for head in found_heads:
            number = head.checkpoint_id
            of_pipeline[number] = of_pipeline.get(number, 0) + inline.get((name, number), 0)
    decided = standings(reading)
    visible = {name: _without(found, decided.get(name, Standing()).retired) for name, found in heads.items()}
    pinned = {
        name: [h for h in found if h.checkpoint_id in decided[name].pinned] if name in decided else []
        for name, found in visible.items()
    }
    live, kept = _needed(heads, visible), _needed(heads, pinned)
    return CatalogUsage(
        pipelines=tuple(
            _of_pipeline(
                name,
                sizes.get(name, {}),
                {head.checkpoint_id for head in heads.get(name, [])},
                live.get(name, set()),
                kept.get(name, set()),
            )
            for name in sorted({*heads, *sizes})
        ),
        tables=tuple(tables),
    )


def _of_pipeline(
    pipeline: str, sizes: Mapping[int, int], known: set[int], live: set[int], kept: set[int]
) -> PipelineUsage:
    return PipelineUsage(
        pipeline=pipeline,
        live_bytes=sum(size for number, size in sizes.items() if number in live),
        pinned_bytes=sum(size for number, size in sizes.items() if number in kept),
        reclaimable_bytes=sum(size for number, size in sizes.items() if number in known - live),
        staged_bytes=sum(size for number, size in sizes.items() if number not in known),
    )


def _needed(
    heads: Mapping[str, list[CheckpointHead]], roots: Mapping[str, Iterable[CheckpointHead]]
) -> dict[str, set[int]]:
    """Per pipeline what the roots are and need, across pipelines."""
    wanted: dict[str, set[int]] = {}
    for found in roots.values():
        for head in found:
            wanted.setdefault(head.pipeline, set()).add(head.checkpoint_id)
            for pipeline, number in head.needs:
                wanted.setdefault(pipeline, set()).add(number)
    return {
        name: set(followed(heads.get(name, []), dict.fromkeys(sorted(numbers), ""))) for name, numbers in wanted.items()
    }


def _without(heads: Iterable[CheckpointHead], retired: frozenset[int]) -> list[CheckpointHead]:
    return [head for head in heads if head.checkpoint_id not in retired]
