"""The layout of a state: which blocks it is made of, in order, and which checkpoints store them.

A block is known by its name, the xxh3-128 of its bytes. So two states, or two places in one, that have a block in common share
it, and it does not matter which checkpoint brought it. A layout is one row of its own beside the chunks, under the chunk number
-1: reading it tells everything about a state but its bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from laminar_delta.codec import block_hash, verify
from laminar_delta.errors import CorruptionError

if TYPE_CHECKING:
    from laminar_delta.catalog.state.policy import StatePolicy

Row = dict[str, Any]

NAME_BYTES = 16
LAYOUT_CHUNK = -1
"""The chunk number of a layout's row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A checkpoint that has rows for an operator partition."""

    table: str
    checkpoint_id: int
    attempt_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Origin):
    """One that stores blocks of a state."""

    raw_bytes: int
    """Of all blocks it stores for this operator partition, used or not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The state of one operator partition, without its bytes."""

    operator: str
    partition: int
    length: int
    checksum: str
    block_bytes: int
    names: bytes
    """Of all its blocks, in order."""
    stores: tuple[Store, ...] = ()
    """Oldest first. None for an empty state."""
    origin: Origin | None = None
    """Where the layout itself is."""
    apply: str | None = None
    """For an application delta: the function that applies it."""
    upon: tuple[Origin, ...] = ()
    """For an application delta: the layouts it stands upon, the full state first."""
    beneath: tuple[Store, ...] = ()
    """For an application delta: what stores those. Their own rows say it and not this one's; see `CheckpointState.resting`."""

    @property
    def blocks(self) -> int:
        """How many."""
        return len(self.names) // NAME_BYTES

    @property
    def stored_bytes(self) -> int:
        """What reading the whole may have to go through."""
        return sum(store.raw_bytes for store in self.stores)

    @property
    def origins(self) -> tuple[Origin, ...]:
        """All that must be there for it to be read, as far as it is known."""
        return (*self.stores, *self.upon, *self.beneath)

    @property
    def needs(self) -> set[int]:
        """The checkpoints that must be there for it to be read, its own among them when it stores something."""
        return {found.checkpoint_id for found in self.origins}

    @property
    def reaches(self) -> set[int]:
        """The checkpoints that must stay for another state to be stored upon it: what it needs, and where it is itself."""
        return self.needs if self.origin is None else self.needs | {self.origin.checkpoint_id}

    def names_from(self, start: int, count: int) -> list[bytes]:
        """The names of some blocks in order."""
        view = self.names[start * NAME_BYTES : (start + count) * NAME_BYTES]
        return [view[at : at + NAME_BYTES] for at in range(0, len(view), NAME_BYTES)]

    def may_grow(self, policy: StatePolicy) -> bool:
        """Whether another delta may be put upon this chain."""
        return (
            self.apply is None
            and self.block_bytes == policy.block_bytes
            and len(self.stores) < policy.longest_chain
            and self.stored_bytes <= self.length * (1 + policy.most_stale)
        )

    def row(self, fixed: Row) -> Row:
        """As a row of a state table."""
        return {
            **fixed,
            "operator": self.operator,
            "partition": self.partition,
            "chunk": LAYOUT_CHUNK,
            "names": self.names,
            "raw_length": self.length,
            "xxh3": Decimal(self._hash()),
            "data": b"",
            "checksum": self.checksum,
            "block_bytes": self.block_bytes,
            "stores": [
                {
                    "table": store.table,
                    "checkpoint_id": store.checkpoint_id,
                    "attempt_id": store.attempt_id,
                    "raw_bytes": store.raw_bytes,
                }
                for store in self.stores
            ],
            "apply": self.apply,
            "upon": [
                {"table": origin.table, "checkpoint_id": origin.checkpoint_id, "attempt_id": origin.attempt_id}
                for origin in self.upon
            ],
        }

    @classmethod
    def from_row(cls, row: Row) -> Layout:
        """From its row. Raises `CorruptionError` when the row is not as it was written."""
        subject = (
            f"layout of operator {row['operator']!r} partition {row['partition']} in checkpoint {row['checkpoint_id']}"
        )
        details = {name: row[name] for name in ("operator", "partition", "checkpoint_id")}
        needed = [row[name] for name in ("raw_length", "xxh3", "names", "block_bytes", "checksum", "stores")]
        if None in needed or (row["raw_length"] and not row["names"]):
            raise CorruptionError(f"{subject} is not whole", found=row["raw_length"], details=details)
        found = cls(
            operator=row["operator"],
            partition=row["partition"],
            length=row["raw_length"],
            checksum=row["checksum"],
            block_bytes=row["block_bytes"],
            names=row["names"],
            stores=tuple(Store(**store) for store in row["stores"]),
            apply=row["apply"],
            upon=tuple(Origin(**origin) for origin in row["upon"] or ()),
        )
        stated = int(row["xxh3"])
        if stated != found._hash(repr):
            verify(subject, expected=stated, found=found._hash(), details=details)
        return found

    def _hash(self, spell: Callable[[object], str] = ascii) -> int:
        """Over everything it says.

        Rows from before had it spelled by `repr`, and are read. That leaves letters as they are that the Python at hand knows,
        so with other than ASCII in a name two versions of Python disagree.
        """
        stores = [(s.table, s.checkpoint_id, s.attempt_id, s.raw_bytes) for s in self.stores]
        upon = [(o.table, o.checkpoint_id, o.attempt_id) for o in self.upon]
        said = (self.operator, self.partition, self.length, self.checksum, self.block_bytes, stores, self.apply, upon)
        return block_hash(self.names + spell(said).encode("utf-8", "surrogatepass"))
