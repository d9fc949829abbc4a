"""Maintenance: removing what was retired long enough ago, compaction, the log, and files that no version needs any more.

Safe beside running saves of other processes, and safe to cut off at any point. It changes no answer: what is visible stays, and
healing and `as_of` reach as far back as before. Where it would not be so, it refuses and says why.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.copies import Copies
from laminar_delta.catalog.later import present
from laminar_delta.catalog.reading import COMPACTION, STATE_TABLES, Reading
from laminar_delta.catalog.removal import removable, remove_progress, remove_retired, retired_before
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.steps import remove_steps
from laminar_delta.catalog.tables import HEALING_WINDOW, QUERY_PROGRESS, RETENTION, SESSION_STEPS
from laminar_delta.errors import ConflictError, CorruptionError, ErrorCode, InvalidInputError, LaminarDeltaError
from laminar_delta.logs import Event, log_event
from laminar_delta.model.ids import check_ordering_number

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.engine.request import TableSpec

_LOG = logging.getLogger(__name__)

DEFAULT_GRACE = dt.timedelta(days=1)
"""How long a retired checkpoint can be restored for certain."""
SHORTEST_LOG = dt.timedelta(days=1)
"""A write that takes longer than the log is kept can be acknowledged and lost; none takes a day."""
SHORTEST_FILES = dt.timedelta(days=1)
"""A file is written before the commit that names it, and until then VACUUM takes it for unused; no staging takes a day."""

_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d+)\s+(week|day|hour|minute|second)s?\s*", re.IGNORECASE)
_VACUUM = "VACUUM"
_ORDER = ("pipeline", "checkpoint_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """What maintenance does."""

    grace: dt.timedelta = DEFAULT_GRACE
    """How long after it was retired a checkpoint's rows are removed."""
    compact_after: int = 50
    """Commits since the last compaction of a table that make another one worth its cost."""
    vacuum: bool = True
    """Whether files that no version within the healing window uses are deleted."""
    vacuum_after: dt.timedelta | None = None
    """How long such files stay; at least the healing window, which is the default."""
    keep_progress_for: dt.timedelta | None = None
    """How long what a `CheckpointListener` recorded of streaming queries is kept; None for as long as the catalog."""

    def __post_init__(self) -> None:
        given: dict[str, object] = {
            "grace": self.grace,
            "vacuum_after": self.vacuum_after,
            "keep_progress_for": self.keep_progress_for,
        }
        for name, value in given.items():
            if value is not None and (not isinstance(value, dt.timedelta) or value < dt.timedelta(0)):
                raise InvalidInputError(
                    f"{name} is {value!r}",
                    expected="a timedelta, not below 0",
                    found=value,
                    next_step="Give a timedelta, such as datetime.timedelta(days=1).",
                )
        if check_ordering_number("compact_after", self.compact_after) < 1:
            raise InvalidInputError("compact_after is too small", expected="1 or more", found=self.compact_after)


@dataclass(slots=True, kw_only=True)
class MaintenanceReport:
    """What maintenance did, or would do."""

    removed: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Per pipeline the checkpoints whose rows were deleted."""
    steps: dict[str, int] = field(default_factory=dict)
    """Per pipeline how many staged steps were deleted that no session commits any more."""
    progress: int = 0
    """How many rows of what streaming queries said of themselves were deleted."""
    compacted: dict[str, int] = field(default_factory=dict)
    """Per table how many commits were compacted."""
    vacuumed: dict[str, int] = field(default_factory=dict)
    """Per table how many files were deleted."""
    put_off: dict[str, str] = field(default_factory=dict)
    """Per table or pipeline what could not be done: others kept committing, and calling again does it; or recovery may need
    what was retired, because what is newer is damaged; or a pipeline has lost positions, so its staged steps stay; or, over
    Spark Connect, a log cannot be shortened from here."""
    dry_run: bool = False


Progress = Callable[[str], None]
"""Is told, in words, what comes next."""


def maintain(
    engine: Engine,
    policy: MaintenancePolicy,
    *,
    owner: str,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> MaintenanceReport:
    """Does what the policy says, table by table. All checks come first: what is refused is refused before anything is done.

    Raises:
        ConflictError: VACUUM would take the only good copy of a checkpoint that is pinned, the newest, or that recovery
            goes back to.
        InvalidInputError: The policy, or a table's properties, would cut the healing window or lose a slow write.
    """
    tell = progress or (lambda _: None)
    tell("checking")
    check_windows(engine, policy)
    copies = Copies(engine)
    if policy.vacuum:
        copies.check()
    report = MaintenanceReport(dry_run=dry_run)
    for pipeline in _named_in(engine, RETENTION):
        tell(f"removing what was retired: pipeline {pipeline}")
        with _putting_off(report, pipeline):
            numbers = _remove(engine, pipeline, copies, policy, owner, dry_run=dry_run)
            if numbers:
                report.removed[pipeline] = numbers
            _check_spared(engine, pipeline, copies, policy)
    for pipeline in _named_in(engine, SESSION_STEPS):
        tell(f"removing steps of sessions that ended: pipeline {pipeline}")
        with _putting_off(report, pipeline, CorruptionError):
            steps = remove_steps(engine, pipeline, owner=owner, dry_run=dry_run)
            if steps:
                report.steps[pipeline] = steps
    if policy.keep_progress_for is not None:
        tell("removing what streaming queries said long ago")
        with _putting_off(report, QUERY_PROGRESS.name):
            report.progress = remove_progress(engine, keep_for=policy.keep_progress_for, owner=owner, dry_run=dry_run)
    for spec in present(engine):
        tell(f"compacting: table {spec.name}")
        with _putting_off(report, spec.name):
            commits = 0 if spec.name in STATE_TABLES else _commits_since_compaction(engine, spec)
            if commits >= policy.compact_after and (dry_run or _compact(engine, spec, owner)):
                report.compacted[spec.name] = commits
        if not dry_run:
            tell(f"shortening the log: table {spec.name}")
            try:
                engine.log_checkpoint(spec.name)
                engine.clean_log(spec.name)
            except InvalidInputError as error:
                # Not everywhere can it be asked for: then it is the platform's, or the administrator's.
                if error.code is not ErrorCode.UNSUPPORTED:
                    raise
                report.put_off[spec.name] = error.message
        if policy.vacuum:
            tell(f"deleting unused files: table {spec.name}")
            # Rounded up: what is to stay for 90 minutes is not deleted after 60.
            hours = None if policy.vacuum_after is None else ceil(policy.vacuum_after / dt.timedelta(hours=1))
            said = {"operation": "vacuum", "owner": owner}
            files = engine.vacuum(spec.name, older_than_hours=hours, dry_run=dry_run, metadata=said)
            if files:
                report.vacuumed[spec.name] = len(files)
    if not dry_run:
        log_event(_LOG, logging.INFO, Event.MAINTENANCE_DONE, "maintenance done", **asdict(report), owner=owner)
    return report


def _remove(
    engine: Engine, pipeline: str, copies: Copies, policy: MaintenancePolicy, owner: str, *, dry_run: bool
) -> tuple[int, ...]:
    if dry_run:
        reading = Reading(engine)
        return tuple(removable(reading, pipeline, standing(reading, pipeline), copies, grace=policy.grace))
    return remove_retired(engine, pipeline, grace=policy.grace, owner=owner, copies=copies)


def _check_spared(engine: Engine, pipeline: str, copies: Copies, policy: MaintenancePolicy) -> None:
    """Raises `ConflictError` where some whose time has come are left: not in silence, for somebody has to choose one."""
    old = retired_before(standing(Reading(engine), pipeline), now() - policy.grace)
    spared = sorted(copies.spared(pipeline).intersection(old)) if old else []
    if spared:
        raise ConflictError(
            f"{copies.why_spared(pipeline)}; retired and not removed, because recovery may need them: "
            + ", ".join(map(str, spared)),
            expected="a newer checkpoint that can be used",
            found=spared,
            next_step="Restore one of them, or bring the damaged file back from a backup.",
        )


def _compact(engine: Engine, spec: TableSpec, owner: str) -> bool:
    """Whether there was something to compact. Not asked of state: its files are large, and go with their checkpoint."""
    # Partitions are near each other by their directories; where there are none, rows are put in order.
    order = () if spec.partition_by else tuple(name for name in _ORDER if name in spec.schema.names)
    return engine.optimize(spec.name, order_by=order, metadata={"operation": "compact", "owner": owner}) is not None


def _commits_since_compaction(engine: Engine, spec: TableSpec) -> int:
    count = 0
    for entry in engine.history(spec.name):
        if entry.operation == COMPACTION:
            break
        count += not entry.operation.startswith(_VACUUM)
    return count


def _named_in(engine: Engine, spec: TableSpec) -> list[str]:
    """The pipelines that a table has rows of."""
    # Steps come from whoever can append to their table: a row without a pipeline is nobody's.
    named = {row["pipeline"] for row in Reading(engine).rows(spec, columns=["pipeline"])}
    return sorted(named - {None})


@contextmanager
def _putting_off(report: MaintenanceReport, what: str, also: type[LaminarDeltaError] = ConflictError) -> Iterator[None]:
    try:
        yield
    except (ConflictError, also) as error:
        report.put_off[what] = error.message


def check_windows(engine: Engine, policy: MaintenancePolicy) -> None:
    """Refuses what would cut the healing window or lose a slow write: `InvalidInputError` naming the table."""
    for spec in present(engine):
        properties = engine.properties(spec.name)
        log = _interval(spec.name, "delta.logRetentionDuration", properties)
        if log < SHORTEST_LOG:
            raise InvalidInputError(
                f"the log of table {spec.name!r} is kept for {log}: a slow write could be acknowledged and lost",
                expected=f"at least {SHORTEST_LOG}",
                found=log,
                next_step="Set delta.logRetentionDuration of the table to a day or more.",
            )
        window = _interval(spec.name, "delta.deletedFileRetentionDuration", properties)
        if policy.vacuum and window < SHORTEST_FILES:
            raise InvalidInputError(
                f"unused files of table {spec.name!r} are kept for {window}: those written ahead of a commit could be deleted",
                expected=f"at least {SHORTEST_FILES}",
                found=window,
                next_step="Set delta.deletedFileRetentionDuration of the table to a day or more, or leave out VACUUM.",
            )
        if policy.vacuum and policy.vacuum_after is not None and policy.vacuum_after < window:
            raise InvalidInputError(
                f"deleting files after {policy.vacuum_after} would cut the healing window of table {spec.name!r}",
                expected=f"at least {window}",
                found=policy.vacuum_after,
                next_step="Wait longer, or set delta.deletedFileRetentionDuration of the table if it is to heal less.",
            )


def _interval(table: str, name: str, properties: Mapping[str, str]) -> dt.timedelta:
    text = properties.get(name, HEALING_WINDOW)
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise InvalidInputError(
            f"{name} of table {table!r} is {text!r}", expected="such as 'interval 7 days'", found=text
        )
    return dt.timedelta(**{f"{found[2].lower()}s": int(found[1])})
