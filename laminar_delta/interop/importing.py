"""Bringing the checkpoints of another system in: verified before they are committed, many to a commit, again from where it was.

A run reads the source in order, compares what the catalog has already, and commits the rest in batches, each of them
whole or not at all. So a run that was killed leaves a beginning, and the next one goes on after it. The source is only
ever read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.bulk import BulkSave, save_all
from laminar_delta.catalog.generations import current
from laminar_delta.catalog.needs import restore_needed
from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.catalog.rows import SaveContext, manifest_table, offsets_table
from laminar_delta.errors import InvalidInputError
from laminar_delta.interop.batches import bring_in_batches
from laminar_delta.interop.detecting import check_apart, open_source
from laminar_delta.interop.known import Known, Numbering
from laminar_delta.interop.reports import ImportReport, Skipped
from laminar_delta.model import CheckpointManifest, SinkCommitStatus

if TYPE_CHECKING:
    from pathlib import Path

    from pyarrow.fs import FileSystem

    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.writer import Writer
    from laminar_delta.interop.place import Limits
    from laminar_delta.interop.source import Candidate, ForeignCheckpoint, Source

BATCH_CHECKPOINTS = 500
"""How many checkpoints one commit takes."""
BATCH_BYTES = 64 << 20
"""About how many bytes of state: bounds what is redone after a kill."""
REASON = "import of checkpoints"
"""What the writer's generation is taken for; an import takes over from an import that did not end."""

Progress = Callable[[int, int], None]
"""Called with how many checkpoints are done, and how many there are."""


def import_checkpoints(
    location: str | Path,
    catalog: Catalog,
    pipeline: str,
    *,
    filesystem: FileSystem | None = None,
    prefix: str = "",
    kind: str | None = None,
    dry_run: bool = False,
    takeover: bool = False,
    owner: str | None = None,
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Imports all checkpoints of a source that are usable, with their ids, epochs, timestamps and state.

    Repeating it changes nothing, except that new checkpoints of the source come in and sink statuses follow the source. A
    checkpoint that is damaged, or committed here with other content, is skipped and reported.

    Args:
        location: A path or URI; with `filesystem`, a path on it.
        catalog: Where to.
        pipeline: Under which name.
        filesystem: Any Arrow filesystem.
        prefix: Put before all names of an object-store layout, as LaminarDB does it.
        kind: Which layout it is, one of `KINDS`; found out by default.
        dry_run: Verify and report, change nothing.
        takeover: Also while another writer holds the pipeline, which is fenced off by it.
        owner: Who, for the audit.
        limits: How much of a file is read.
        progress: Told how far it is.

    Raises:
        ConflictError: Another writer holds the pipeline.
        NotFoundError: There are no checkpoints at that place.
    """
    if filesystem is None and catalog.engine.persistent:
        check_apart(location, catalog.engine.location)
    source = open_source(location, filesystem=filesystem, prefix=prefix, kind=kind, limits=limits)
    return import_source(source, catalog, pipeline, dry_run=dry_run, takeover=takeover, owner=owner, progress=progress)


def import_source(
    source: Source,
    catalog: Catalog,
    pipeline: str,
    *,
    dry_run: bool = False,
    takeover: bool = False,
    owner: str | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Imports all checkpoints of a source that was opened already; see `import_checkpoints`."""
    run = _Run(source, catalog, pipeline, dry_run=dry_run)
    if dry_run:
        run.walk(None, progress)
        return run.report()
    holder = current(catalog.engine, pipeline)
    seize = takeover or holder is None or holder["reason"] == REASON
    with catalog.writer(pipeline, owner=owner or default_owner(), reason=REASON, takeover=seize) as writer:
        run.walk(writer, progress)
    return run.report()


@dataclass(slots=True)
class _Run:
    """An import under way."""

    source: Source
    catalog: Catalog
    pipeline: str
    dry_run: bool
    imported: list[int] = field(default_factory=list)
    updated: list[int] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    already_there: int = 0
    state_bytes: int = 0
    batches: int = 0
    _remarks: dict[str, list[str]] = field(default_factory=dict)
    """By what there is to say, the checkpoints it is said of."""
    _waiting: list[BulkSave] = field(default_factory=list)
    _waiting_bytes: int = 0
    _need_parents: bool = False

    def walk(self, writer: Writer | None, progress: Progress | None) -> None:
        """Takes the checkpoints in order."""
        # Behind the fence, when there is one: what is read here is all that anyone but this run ever commits.
        known = Known.of(self.catalog.pipeline(self.pipeline))
        candidates = self.source.candidates()
        self.source.assume(known.by_external)
        numbers = Numbering(candidates, known).given if any(c.number is None for c in candidates) else {}
        ids = dict(known.by_external)
        for done, candidate in enumerate(candidates):
            if progress is not None:
                progress(done, len(candidates))
            self._take(writer, known, candidate, numbers, ids)
        self._flush(writer)
        if writer is not None and self._need_parents:
            # A parent that is here, but was retired, is needed again.
            restore_needed(self.catalog.engine, self.pipeline, owner=writer.held.owner)
        self.batches += bring_in_batches(self.source, self.catalog, self.pipeline, self.skipped, dry_run=self.dry_run)
        if progress is not None:
            progress(len(candidates), len(candidates))

    def report(self) -> ImportReport:
        """What came of it."""
        return ImportReport(
            kind=self.source.kind,
            location=self.source.place.root,
            pipeline=self.pipeline,
            imported=tuple(self.imported),
            already_there=self.already_there,
            updated=tuple(self.updated),
            skipped=tuple(self.skipped),
            state_bytes=self.state_bytes,
            batches=self.batches,
            notes=(*(_note(text, of) for text, of in self._remarks.items()), *self.source.notes()),
            dry_run=self.dry_run,
        )

    def _take(
        self,
        writer: Writer | None,
        known: Known,
        candidate: Candidate,
        numbers: dict[str, int | None],
        ids: dict[str, int],
    ) -> None:
        found = self.source.read(candidate)
        if found.manifest is None or not found.usable:
            self._skip(candidate, "; ".join(found.problems))
            return
        number = candidate.number if candidate.number is not None else numbers.get(candidate.name)
        if number is None:
            self._skip(
                candidate, "older than checkpoints that were imported before, and no number is left between them"
            )
            return
        parent = found.manifest.parent_id if found.parent is None else ids.get(found.parent)
        found = replace(found, manifest=replace(found.manifest, checkpoint_id=number, parent_id=parent))
        assert found.manifest is not None
        there = known.number_of(candidate)
        if there is not None:
            self._compare(writer, known, there, found)
            return
        problem = self._problem(found.manifest)
        if number in known.removed:
            problem = f"checkpoint {number} was here before, and was removed for good"
        if problem is not None:
            self._skip(candidate, problem)
            return
        if candidate.external_id is not None:
            ids[candidate.external_id] = number
        self.imported.append(number)
        self._need_parents |= parent is not None
        self.state_bytes += found.state_bytes
        for remark in found.problems:
            self._remarks.setdefault(remark, []).append(candidate.label)
        self._add(writer, found)

    def _compare(self, writer: Writer | None, known: Known, number: int, found: ForeignCheckpoint) -> None:
        """Takes note of a checkpoint that is here already."""
        difference = known.difference(number, found)
        if difference is not None:
            self._skip(found.candidate, f"here already, but not the same: {difference}")
            return
        self.already_there += 1
        statuses: dict[str, SinkCommitStatus] = known.newer_statuses(number, found)
        if statuses:
            self.updated.append(number)
            if writer is not None:
                writer.set_sink_statuses(number, statuses)

    def _problem(self, manifest: CheckpointManifest) -> str | None:
        """What the catalog cannot hold, found out before a batch of others is staged with it."""
        context = SaveContext(pipeline=self.pipeline, attempt_id="")
        try:
            manifest_table([(manifest, context)])
            offsets_table(manifest, context)
        except InvalidInputError as error:
            return error.message
        return None

    def _add(self, writer: Writer | None, found: ForeignCheckpoint) -> None:
        assert found.manifest is not None
        self._waiting.append(
            BulkSave(
                manifest=found.manifest,
                states={key: state.pieces() for key, state in found.states.items()},
                external_id=found.candidate.external_id,
                vnode_count=found.vnode_count,
            )
        )
        self._waiting_bytes += found.state_bytes + _inline_bytes(found.manifest)
        if len(self._waiting) >= BATCH_CHECKPOINTS or self._waiting_bytes >= BATCH_BYTES:
            self._flush(writer)

    def _flush(self, writer: Writer | None) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if writer is not None:
            save_all(writer, waiting, reason=f"import of {self.source.kind}")

    def _skip(self, candidate: Candidate, reason: str) -> None:
        self.skipped.append(Skipped(name=candidate.label, reason=reason))


def _inline_bytes(manifest: CheckpointManifest) -> int:
    """About how much a manifest itself weighs: what it holds of state and of records in flight."""
    states = sum(len(state.state_b64 or "") for state in manifest.operator_states.values())
    return states + sum(len(record.data_b64) for records in manifest.inflight_data.values() for record in records)


def _note(text: str, of: list[str]) -> str:
    """A remark once, however many checkpoints it is about: some releases earn the same one with each."""
    more = f" and {len(of) - 1} more, up to {of[-1]}" if len(of) > 1 else ""
    return f"checkpoint {of[0]}{more}: {text}"
