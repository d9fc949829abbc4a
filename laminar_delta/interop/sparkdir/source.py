"""A Structured Streaming checkpoint directory as a history of checkpoints: one per committed batch.

Batch n becomes checkpoint n+1, because a checkpoint's id is never 0; epoch likewise. Its state is a list of the files
that belong to the version it wrote: the directory stays the one that Spark resumes from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from typing import ClassVar

from laminar_delta.errors import LaminarDeltaError, NotFoundError
from laminar_delta.interop.source import Candidate, ForeignCheckpoint, Source, fatal
from laminar_delta.interop.sparkdir.logs import NO_OFFSET, check_commit, flattened, parse_offsets, parse_query_id
from laminar_delta.interop.sparkdir.states import StateListing, list_state
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, OperatorCheckpoint
from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import IntRange

DOCUMENT = "__spark__"
"""The operator name under which the batch's log entries are kept as they were; reserved."""

LISTING = f"{DOCUMENT}/state"
"""The same for the list of its state files; Spark removes old ones, so it is only what there was when it was read."""

LONGEST_SOURCE_LOG = 1 << 20
"""Bytes of a source's own log entry that are kept with a batch."""

_BATCHES = IntRange(0, 2**63 - 2)


class SparkSource(Source):
    """A directory with `offsets` and `commits`."""

    kind: ClassVar[str] = "spark-checkpoint"

    def candidates(self) -> list[Candidate]:
        """See `Source.candidates`: the planned batches, committed or not."""
        batches = []
        for entry in self.place.entries("offsets"):
            number = None if entry.is_directory else parse_integer(entry.name, _BATCHES)
            if number is not None and entry.name == str(number):
                batches.append(number)
        query = self._query[0]
        return [
            Candidate(
                name=f"batch {batch}", number=batch + 1, external_id=None if query is None else f"{query}/{batch}"
            )
            for batch in sorted(batches)
        ]

    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """See `Source.read`."""
        assert candidate.number is not None
        batch = candidate.number - 1
        try:
            planned = self.place.read(f"offsets/{batch}")
            committed = self.place.read(f"commits/{batch}")
            check_commit(f"commits/{batch}", committed)
            manifest = self._manifest(batch, planned, committed)
        except NotFoundError:
            message = f"batch {batch} was planned and not committed: Spark runs it again"
            return ForeignCheckpoint(candidate=candidate, findings=(fatal("not-committed", message),))
        except LaminarDeltaError as error:
            message = self.tolerated(error).message
            return ForeignCheckpoint(candidate=candidate, findings=(fatal("log-unreadable", message),))
        return ForeignCheckpoint(
            candidate=candidate, manifest=manifest, passing=frozenset({LISTING}), listed_bytes=manifest.size_bytes
        )

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
        return self._query[1]

    def _manifest(self, batch: int, planned: bytes, committed: bytes) -> CheckpointManifest:
        entry = parse_offsets(f"offsets/{batch}", planned)
        sources = {}
        for index, offset in enumerate(entry.offsets):
            if offset != NO_OFFSET:
                kind, offsets = flattened(offset)
                sources[f"source-{index}"] = ConnectorCheckpoint(
                    offsets=offsets, epoch=batch + 1, metadata={"connector_type": kind, "spark_offset": offset}
                )
        # A batch reads version n of the state and writes n+1.
        files = self._state.versions.get(batch + 1, [])
        logs = {f"sources/{index}/{batch}": self._source_log(index, batch) for index in range(len(entry.offsets))}
        kept = {name: text for name, text in logs.items() if text is not None}
        states = {DOCUMENT: _inline({"offsets": planned.decode(), "commit": committed.decode(), **kept})}
        if files:
            states[LISTING] = _inline([asdict(file) for file in files])
        return CheckpointManifest(
            version=1,
            checkpoint_id=batch + 1,
            epoch=batch + 1,
            timestamp_ms=entry.timestamp_ms,
            source_offsets=sources,
            operator_states=states,
            watermark=entry.watermark_ms,
            source_names=tuple(f"source-{index}" for index in range(len(entry.offsets))),
            size_bytes=sum(file.size for file in files),
        )

    def _source_log(self, index: int, batch: int) -> str | None:
        """What a source itself noted for a batch, such as the files it read; None when it notes nothing."""
        try:
            return self.place.read(f"sources/{index}/{batch}", limit=LONGEST_SOURCE_LOG).decode("utf-8", "replace")
        except NotFoundError:
            return None

    @cached_property
    def _state(self) -> StateListing:
        return list_state(self.place)

    @cached_property
    def _query(self) -> tuple[str | None, tuple[str, ...]]:
        """The query's id, and what is to be said if it cannot be had."""
        try:
            return parse_query_id(self.place.read("metadata")), ()
        except LaminarDeltaError as error:
            return None, (f"the query has no id: {error.message}",)


def _inline(value: object) -> OperatorCheckpoint:
    return OperatorCheckpoint.inline(json.dumps(value, sort_keys=True, ensure_ascii=False).encode())
