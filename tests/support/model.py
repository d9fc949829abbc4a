"""Checkpoints and writers as plain values: what the catalog has to agree with, whatever is done to it and in whatever order.

Nothing of the catalog is used or imitated here. There are no tables, no attempts and no digests: a checkpoint is what was put
into it, a decision is membership in a set, and a fence is a pair of numbers that only goes up.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Status = tuple[str, str | None]
"""Kind and message."""

PENDING: Status = ("Pending", None)
COMMITTED: Status = ("Committed", None)


@dataclass(frozen=True, kw_only=True)
class Content:
    """What is put into a checkpoint."""

    sources: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    states: Mapping[tuple[str, int], bytes] = field(default_factory=dict)
    """By operator and partition."""
    inline: Mapping[str, bytes] = field(default_factory=dict)
    """State that travels inside the manifest."""
    sinks: Mapping[str, Status | None] = field(default_factory=dict)
    """None: nothing is owed to it."""
    watermark: int = 0
    parent: int | None = None


@dataclass(kw_only=True)
class Checkpoint:
    """A committed checkpoint, and what became of it."""

    number: int
    epoch: int
    generation: int
    content: Content
    over: int | None = None
    """For a derived one: the newest before it."""
    state_of: tuple[str, int] | None = None
    """For a derived one: whose state it uses. Where state is stored is the catalog's choice; that it stays is not."""
    stored_in: frozenset[int] = frozenset()
    """The earlier ones that store some of its state."""
    changes: list[tuple[int, int, str, Status]] = field(default_factory=list)
    """Of sink statuses: generation, turn within it, sink, status."""
    taken: list[tuple[int, int, str, Status]] = field(default_factory=list)
    """Those that somebody deleted: readers do not see them, recovery does."""
    row_gone: bool = False
    """Somebody deleted its row: it is not listed, and recovery finds it."""
    sources_gone: bool = False

    @property
    def intact(self) -> bool:
        return not (self.row_gone or self.sources_gone)

    @property
    def statuses(self) -> dict[str, Status]:
        """As readers see them."""
        return self._after(self.changes)

    @property
    def told(self) -> dict[str, Status]:
        """As they were told, whatever was deleted since."""
        return self._after([*self.changes, *self.taken])

    def _after(self, changes: list[tuple[int, int, str, Status]]) -> dict[str, Status]:
        """Committed is for good; otherwise the change that came last counts."""
        current = dict(self.content.sinks)
        for _, _, sink, status in sorted(changes, key=lambda change: change[:2]):
            if current[sink] != COMMITTED:
                current[sink] = status
        return {sink: status for sink, status in current.items() if status is not None}

    @property
    def delivered(self) -> bool:
        return all(status == COMMITTED for status in self.told.values())

    def acceptable(self, *, accept_failed: bool = False) -> bool:
        kinds = {"Committed", "Failed"} if accept_failed else {"Committed"}
        return all(kind in kinds for kind, _ in self.told.values())


@dataclass(kw_only=True)
class WriterModel:
    """A writer, the current one or a zombie."""

    generation: int
    highest: int
    next_id: int
    turn: int = 0
    status_turn: int = 0
    in_doubt: bool = False
    """It was not told what became of a save."""
    unsettled: list["Staged"] = field(default_factory=list)
    """Those saves."""
    given_up: list["Staged"] = field(default_factory=list)
    closed: bool = False


@dataclass(frozen=True, kw_only=True)
class Staged:
    """Children that were staged and have not become a checkpoint."""

    number: int
    generation: int
    content: Content
    turn: int
    """Of its commit."""
    epoch: int = 0
    over: int | None = None
    derived: bool = False
