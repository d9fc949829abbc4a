"""What a session has staged: kept in memory, laid over what is committed for reading, turned into rows for the one merge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from laminar_delta.catalog.clock import now
from laminar_delta.catalog.names import check_name
from laminar_delta.catalog.position_rows import HEAD, RESULT, SOURCE, checksum, sum_over
from laminar_delta.catalog.positions import Positions
from laminar_delta.catalog.tables import SOURCE_CHECKPOINTS
from laminar_delta.errors import ConflictError, ErrorCode, InvalidInputError
from laminar_delta.model.ids import check_ordering_number, check_u64
from laminar_delta.model.source_checkpoint import MAX_POSITION_BYTES, SourceCheckpoint

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Row


@dataclass(slots=True)
class Buffer:
    """Steps in the order of their effect: a clear first, then what was staged after it."""

    cleared: bool = False
    sources: dict[str, SourceCheckpoint] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    config_hash: int | None = None
    kept: set[str] = field(default_factory=set)
    """Sources of which only the sequence was staged: their position is the committed one."""
    expected: dict[str, int] = field(default_factory=dict)
    """Sequences at which sources must stand in what is committed."""
    raised: dict[str, int] = field(default_factory=dict)
    """Queries whose result sequence was staged as a row, and at what: the higher one counts, the committed or the staged."""

    @property
    def empty(self) -> bool:
        """Whether nothing was staged."""
        return not (self.cleared or self.sources or self.results or self.config_hash is not None)

    def copy(self) -> Buffer:
        """The same steps, to go on from without changing these."""
        return replace(
            self,
            sources=dict(self.sources),
            results=dict(self.results),
            kept=set(self.kept),
            expected=dict(self.expected),
            raised=dict(self.raised),
        )

    # -- staging ------------------------------------------------------------------------------------------------------
    # Each checks before it changes anything: after an error everything staged before it stands.

    def stage(self, name: str, sequence: int, position: bytes | None) -> None:
        """The position a source will have."""
        self.sources[check_name("a source", name)] = checkpoint_of(name, sequence, position)
        self.kept.discard(name)

    def advance(self, base: Positions, name: str, sequence: int) -> None:
        """The sequence a source will have, at the position it has."""
        committed = name in self.kept or (name not in self.sources and not self.cleared)
        known = self.source(base, name)
        self.stage(name, sequence, None if known is None else known.position)
        if committed:
            self.kept.add(name)

    def expect(self, base: Positions, name: str, sequence: int | None) -> None:
        """That a source stands at a sequence by now; None is no condition."""
        if sequence is not None:
            check_ordering_number("after", sequence)
            _check_stands(name, self.source(base, name), sequence)
            if name not in self.sources and not self.cleared:
                self.expected[name] = sequence

    def stage_result(self, base: Positions, query: str, sequence: int) -> None:
        """The result sequence a query will have; it only ever rises, until a clear."""
        check_ordering_number("result sequence", sequence)
        _check_rises(query, sequence, self.result(base, query))
        self.results[check_name("a query", query)] = sequence
        self.raised.pop(query, None)

    def raise_result(self, base: Positions, query: str, sequence: int) -> None:
        """The same for a sequence that came as a row, which has no order: the highest counts, whoever staged it."""
        given = max(check_ordering_number("result sequence", sequence), self.raised.get(query, 0))
        is_raised = query in self.raised or query not in self.results
        self.stage_result(base, query, max(sequence, self.result(base, query) or 0))
        if is_raised:
            self.raised[query] = given

    def stage_config_hash(self, config_hash: int) -> None:
        """The hash of the configuration from now on."""
        self.config_hash = check_u64("config hash", config_hash)

    def clear(self) -> None:
        """Everything goes: positions, result sequences and the hash, committed or staged."""
        self.cleared = True
        self.sources.clear()
        self.results.clear()
        self.kept.clear()
        self.raised.clear()
        self.config_hash = None

    def lay_over(self, base: Positions) -> None:
        """Takes what is committed by now for what was when the steps were staged; their conditions must hold there too."""
        for name, sequence in self.expected.items():
            _check_stands(name, base.sources.get(name), sequence)
        for query, sequence in self.results.items():
            there = None if self.cleared else base.results.get(query)
            if query in self.raised:
                self.results[query] = max(self.raised[query], there or 0)
            else:
                _check_rises(query, sequence, there)
        for name in self.kept:
            known = base.sources.get(name)
            self.sources[name] = replace(self.sources[name], position=None if known is None else known.position)

    # -- reading one's own writes -------------------------------------------------------------------------------------

    def source(self, base: Positions, name: str) -> SourceCheckpoint | None:
        """A source as the session sees it."""
        found = self.sources.get(name)
        return base.sources.get(name) if found is None and not self.cleared else found

    def result(self, base: Positions, query: str) -> int | None:
        """A query's result sequence as the session sees it."""
        found = self.results.get(query)
        return base.results.get(query) if found is None and not self.cleared else found

    def hash_over(self, base: Positions) -> int | None:
        """The config hash as the session sees it."""
        return base.config_hash if self.config_hash is None and not self.cleared else self.config_hash

    def sources_over(self, base: Positions) -> dict[str, SourceCheckpoint]:
        """All sources as the session sees them."""
        return {**({} if self.cleared else base.sources), **self.sources}

    def is_empty_over(self, base: Positions) -> bool:
        """Whether the session sees neither a source nor a result sequence."""
        return not (self.sources or self.results) and (self.cleared or base.empty)

    # -- committing ---------------------------------------------------------------------------------------------------

    def rows(self, base: Positions, session_id: str, owner: str) -> pa.Table:
        """The rows of the merge: what changes, what goes (without a sequence), and the head row that comes after `base`."""
        common: Row = dict.fromkeys(SOURCE_CHECKPOINTS.schema.names)
        common |= {"pipeline": base.pipeline, "session_id": session_id, "changed_at": now(), "changed_by": owner}
        head: Row = {
            "kind": HEAD,
            "source": "",
            "sequence": None,
            "config_hash": self.hash_over(base),
            "generation": base.generation,
            "ordinal": base.ordinal + 1,
        }
        written = [{**common, **row} for row in (*self.changes(), *self._lost(base))]
        for row in written:
            row["checksum"] = checksum(row)
        kept = {} if self.cleared else base.checksums
        head["sequence"] = sum_over(
            {**kept, **{(row["kind"], row["source"]): row["checksum"] for row in written}}.values()
        )
        rows = [*written, *({**common, **row} for row in (*self._removals(base), head))]
        for row in rows:
            row["checksum"] = checksum(row)
        return pa.Table.from_pylist(rows, schema=SOURCE_CHECKPOINTS.schema)

    def changes(self) -> Iterator[Row]:
        """What is written anew, without what is the same for all rows."""
        for name, found in self.sources.items():
            yield {"kind": SOURCE, "source": name, "sequence": found.sequence, "position": found.position}
        for query, sequence in self.results.items():
            yield {"kind": RESULT, "source": query, "sequence": sequence}

    def _lost(self, base: Positions) -> Iterator[Row]:
        """Rows that are committed and not in the table any more: as they were, unless they go or come anew now."""
        anew = {(row["kind"], row["source"]) for row in self.changes()}
        yield from (row for row in base.missing if not self.cleared and (row["kind"], row["source"]) not in anew)

    def _removals(self, base: Positions) -> Iterator[Row]:
        if self.cleared:
            committed: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
                (SOURCE, base.sources, self.sources),
                (RESULT, base.results, self.results),
            )
            for kind, there, staged in committed:
                yield from ({"kind": kind, "source": name} for name in there if name not in staged)


def _check_rises(query: str, sequence: int, standing: int | None) -> None:
    if standing is not None and sequence < standing:
        raise ConflictError(
            f"the result sequence of query {query!r} would go back from {standing} to {sequence}",
            expected=sequence,
            found=standing,
            next_step="Go on counting from the stored one; a clear starts it anew.",
        )


def _check_stands(name: str, found: SourceCheckpoint | None, sequence: int) -> None:
    standing = 0 if found is None else found.sequence
    if standing != sequence:
        raise ConflictError(
            f"source {name!r} stands at sequence {standing}, not at {sequence}",
            expected=sequence,
            found=standing,
            next_step="Process what is missing in between first.",
        )


def checkpoint_of(name: str, sequence: int, position: bytes | None) -> SourceCheckpoint:
    """What a step says of a source, or `InvalidInputError` where no source can be there."""
    check_ordering_number("sequence", sequence)
    if isinstance(position, (bytes, bytearray, memoryview)) and len(position) > MAX_POSITION_BYTES:
        raise InvalidInputError(
            f"the position of source {name!r} has {len(position)} bytes, more than the limit of {MAX_POSITION_BYTES}",
            code=ErrorCode.FORMAT_TOO_LARGE,
            expected=MAX_POSITION_BYTES,
            found=len(position),
            next_step="The last good position is kept. To move only the sequence on, use `advance`.",
        )
    return SourceCheckpoint(sequence=sequence, position=position)
