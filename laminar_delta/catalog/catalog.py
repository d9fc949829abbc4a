"""The catalog: pipelines, their writers, and the audit over everything that was committed."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog import generations
from laminar_delta.catalog.checkpoints import CheckpointHead, heads, load_manifest, manifest_row
from laminar_delta.catalog.decisions import PINNED, RELEASED, Decision, Standing, decide, standing
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.recovery import FailedSinks, Walk, store
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.catalog.validation import examine
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import ConflictError, NotFoundError
from laminar_delta.model.findings import ValidationResult
from laminar_delta.model.ids import validate_pipeline_name

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine
    from laminar_delta.model.manifest import CheckpointManifest
    from laminar_delta.model.report import RecoveryReport


@dataclass(frozen=True, slots=True)
class Catalog:
    """A set of Delta tables with checkpoints; opened by `open_catalog`."""

    engine: Engine

    def pipeline(self, name: str) -> Pipeline:
        """A pipeline to read; it need not have checkpoints yet."""
        return Pipeline(validate_pipeline_name(name), Reading(self.engine))

    def pipelines(self) -> list[str]:
        """The pipelines that have checkpoints, by name."""
        rows = Reading(self.engine).rows(MANIFESTS, columns=["pipeline"])
        return sorted({row["pipeline"] for row in rows})

    def writer(
        self, pipeline: str, *, owner: str | None = None, reason: str | None = None, takeover: bool = True
    ) -> Writer:
        """Becomes the writer of a pipeline: takes the next generation, and fences off the one before.

        Args:
            pipeline: Whose.
            owner: Who, for messages and the audit; user and process by default.
            reason: Why, likewise.
            takeover: Also from a holder that has not let go; otherwise that is `ConflictError` naming it.
        """
        name = validate_pipeline_name(pipeline)
        held = generations.take_over(self.engine, name, owner=owner or default_owner(), reason=reason, seize=takeover)
        return Writer(self.engine, held)

    def close(self) -> None:
        """Lets go of what the engine holds."""
        self.engine.close()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline as readers see it: only committed checkpoints that were not retired."""

    name: str
    reading: Reading

    def list(self) -> list[CheckpointHead]:
        """All visible checkpoints, ascending by id."""
        return heads(self.reading, self.name)

    def latest(self) -> CheckpointManifest | None:
        """The manifest of the newest visible checkpoint; None when there is none. Computed from rows: no pointer can dangle."""
        found = self.list()
        return self._load(found[-1].checkpoint_id) if found else None

    def get(self, checkpoint_id: int) -> CheckpointManifest:
        """One checkpoint's manifest with the current statuses of its sinks. Raises `NotFoundError`."""
        if checkpoint_id in standing(self.reading, self.name).retired:
            raise NotFoundError(
                f"checkpoint {checkpoint_id} of pipeline {self.name!r} is retired",
                expected=checkpoint_id,
                next_step="Restore it, as long as maintenance has not removed its rows.",
            )
        return self._load(checkpoint_id)

    def validate(self, checkpoint_id: int) -> ValidationResult:
        """Everything wrong with a checkpoint. Bad data is a finding; only a checkpoint that never was raises."""
        row = manifest_row(self.reading, self.name, checkpoint_id)
        return ValidationResult.of(checkpoint_id, tuple(examine(self.reading, row)))

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
        report = Walk(self.reading, self.name, failed_sinks, pipeline_hash).run(dry_run=dry_run)
        return report if dry_run else store(self.reading.engine, report, owner or default_owner())

    def pin(self, checkpoint_id: int, *, reason: str, owner: str | None = None) -> None:
        """Keeps a checkpoint from being retired. Pinning twice changes nothing; a retired one is `ConflictError`."""
        self.get(checkpoint_id)

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

        def choose(seen: Standing) -> list[Decision]:
            if checkpoint_id not in seen.pinned:
                return []
            return [Decision(checkpoint_id=checkpoint_id, word=RELEASED, reason=reason)]

        decide(self.reading.engine, self.name, choose, owner=owner or default_owner())

    def _load(self, checkpoint_id: int) -> CheckpointManifest:
        return load_manifest(self.reading, manifest_row(self.reading, self.name, checkpoint_id))


def default_owner() -> str:
    """Who this process is, when nobody said."""
    return f"{getpass.getuser()}-{os.getpid()}"
