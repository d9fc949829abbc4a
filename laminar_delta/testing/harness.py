"""What an engine's tests tell the suite: how to open it, how to look around it, and how to hurt it.

The suite never proves writing by reading with the same code: `raw_rows` reads the storage without the engine. It never fakes an
engine either: the ways to hurt one reach below it, to the library or the files it stands on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from laminar_delta.engine.base import Engine


class EngineHarness(ABC):
    """One place for one test, and the engine under test on it."""

    @abstractmethod
    def open(self) -> Engine:
        """Another engine object on the same place, as another user of it would open it."""

    @abstractmethod
    def raw_rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of the newest version, read without the engine, in any order."""

    @abstractmethod
    def lose_next_answer(self, engine: Engine) -> AbstractContextManager[None]:
        """Within: the engine's next commit happens for real, and then its answer is lost on the way back."""

    @abstractmethod
    def break_reading(self, engine: Engine) -> AbstractContextManager[None]:
        """Within: the engine cannot read the table or its log; writing still works."""

    @abstractmethod
    def age(self, table: str, days: int) -> None:
        """Makes everything the table holds this many days older."""

    @abstractmethod
    def data_files(self, table: str) -> int:
        """How many data files the newest version has."""

    @abstractmethod
    def destroy(self, table: str) -> None:
        """Takes the table away under the engine."""


class LocalHarness(EngineHarness):
    """A harness of an engine whose tables are files: it can be opened from other processes too."""

    root: Path

    @abstractmethod
    def open_impatient(self) -> Engine:
        """An engine that waits only a fraction of a second for the lock."""

    @abstractmethod
    def opening(self) -> Mapping[str, Any]:
        """The arguments of `open_engine` for another process, as JSON values."""
