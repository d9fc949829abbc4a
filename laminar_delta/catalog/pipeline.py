"""A pipeline as readers see it: its checkpoints, whether they are sound, and what is decided on them.

What only some calls need is imported by them; see `catalog.catalog`.
"""

from __future__ import annotations

import builtins
import datetime as dt
import getpass
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.checkpoints import CheckpointHead, heads, load_manifest, manifest_row
from laminar_delta.catalog.choosing import FailedSinks, check_hash
from laminar_delta.catalog.decisions import Decision, decide
from laminar_delta.catalog.said import check_moment, check_reason, check_said
from laminar_delta.catalog.standing import PINNED, RELEASED, RETIRED, Standing, standing
from laminar_delta.catalog.tables import RECOVERIES
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, NotFoundError, SessionStateError
from laminar_delta.model.display import Displayed
from laminar_delta.model.ids import check_ordering_number, validate_pipeline_name
from laminar_delta.model.manifest import now_ms

if TYPE_CHECKING:
    from laminar_delta.catalog.derive import Derived, OffsetEdits
    from laminar_delta.catalog.describing import CheckpointDescription
    from laminar_delta.catalog.diff import CheckpointDiff
    from laminar_delta.catalog.orphans import Orphan
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.retention import RetentionPlan, RetentionPolicy
    from laminar_delta.catalog.state.checkpoint_state import CheckpointState
    from laminar_delta.catalog.timeline import Happening
    from laminar_delta.model.findings import ValidationResult
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.model.report import RecoveryReport


@dataclass(frozen=True, slots=True)
class Pipeline(Displayed):
    """A pipeline as readers see it: only committed checkpoints that were not retired."""

    name: str
    reading: Reading

    def list(self) -> list[CheckpointHead]:
        """All visible checkpoints, ascending by id, as the table has them.

        One whose row somebody took out is missed only where none is left: that earlier versions have it is found by `get` and
        told by `recover`.

        Raises:
            CorruptionError: Somebody took out the rows of all of them, and no earlier version of the table has them.
        """
        from laminar_delta.catalog.listing import listed

        return listed(self.reading, self.name)

    def standing(self) -> Standing:
        """What was decided on its checkpoints: which are pinned, retired, abandoned."""
        return standing(self.reading, self.name)

    def latest(self) -> CheckpointManifest | None:
        """The manifest of the newest visible checkpoint; None when there is none. Computed from rows: no pointer can dangle.

        It is the newest of `list`, and read as `get` reads it. To go on after a loss, ask `recover`.
        """
        found = self.list()
        return self._manifest(self._committed(found[-1].checkpoint_id)) if found else None

    def at(self, moment: dt.datetime) -> CheckpointManifest | None:
        """The manifest of the newest visible checkpoint that was saved by then, by its own time; None before the first."""
        check_moment(moment)
        limit = moment.timestamp() * 1000
        found = [head for head in self.list() if head.timestamp_ms <= limit]
        return None if not found else self.get(found[-1].checkpoint_id)

    def describe(self, checkpoint_id: int) -> CheckpointDescription:
        """One checkpoint with everything there is to say of it, retired or not, read as by `get`. Raises `NotFoundError`."""
        from laminar_delta.catalog.describing import describe
        from laminar_delta.catalog.healing import healed

        check_ordering_number("checkpoint_id", checkpoint_id)
        row = self._committed(checkpoint_id)
        return healed(self.reading, row, lambda reading: describe(reading, row))

    def timeline(self) -> builtins.list[Happening]:
        """Everything that happened to the pipeline, oldest first: saves, deliveries, decisions, recoveries, takeovers."""
        from laminar_delta.catalog.timeline import timeline

        return timeline(self.reading, self.name)

    def recoveries(self) -> builtins.list[RecoveryReport]:
        """The recoveries that are on record, newest first: what each chose, what it passed over and why."""
        from laminar_delta.model.report import RecoveryReport

        rows = self.reading.rows(RECOVERIES, where=col("pipeline").eq(self.name), columns=["started_at", "report"])
        rows.sort(key=lambda row: row["started_at"], reverse=True)
        return [RecoveryReport.from_json(row["report"]) for row in rows]

    def preview(
        self,
        how: str,
        checkpoint_id: int | None = None,
        *,
        reason: str,
        from_pipeline: str | None = None,
        edits: OffsetEdits | None = None,
        accept_undelivered: bool = False,
    ) -> Derived:
        """What rewinding, forking, editing offsets or undoing would come to. No generation is taken for the question.

        Args:
            how: `rewind`, `fork`, `edit` or `undo`.
            checkpoint_id: From which checkpoint; the newest by default.
            reason: Why.
            from_pipeline: For a fork: whose checkpoint.
            edits: For an edit: per source the partitions and their new offsets.
            accept_undelivered: Also from one that its sinks did not get.
        """
        from laminar_delta.catalog.derive import preview

        origin = None if from_pipeline is None else validate_pipeline_name(from_pipeline)
        return preview(
            self.reading,
            self.name,
            how=how,
            reason=reason,
            from_pipeline=origin,
            from_id=checkpoint_id,
            edits=edits,
            accept_undelivered=accept_undelivered,
        )

    def orphans(self) -> tuple[Orphan, ...]:
        """What `remove_orphans` would remove as things are."""
        from laminar_delta.catalog.orphans import find_orphans

        return find_orphans(self.reading.engine, self.name)

    def get(self, checkpoint_id: int) -> CheckpointManifest:
        """One checkpoint's manifest as it was saved, with the current statuses of its sinks. Raises `NotFoundError`.

        Rows that were deleted or overwritten since are read as they were committed: what `recover` chooses is found.
        """
        return self._manifest(self._visible(checkpoint_id))

    def _manifest(self, row: Row) -> CheckpointManifest:
        from laminar_delta.catalog.healing import healed

        return healed(self.reading, row, lambda reading: load_manifest(reading, row))

    def _visible(self, checkpoint_id: int) -> Row:
        check_ordering_number("checkpoint_id", checkpoint_id)
        if checkpoint_id in standing(self.reading, self.name).retired:
            raise NotFoundError(
                f"checkpoint {checkpoint_id} of pipeline {self.name!r} is retired",
                expected=checkpoint_id,
                next_step="Restore it, as long as maintenance has not removed its rows.",
            )
        return self._committed(checkpoint_id)

    def _committed(self, checkpoint_id: int) -> Row:
        from laminar_delta.catalog.healing import committed_row

        return committed_row(self.reading, self.name, checkpoint_id)

    def state(self, checkpoint_id: int, *, heal: bool = True) -> CheckpointState:
        """The operator state of one checkpoint, retired or not as long as its rows are there. Raises `NotFoundError`.

        Args:
            checkpoint_id: Whose.
            heal: Read rows that were deleted or overwritten since as they were saved, as far back as the log reaches: every
                checkpoint that `recover` chooses can be read. Otherwise as they are now, or `CorruptionError`.
        """
        from laminar_delta.catalog.healing import committed_row, unchanged_row
        from laminar_delta.catalog.state.checkpoint_state import CheckpointState

        number = check_ordering_number("checkpoint_id", checkpoint_id)
        find = committed_row if heal else unchanged_row
        return CheckpointState(self.reading, find(self.reading, self.name, number), heal)

    def diff(self, before: int, after: int, *, other_pipeline: str | None = None) -> CheckpointDiff:
        """What changed from one visible checkpoint to another; `after` may be of another pipeline. Read as by `get`."""
        from laminar_delta.catalog.diff import diff_checkpoints

        other = self if other_pipeline is None else Pipeline(validate_pipeline_name(other_pipeline), self.reading)
        return diff_checkpoints(self.reading, self._visible(before), other._visible(after))

    def validate(self, checkpoint_id: int) -> ValidationResult:
        """Everything wrong with a checkpoint. Bad data is a finding; only a checkpoint that never was raises.

        Being intact is not all that recovery asks for: `passed_over` says why it does not use one that is.
        """
        from laminar_delta.catalog.recovery import passed_over
        from laminar_delta.catalog.validation import examine, missing_row
        from laminar_delta.model.findings import ValidationResult

        check_ordering_number("checkpoint_id", checkpoint_id)
        try:
            row = manifest_row(self.reading, self.name, checkpoint_id)
        except NotFoundError:
            return ValidationResult.of(checkpoint_id, (missing_row(self.reading, self.name, checkpoint_id),))
        result = ValidationResult.of(checkpoint_id, tuple(examine(self.reading, row)))
        # What a damaged row says of its sinks is not to be relied on.
        return replace(result, passed_over=passed_over(self.reading, row)) if result.valid else result

    def recover(
        self,
        *,
        failed_sinks: FailedSinks = FailedSinks.SKIP,
        pipeline_hash: int | None = None,
        dry_run: bool = False,
        owner: str | None = None,
    ) -> RecoveryReport:
        """Chooses the newest valid checkpoint. The report is kept in the catalog unless this is a dry run.

        To resume, use `Writer.recover`: it reads behind the fence, where nobody else can commit any more.

        Args:
            failed_sinks: Whether a checkpoint with a failed sink may be used.
            pipeline_hash: What the pipeline is now; a difference is reported.
            dry_run: Only look.
            owner: Who, for the record.
        """
        from laminar_delta.catalog.recording import store
        from laminar_delta.catalog.recovery import Walk

        check_hash(pipeline_hash)
        report = Walk(self.reading, self.name, failed_sinks, pipeline_hash).run(dry_run=dry_run)
        return (
            report if dry_run or self.reading.is_past else store(self.reading.engine, report, owner or default_owner())
        )

    def prune(self, policy: RetentionPolicy, *, dry_run: bool = False, owner: str | None = None) -> RetentionPlan:
        """Retires what a policy does not keep: gone for readers at once, to be restored until removed for good."""
        from laminar_delta.catalog.deliveries import delivered_up_to
        from laminar_delta.catalog.needs import restore_needed, used_elsewhere
        from laminar_delta.catalog.retention import RetentionPlan, plan

        made = RetentionPlan(retire=(), keep=())

        def choose(seen: Standing) -> list[Decision]:
            nonlocal made
            delivered = delivered_up_to(self.reading, self.name, seen)
            used = used_elsewhere(self.reading, self.name)
            # What only earlier versions have is not decided on.
            made = plan(
                heads(self.reading, self.name),
                seen,
                policy,
                now_ms=now_ms(),
                resumable=delivered.newest,
                doubtful=delivered.maybe,
                used=used,
            )
            return [Decision(checkpoint_id=number, word=RETIRED, reason="pruned") for number in made.retire]

        if dry_run:
            choose(standing(self.reading, self.name))
        else:
            self._check_writable()
            who = owner or default_owner()
            if decide(self.reading.engine, self.name, choose, owner=who):
                # A save meanwhile may have come to need some of them.
                made = made.without(restore_needed(self.reading.engine, self.name, owner=who))
        return made

    def remove_orphans(self, *, aborted: Collection[str] = (), owner: str | None = None) -> tuple[Orphan, ...]:
        """Removes what attempts left behind that provably never become checkpoints; needs no generation.

        Args:
            aborted: `Writer.aborted`, when it is the writer who asks.
            owner: Who, for the audit.
        """
        from laminar_delta.catalog.orphans import remove_orphans

        self._check_writable()
        return remove_orphans(self.reading.engine, self.name, owner=owner or default_owner(), aborted=aborted)

    def restore(self, checkpoint_id: int, *, reason: str | None = None, owner: str | None = None) -> None:
        """Brings a retired checkpoint back with what it needs, as long as its rows are there. One that is visible stays so.

        Raises:
            ConflictError: Something that it needs is removed: it could not be read any more.
        """
        from laminar_delta.catalog.needs import restore

        self._check_writable()
        check_ordering_number("checkpoint_id", checkpoint_id)
        check_said(reason=reason, owner=owner)
        manifest_row(self.reading, self.name, checkpoint_id)
        restore(self.reading.engine, self.name, checkpoint_id, reason=reason, owner=owner or default_owner())

    def pin(self, checkpoint_id: int, *, reason: str, owner: str | None = None) -> None:
        """Keeps a checkpoint from being retired. Pinning twice changes nothing; a retired one is `ConflictError`."""
        self._check_writable()
        check_reason("a pin", reason)
        check_ordering_number("checkpoint_id", checkpoint_id)
        manifest_row(self.reading, self.name, checkpoint_id)

        def choose(seen: Standing) -> list[Decision]:
            if checkpoint_id in seen.retired:
                raise ConflictError(
                    f"checkpoint {checkpoint_id} of pipeline {self.name!r} is retired",
                    expected="visible",
                    found="retired",
                    next_step="Restore it first.",
                )
            return (
                []
                if checkpoint_id in seen.pinned
                else [Decision(checkpoint_id=checkpoint_id, word=PINNED, reason=reason)]
            )

        decide(self.reading.engine, self.name, choose, owner=owner or default_owner())

    def unpin(self, checkpoint_id: int, *, reason: str | None = None, owner: str | None = None) -> None:
        """Lets retention decide on a checkpoint again."""
        self._check_writable()
        check_ordering_number("checkpoint_id", checkpoint_id)
        check_said(reason=reason, owner=owner)

        def choose(seen: Standing) -> list[Decision]:
            if checkpoint_id not in seen.pinned:
                return []
            return [Decision(checkpoint_id=checkpoint_id, word=RELEASED, reason=reason)]

        decide(self.reading.engine, self.name, choose, owner=owner or default_owner())

    def _check_writable(self) -> None:
        if self.reading.is_past:
            raise SessionStateError("a catalog as it was cannot be written", next_step="Use the catalog as it is.")


def default_owner() -> str:
    """Who this process is, when nobody said."""
    return f"{getpass.getuser()}-{os.getpid()}"
