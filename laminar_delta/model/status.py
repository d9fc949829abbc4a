"""How far a sink got with delivering a checkpoint.

In JSON the first two kinds are bare strings and a failure is an object of one key, `{"Failed": "message"}`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from laminar_delta.model.jsontext import RepeatedKeys
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import refusal, take_text
from laminar_delta.model.wire import WireModel


class SinkCommitKind(str, Enum):
    """The kinds of status, by the names that documents and tables use."""

    PENDING = "Pending"
    COMMITTED = "Committed"
    FAILED = "Failed"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkCommitStatus(WireModel):
    """The status of one sink in one checkpoint; made by `pending()`, `committed()` and `failed(message)`."""

    kind: SinkCommitKind
    message: str | None = None
    """What the sink said: always there for a failure (it may be empty), never for the others."""

    @classmethod
    def pending(cls) -> "SinkCommitStatus":
        """Not yet delivered, as far as anyone recorded."""
        return cls(kind=SinkCommitKind.PENDING)

    @classmethod
    def committed(cls) -> "SinkCommitStatus":
        """Delivered for good."""
        return cls(kind=SinkCommitKind.COMMITTED)

    @classmethod
    def failed(cls, message: str) -> "SinkCommitStatus":
        """Tried and not delivered."""
        return cls(kind=SinkCommitKind.FAILED, message=message)

    @property
    def is_committed(self) -> bool:
        """Whether the sink needs nothing any more."""
        return self.kind is SinkCommitKind.COMMITTED

    def __str__(self) -> str:
        return self.kind.value if self.message is None else f"{self.kind.value}: {self.message}"

    def _check(self) -> None:
        if (self.kind is SinkCommitKind.FAILED) is not (self.message is not None):
            found = "none" if self.message is None else f"one with {self.kind.value}"
            raise Mismatch("a message exactly when the kind is Failed", found)

    @classmethod
    def _from_plain(cls, raw: Any) -> "SinkCommitStatus":
        if isinstance(raw, str):
            name, content = raw, None
        elif isinstance(raw, Mapping) and len(raw) == 1 and not isinstance(raw, RepeatedKeys):
            name, content = next(iter(raw.items()))
        else:
            raise refusal("a status name or an object of one", raw)
        if name == SinkCommitKind.FAILED.value:
            return cls.failed(take_text(content))
        if name in (SinkCommitKind.PENDING.value, SinkCommitKind.COMMITTED.value) and content is None:
            return cls(kind=SinkCommitKind(name))
        raise refusal('"Pending", "Committed" or {"Failed": message}', raw)

    def _to_plain(self) -> Any:
        return self.kind.value if self.message is None else {self.kind.value: self.message}
