"""What was found, taken and left behind, as data: for programs as it is, for people through the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Base of the reports."""

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, ready for JSON."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSummary:
    """One checkpoint of a source."""

    name: str
    """What the source calls it: a number, a UUID, a batch."""
    checkpoint_id: int | None
    """The number it has, or would get; None while that is not decided."""
    epoch: int | None
    timestamp_ms: int | None
    state_bytes: int
    problems: tuple[str, ...] = ()
    """In the source's own words where it has some; those that make it unusable and those that do not."""
    usable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A checkpoint that was not taken, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(Report):
    """What a place holds."""

    kind: str
    """Which layout: see `interop.KINDS`."""
    location: str
    checkpoints: tuple[CheckpointSummary, ...] = ()
    """Ascending."""
    pointer: str | None = None
    """What the source's own latest pointer says, as text."""
    chosen: str | None = None
    """The checkpoint recovery would use: the newest that is usable."""
    skipped: tuple[Skipped, ...] = ()
    """What recovery would pass over to get there, newest first."""
    notes: tuple[str, ...] = ()
    details: Mapping[str, object] | None = None
    """What else there is to say of this kind of source."""

    @property
    def intact(self) -> bool:
        """Whether everything there is can be used."""
        return all(checkpoint.usable for checkpoint in self.checkpoints)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport(Report):
    """What an import did, or would do."""

    kind: str
    location: str
    pipeline: str
    imported: tuple[int, ...] = ()
    """Ids that are new in the catalog; in a dry run, that would be."""
    already_there: int = 0
    """Checkpoints of the source that an earlier run brought in."""
    updated: tuple[int, ...] = ()
    """Of those, the ones whose sink statuses went on since."""
    skipped: tuple[Skipped, ...] = ()
    """Ascending."""
    state_bytes: int = 0
    batches: int = 0
    """LCB1 batches brought in."""
    notes: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportReport(Report):
    """What an export wrote, or would write."""

    layout: str
    location: str
    pipeline: str
    exported: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    files_written: int = 0
    files_unchanged: int = 0
    """Already there with the same bytes, from an earlier run."""
    latest: str | None = None
    """What the latest pointer says now."""
    notes: tuple[str, ...] = ()
    dry_run: bool = False


def _plain(value: object) -> Any:
    if isinstance(value, tuple):
        return [asdict(item) if hasattr(item, "__dataclass_fields__") else item for item in value]
    return dict(value) if isinstance(value, Mapping) else value
