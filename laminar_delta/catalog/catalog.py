"""The catalog: pipelines, their writers, and the audit over everything that was committed.

What only some calls need is imported by them: a command that looks at one pipeline would wait for all the rest.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from laminar_delta.catalog.later import checked_moment, checked_versions, create_views, relations, versions_at
from laminar_delta.catalog.pipeline import Pipeline, default_owner
from laminar_delta.catalog.reading import Reading
from laminar_delta.catalog.state.policy import DEFAULT_POLICY, StatePolicy
from laminar_delta.catalog.tables import MANIFESTS, WRITERS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import InvalidInputError, LaminarDeltaError, NotFoundError, SessionStateError
from laminar_delta.model.display import Displayed
from laminar_delta.model.ids import validate_pipeline_name

if TYPE_CHECKING:
    import pyarrow as pa

    from laminar_delta.catalog.audit import AuditEntry
    from laminar_delta.catalog.group import Save
    from laminar_delta.catalog.maintenance import MaintenancePolicy, MaintenanceReport, Progress
    from laminar_delta.catalog.overview import PipelineOverview
    from laminar_delta.catalog.staged import Saved
    from laminar_delta.catalog.usage import CatalogUsage
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.engine.base import Engine


@dataclass(frozen=True, slots=True)
class Catalog(Displayed):
    """A set of Delta tables with checkpoints; opened by `open_catalog`."""

    engine: Engine
    versions: Mapping[str, int] | None = None
    """For a catalog as it was: the version of each table; None for the catalog as it is."""

    @property
    def reading(self) -> Reading:
        """How this catalog's tables are read."""
        return Reading(self.engine, self.versions or {}, is_past=self.versions is not None)

    def as_of(self, *, timestamp_ms: int | None = None, versions: Mapping[str, int] | None = None) -> Catalog:
        """The whole catalog as it was, to read only.

        Args:
            timestamp_ms: At that time: each table at the version that was its newest.
            versions: Or at these versions; a table that is not named is read as it is.

        Raises:
            InvalidInputError: Neither or both are given, a time that is no number, or versions that no table can have.
            NotFoundError: Code `version-gone`: the log does not reach back that far.
        """
        if (timestamp_ms is None) == (versions is None):
            raise InvalidInputError("give a time or versions", expected="timestamp_ms or versions", found=None)
        if versions is None:
            return Catalog(self.engine, versions_at(self.engine, checked_moment(timestamp_ms)))
        return Catalog(self.engine, checked_versions(versions))

    def audit(self, *, pipeline: str | None = None, limit: int | None = None) -> list[AuditEntry]:
        """Everything that was committed, newest first, as far back as the logs reach, or the newest `limit`."""
        from laminar_delta.catalog.audit import audit

        return audit(self.reading, pipeline=pipeline, limit=limit)

    def sql(self, query: str) -> pa.Table:
        """Answers a query over the views (`catalog/views.py`, `docs/sql.md`) and tables of this catalog, as it is or was.

        Args:
            query: One `SELECT`, possibly after a `WITH`; the same text for every engine.

        Raises:
            InvalidInputError: It is anything else, or the engine cannot make sense of it.
        """
        # `manifests` as it is before anything is opened: children are committed before the manifest that lists them, so
        # whatever is opened later has those of every checkpoint in it.
        at = self.versions or {MANIFESTS.name: self.engine.version(MANIFESTS.name)}
        tables, views = relations(self.engine, query, at)
        return self.engine.query(query, tables=tables, views=views)

    def overview(self, pipelines: Sequence[str] | None = None) -> list[PipelineOverview]:
        """Where every pipeline stands, by name; or those named. One look at the tables, however many there are."""
        from laminar_delta.catalog.accepting import check_names
        from laminar_delta.catalog.overview import overviews

        check_names(pipelines=pipelines)
        chosen = None if pipelines is None else [validate_pipeline_name(name) for name in pipelines]
        return overviews(self.reading, chosen)

    def usage(self) -> CatalogUsage:
        """What the catalog's files take as it is: per pipeline what is live, pinned, reclaimable, and per table."""
        from laminar_delta.catalog.usage import usage

        self._check_now("measured")
        return usage(self.reading)

    def create_views(self) -> None:
        """Creates or replaces the views in the schema of a catalog given by name: `SELECT * FROM <schema>.checkpoints`.

        Done when such a catalog is made; again after an upgrade that changed them.

        Raises:
            InvalidInputError: The catalog was given by path: only `sql` has the views then.
        """
        self._check_now("written")
        create_views(self.engine)

    def pipeline(self, name: str) -> Pipeline:
        """A pipeline to read; it need not have checkpoints yet."""
        return Pipeline(validate_pipeline_name(name), self.reading)

    def known_pipeline(self, name: str) -> Pipeline:
        """The same for one that has a checkpoint or had a writer. Raises `NotFoundError` naming the nearest there is."""
        found = self.pipeline(name)
        where = col("pipeline").eq(name)
        if any(self.reading.rows(spec, where=where, columns=["pipeline"]) for spec in (MANIFESTS, WRITERS)):
            return found
        known = sorted(
            {*self.pipelines(), *(row["pipeline"] for row in self.reading.rows(WRITERS, columns=["pipeline"]))}
        )
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise NotFoundError(
            f"there is no pipeline {name!r} in the catalog",
            expected=name,
            found=known,
            next_step=f"Did you mean {nearest[0]!r}?" if nearest else "It has none yet.",
        )

    def pipelines(self) -> list[str]:
        """The pipelines that have checkpoints, by name."""
        rows = self.reading.rows(MANIFESTS, columns=["pipeline"])
        return sorted({row["pipeline"] for row in rows})

    def forget_positions(self, pipeline: str, *, reason: str, owner: str | None = None) -> None:
        """Gives up where a pipeline's sources were, for good: where that cannot be read, and keeps every writer out.

        Checkpoints stay as they are. Sessions begin anew: their sources are read from wherever they begin.

        Args:
            pipeline: Whose.
            reason: Why, for the audit.
            owner: Who, likewise; user and process by default.
        """
        from laminar_delta.catalog.forgetting import forget_positions

        self._check_now("written")
        forget_positions(self.engine, validate_pipeline_name(pipeline), reason=reason, owner=owner or default_owner())

    def writer(
        self,
        pipeline: str,
        *,
        owner: str | None = None,
        reason: str | None = None,
        takeover: bool = True,
        vnode_count: int | None = None,
        state_policy: StatePolicy = DEFAULT_POLICY,
    ) -> Writer:
        """Becomes the writer of a pipeline: takes the next generation, and fences off the one before.

        Args:
            pipeline: Whose.
            owner: Who, for messages and the audit; user and process by default.
            reason: Why, likewise.
            takeover: Also from a holder that has not let go; otherwise that is `ConflictError` naming it.
            vnode_count: Into how many virtual nodes the pipeline divides its state, to be kept with each checkpoint.
            state_policy: How operator state is cut, and how long its chains may get.

        Raises:
            InvalidInputError: Something cannot be what it is given as. No generation is taken.
        """
        from laminar_delta.catalog.accepting import check_vnode_count
        from laminar_delta.catalog.generations import take_over
        from laminar_delta.catalog.writer import Writer

        self._check_now("written")
        name = validate_pipeline_name(pipeline)
        if vnode_count is not None:
            check_vnode_count(vnode_count)
        held = take_over(self.engine, name, owner=owner or default_owner(), reason=reason, seize=takeover)
        return Writer(self.engine, held, vnode_count=vnode_count, state_policy=state_policy)

    def save_together(self, saves: Sequence[Save]) -> list[Saved | LaminarDeltaError]:
        """Saves checkpoints of several pipelines in shared commits; see `catalog.group`. Needs a writer of each.

        An engine that cannot carry several fences in one commit (Spark) makes the saves one after another.

        Returns:
            For each save, in order, what `Writer.save` would have returned, or the error it would have raised.
        """
        from laminar_delta.catalog.group import save_together

        self._check_now("written")
        return save_together(self.engine, saves)

    def maintain(
        self,
        policy: MaintenancePolicy | None = None,
        *,
        owner: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> MaintenanceReport:
        """Removes what was retired long enough ago, compacts, shortens the logs, deletes unused files. Run it daily.

        Safe beside running saves, on any machine that reaches the catalog. On an object store the process that saves should do
        it between two saves: deletes lose against a stream of appends.

        Args:
            policy: What to do; by default a day's grace, compaction where it pays, VACUUM behind the healing window.
            owner: Who, for the audit.
            dry_run: Only tell what would be done.
            progress: Is told what comes next.
        """
        from laminar_delta.catalog.maintenance import MaintenancePolicy, maintain

        self._check_now("maintained")
        return maintain(
            self.engine,
            policy or MaintenancePolicy(),
            owner=owner or default_owner(),
            dry_run=dry_run,
            progress=progress,
        )

    def _check_now(self, done: str) -> None:
        if self.versions is not None:
            raise SessionStateError(f"a catalog as it was cannot be {done}", next_step="Use the catalog as it is.")

    def close(self) -> None:
        """Lets go of what the engine holds."""
        self.engine.close()
