"""What of a source a catalog has already, read in bulk: so that an import can go on where it was."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.comparing import check_same, news
from laminar_delta.catalog.reading import STATE_TABLES
from laminar_delta.catalog.rows import manifest_from_rows
from laminar_delta.catalog.standing import standing
from laminar_delta.catalog.state.layout import LAYOUT_CHUNK
from laminar_delta.catalog.statuses import current_statuses
from laminar_delta.catalog.tables import BY_NAME, MANIFESTS, SOURCE_OFFSETS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, LaminarDeltaError

if TYPE_CHECKING:
    from laminar_delta.catalog.pipeline import Pipeline
    from laminar_delta.catalog.reading import Row
    from laminar_delta.interop.source import Candidate, ForeignCheckpoint
    from laminar_delta.model import CheckpointManifest, SinkCommitStatus


WINDOW = 500
"""How many checkpoints are read at once to be compared: bounds the memory, whatever state their manifests hold."""


@dataclass(slots=True)
class Known:
    """The checkpoints of a pipeline, retired ones included: they were brought in once, and somebody let go of them."""

    pipeline: Pipeline
    numbers: list[int] = field(default_factory=list)
    """Ascending."""
    by_external: dict[str, int] = field(default_factory=dict)
    removed: frozenset[int] = frozenset()
    """Ids that were used, and whose rows maintenance removed: they are never used again."""
    _rows: dict[int, Row] = field(default_factory=dict)
    _offsets: dict[str, list[Row]] = field(default_factory=dict)
    _states: dict[str, dict[tuple[str, int], str]] = field(default_factory=dict)
    """Per attempt and operator partition the checksum of the state."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> Known:
        """Reads which checkpoints there are; what they hold is read when they are compared."""
        own = col("pipeline").eq(pipeline.name)
        rows = pipeline.reading.rows(MANIFESTS, where=own, columns=["checkpoint_id", "external_id"])
        return cls(
            pipeline,
            numbers=sorted(row["checkpoint_id"] for row in rows),
            by_external={row["external_id"]: row["checkpoint_id"] for row in rows if row["external_id"] is not None},
            removed=standing(pipeline.reading, pipeline.name).removed,
        )

    def number_of(self, candidate: Candidate) -> int | None:
        """The id under which a checkpoint of a source is here; None when it is not."""
        if candidate.number is not None:
            return candidate.number if self._has(candidate.number) else None
        return self.by_external.get(candidate.external_id or "")

    def difference(self, number: int, found: ForeignCheckpoint) -> str | None:
        """What a checkpoint of a source has that the one here has not; None when they are the same.

        What an update of the manifest drops or adds (checksum, statuses) is no difference.
        """
        row = self._row(number)
        if found.candidate.external_id != row["external_id"]:
            return f"checkpoint {number} is {row['external_id'] or 'one of the pipeline itself'}"
        try:
            stored = manifest_from_rows(row, self._offsets.get(row["attempt_id"], []))
            check_same(self.pipeline.name, _without_passing(found, stored), stored)
        except ConflictError as error:
            return error.message
        except LaminarDeltaError as error:
            return f"what is here cannot be read: {error.message}"
        states = {key: state.checksum for key, state in found.states.items() if not found.passes(key[0])}
        stored_states = {
            key: checksum
            for key, checksum in self._states.get(row["attempt_id"], {}).items()
            if not found.passes(key[0])
        }
        if states == stored_states:
            return None
        changed = sorted(
            key for key in states.keys() | stored_states.keys() if states.get(key) != stored_states.get(key)
        )
        return f"it has another state of operator {changed[0][0]!r} partition {changed[0][1]}"

    def newer_statuses(self, number: int, found: ForeignCheckpoint) -> dict[str, SinkCommitStatus]:
        """Statuses of sinks that went on in the source since the checkpoint was brought in."""
        assert found.manifest is not None
        row = self._row(number)
        given = found.manifest.sink_commit_statuses
        saved = {sink["name"]: sink["status"] for sink in row["sinks"]}
        if all(saved.get(name) == status.kind.value for name, status in given.items()):
            return {}
        return news(given, current_statuses(self.pipeline.reading, row))

    def _has(self, number: int) -> bool:
        place = bisect_left(self.numbers, number)
        return place < len(self.numbers) and self.numbers[place] == number

    def _row(self, number: int) -> Row:
        """A manifest row. They are asked for in ascending order, so those that follow are read along."""
        if number not in self._rows:
            place = bisect_left(self.numbers, number)
            self._read(self.numbers[place : place + WINDOW])
        return self._rows[number]

    def _read(self, numbers: list[int]) -> None:
        own = col("pipeline").eq(self.pipeline.name) & col("checkpoint_id").is_in(numbers)
        reading = self.pipeline.reading
        self._rows = {row["checkpoint_id"]: row for row in reading.rows(MANIFESTS, where=own)}
        self._offsets, self._states = {}, {}
        for row in reading.rows(SOURCE_OFFSETS, where=own):
            self._offsets.setdefault(row["attempt_id"], []).append(row)
        columns = ["attempt_id", "operator", "partition", "checksum"]
        for table in STATE_TABLES:
            where = own & col("chunk").eq(LAYOUT_CHUNK)
            for row in reading.rows(BY_NAME[table], where=where, columns=columns):
                states = self._states.setdefault(row["attempt_id"], {})
                states[row["operator"], row["partition"]] = row["checksum"]


def _without_passing(found: ForeignCheckpoint, stored: CheckpointManifest) -> CheckpointManifest:
    """The manifest found, with what passes as it was when the checkpoint was brought in."""
    assert found.manifest is not None
    if not found.passing:
        return found.manifest
    lasting = {name: state for name, state in found.manifest.operator_states.items() if not found.passes(name)}
    past = {name: state for name, state in stored.operator_states.items() if found.passes(name)}
    return replace(found.manifest, operator_states={**lasting, **past}, size_bytes=stored.size_bytes)


class Numbering:
    """Gives ids, in the order of the source, to checkpoints that have none."""

    def __init__(self, candidates: Sequence[Candidate], known: Known) -> None:
        own = {known.by_external[c.external_id] for c in candidates if c.external_id in known.by_external}
        foreign = set(known.numbers) - own
        # Above all there is; in a later run, above what was there when the first numbers were given.
        last = max((number for number in foreign if not own or number < min(own)), default=0)
        self.given: dict[str, int | None] = {}
        """By name; None where no number is left between the neighbours that have theirs already."""
        following = deque(sorted(own))
        for candidate in candidates:
            number = known.by_external.get(candidate.external_id or "")
            if number is not None:
                last = number
            else:
                number = self._next(last, foreign, following)
                last = number or last
            while following and following[0] <= last:
                following.popleft()
            self.given[candidate.name] = number

    @staticmethod
    def _next(last: int, foreign: Set[int], following: deque[int]) -> int | None:
        number = last + 1
        while number in foreign:
            number += 1
        return None if following and number >= following[0] else number
