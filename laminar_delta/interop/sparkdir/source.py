"""A Structured Streaming checkpoint directory as a history of checkpoints: one per committed batch.

Batch n becomes checkpoint n+1, because a checkpoint's id is never 0; epoch likewise. Its state is a list of the files
that belong to the version it wrote: the directory stays the one that Spark resumes from. Taken with its state, those files
come in too, and another directory can be made from the checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from laminar_delta.errors import FormatError, LaminarDeltaError, NotFoundError
from laminar_delta.interop.source import (
    Candidate,
    ForeignCheckpoint,
    ForeignState,
    Source,
    fatal,
    take_state,
    warning,
)
from laminar_delta.interop.sparkdir.archive import take_files
from laminar_delta.interop.sparkdir.logs import (
    PlannedBatch,
    check_commit,
    connector_checkpoints,
    parse_offsets,
    parse_query_id,
)
from laminar_delta.interop.sparkdir.needs import state_needs
from laminar_delta.interop.sparkdir.sourcelogs import (
    COMPACT,
    back_from,
    compacted,
    log_position,
    long_entries,
    own_numbers,
    read_entries,
)
from laminar_delta.interop.sparkdir.sourcelogs import LONGEST_SOURCE_LOG as LONGEST_SOURCE_LOG
from laminar_delta.interop.sparkdir.states import StateListing, list_state
from laminar_delta.model import CheckpointManifest, Finding, OperatorCheckpoint
from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import IntRange

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

DOCUMENT = "__spark__"
"""The operator name under which the batch's log entries are kept as they were; reserved."""

BATCH = f"{DOCUMENT}/batch"
"""The same for which batch it is, of what query, and digests of the log entries: short, so that it is in the manifest row, and
can be read when the entries cannot."""

LISTING = f"{DOCUMENT}/state"
"""The same for the list of its state files; Spark removes old ones, so it is only what there was when it was read."""

STORE = f"{DOCUMENT}/store"
"""The same for archives of state files: per stateful operator under its own name below this one, partition by partition, and
under this one what is common to them."""

SOURCES = f"{DOCUMENT}/sources"
"""The same for entries of a source's log that hold all entries before them too: below this name that of the source, and the
number of the entry as partition."""

ENTRIES = f"{DOCUMENT}/entries"
"""The same for entries of a source's log that are too long for the document, or that batches before brought which are not there
to be captured; named and numbered like those."""

RESTORED = "laminar.json"
"""The file in which a directory that was made from a checkpoint says so: its first batches are in the catalog already."""

_BATCHES = IntRange(0, 2**63 - 2)


class SparkSource(Source):
    """A directory with `offsets` and `commits`."""

    kind: ClassVar[str] = "spark-checkpoint"

    def __init__(self, place: Place, *, states_from: int | None = None, numbered: bool = True) -> None:
        """A directory.

        Args:
            place: Where.
            states_from: Take the state of this batch and those after it; of none by default.
            numbered: Give batch n the id n+1; otherwise the importer gives ids, for a pipeline that has other checkpoints.
        """
        super().__init__(place)
        self._states_from = states_from
        self._numbered = numbered
        self.assumed: frozenset[str] = frozenset()

    @property
    def query_id(self) -> str | None:
        """The query's id, as far as there is one."""
        return self._query[0]

    def planned(self) -> list[int]:
        """The planned batches, committed or not, ascending."""
        found = []
        for entry in self.place.entries("offsets"):
            number = None if entry.is_directory else parse_integer(entry.name, _BATCHES)
            if number is not None and entry.name == str(number):
                found.append(number)
        return sorted(found)

    def candidates(self) -> list[Candidate]:
        """See `Source.candidates`: the planned batches, committed or not; without those a directory was made with."""
        query, first = self._query[0], 0 if self._made_from is None else self._made_from["batch_id"] + 1
        return [
            Candidate(
                name=f"batch {batch}",
                number=batch + 1 if self._numbered or query is None else None,
                external_id=None if query is None else f"{query}/{batch}",
            )
            for batch in self.planned()
            if batch >= first
        ]

    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """See `Source.read`."""
        batch = int(candidate.name.removeprefix("batch "))
        findings: tuple[Finding, ...] = ()
        states: dict[tuple[str, int], ForeignState] = {}
        try:
            planned = self.place.document(f"offsets/{batch}")
            committed = self.place.document(f"commits/{batch}")
            check_commit(f"commits/{batch}", committed)
            manifest = self._manifest(batch, planned, committed)
        except NotFoundError:
            message = f"batch {batch} was planned and not committed: Spark runs it again"
            return ForeignCheckpoint(candidate=candidate, findings=(fatal("not-committed", message),))
        except LaminarDeltaError as error:
            message = self.tolerated(error).message
            return ForeignCheckpoint(candidate=candidate, findings=(fatal("log-unreadable", message),))
        listed = manifest.size_bytes
        # What is in a catalog already keeps the state it came with: reading all of it again would tell nothing.
        if self._states_from is not None and candidate.external_id not in self.assumed:
            try:
                states, findings = self._take_source_logs(batch, parse_offsets(f"offsets/{batch}", planned))
                if batch >= self._states_from:
                    states |= self._take_state(batch)
                    listed = 0
            except LaminarDeltaError as error:
                told = f"without its state: {self.tolerated(error).message}"
                findings = (*findings, warning("state-incomplete", told))
        sizes: dict[str, int] = {}
        for (operator, _), state in states.items():
            sizes[operator] = sizes.get(operator, 0) + state.size
        outside = {operator: OperatorCheckpoint.external_at(0, size) for operator, size in sizes.items()}
        return ForeignCheckpoint(
            candidate=candidate,
            manifest=replace(manifest, operator_states={**manifest.operator_states, **outside}),
            states=states,
            findings=findings,
            passing=frozenset({LISTING, STORE, SOURCES, ENTRIES}),
            listed_bytes=listed,
        )

    def _take_source_logs(
        self, batch: int, planned: PlannedBatch
    ) -> tuple[dict[tuple[str, int], ForeignState], tuple[Finding, ...]]:
        """Those of the sources' own entries that the document does not have; later batches cannot be restored without."""
        taken: dict[tuple[str, int], ForeignState] = {}
        lacking: list[Finding] = []
        before = self._offsets_of(batch - 1)
        for index, numbers in self._own_numbers(batch, planned).items():
            for number, name in compacted(self.place, index, numbers):
                taken[f"{SOURCES}/{index}", number] = take_state(self.place, name)
            for number, name in long_entries(self.place, index, numbers):
                taken[f"{ENTRIES}/{index}", number] = take_state(self.place, name)
            last = log_position(planned.offsets[index])
            if before is not None:
                continue
            if last is None:  # a source of another kind notes at most where it began
                for number in self._noted(index)[0]:
                    if number < batch:
                        taken[f"{ENTRIES}/{index}", number] = take_state(self.place, f"sources/{index}/{number}")
                continue
            # Spark has removed what it planned before, and with it nobody else brings these entries.
            for number, found in back_from(self.place, index, last):
                if found is None:
                    message = (
                        f"entry {number} of what source {index} noted is not there: checkpoints from here to the next entry "
                        "that holds all before it cannot be restored"
                    )
                    lacking.append(warning("entry-missing", message))
                    break
                if number not in numbers:
                    kept = SOURCES if found.endswith(COMPACT) else ENTRIES
                    taken[f"{kept}/{index}", number] = take_state(self.place, found)
        return taken, tuple(lacking)

    def _take_state(self, batch: int) -> dict[tuple[str, int], ForeignState]:
        taken: dict[tuple[str, int], ForeignState] = {}
        if not self._state.versions:
            return taken
        # A batch reads version n of the state and writes n+1.
        needs = state_needs(self.place, self._state, batch + 1)
        for (operator, partition), files in needs.partitions.items():
            taken[f"{STORE}/{operator}", partition] = take_files(self.place, files)
        if needs.common:
            taken[STORE, 0] = take_files(self.place, needs.common)
        return taken

    def details(self) -> Mapping[str, object]:
        """See `Source.details`: the query, its sources and its state."""
        sources = {
            entry.name: len(self.place.entries(f"sources/{entry.name}"))
            for entry in self.place.entries("sources")
            if entry.is_directory
        }
        return {"query_id": self._query[0], "sources": sources, "state": self._state.operators}

    def notes(self) -> tuple[str, ...]:
        """See `Source.notes`."""
        return (*self._query[1], *(self._left_out() if self._states_from is not None else ()))

    def _left_out(self) -> Iterator[str]:
        """What sources noted that no batch brings."""
        planned = self.planned()
        for index, offset in enumerate(self._offsets_of(planned[-1]) or () if planned else ()):
            if log_position(offset) is None:
                numbers, others = self._noted(index)
                left = [*others, *(str(number) for number in numbers if number > planned[-1])]
                if left:
                    yield f"what source {index} noted is not captured: {', '.join(f'sources/{index}/{one}' for one in left)}"

    def _noted(self, index: int) -> tuple[list[int], list[str]]:
        """What lies where a source notes something for itself: entries by their numbers, and anything else by name."""
        found = sorted(entry.name for entry in self.place.entries(f"sources/{index}") if not entry.name.startswith("."))
        numbers = {name: parse_integer(name, _BATCHES) for name in found}
        plain = [number for name, number in numbers.items() if number is not None and name == str(number)]
        return plain, [name for name, number in numbers.items() if number is None or name != str(number)]

    def _manifest(self, batch: int, planned: bytes, committed: bytes) -> CheckpointManifest:
        entry = parse_offsets(f"offsets/{batch}", planned)
        # A batch reads version n of the state and writes n+1.
        files = self._state.versions.get(batch + 1, [])
        kept: dict[str, object] = {}
        if self._made_from is not None and self._made_from["batch_id"] == batch - 1:
            kept["restored_from"] = self._made_from
        for index, numbers in self._own_numbers(batch, entry).items():
            kept.update(read_entries(self.place, index, numbers))
        states = {DOCUMENT: _inline({"offsets": planned.decode(), "commit": committed.decode(), **kept})}
        if files:
            states[LISTING] = _inline([asdict(file) for file in files])
        return CheckpointManifest(
            version=1,
            checkpoint_id=batch + 1,
            epoch=batch + 1,
            timestamp_ms=entry.timestamp_ms,
            source_offsets=connector_checkpoints(entry, batch + 1),
            operator_states=states,
            watermark=entry.watermark_ms,
            source_names=tuple(f"source-{index}" for index in range(len(entry.offsets))),
            size_bytes=sum(file.size for file in files),
        )

    def _own_numbers(self, batch: int, planned: PlannedBatch) -> dict[int, range]:
        """By source which entries of its own log the batch brought."""
        before = self._offsets_of(batch - 1) or ()
        return {
            index: own_numbers(batch, offset, before[index] if index < len(before) else None)
            for index, offset in enumerate(planned.offsets)
        }

    def _offsets_of(self, batch: int) -> tuple[str, ...] | None:
        """Where the sources were after a batch; None where that cannot be read."""
        try:
            return parse_offsets(f"offsets/{batch}", self.place.read(f"offsets/{batch}")).offsets
        except LaminarDeltaError:
            return None

    @cached_property
    def _made_from(self) -> Mapping[str, Any] | None:
        """What a directory that was made from a checkpoint says of that; None for any other."""
        try:
            said = json.loads(self.place.read(RESTORED, limit=LONGEST_SOURCE_LOG))
            found = {"pipeline": str(said["pipeline"]), "checkpoint_id": int(said["checkpoint_id"])}
            return {**found, "batch_id": int(said["batch_id"])} if said["query_id"] == self._query[0] else None
        except NotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(f"{RESTORED} does not tell which batches the directory was made with: {error}") from error

    @cached_property
    def _state(self) -> StateListing:
        return list_state(self.place)

    @cached_property
    def _query(self) -> tuple[str | None, tuple[str, ...]]:
        """The query's id, and what is to be said if it cannot be had."""
        try:
            return parse_query_id(self.place.document("metadata")), ()
        except LaminarDeltaError as error:
            return None, (f"the query has no id: {error.message}",)


def _inline(value: object) -> OperatorCheckpoint:
    return OperatorCheckpoint.inline(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())
