"""History: the log tells who did what, in the caller's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.errors import InvalidInputError
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness

APP = "laminar:orders"


class Histories:
    """`userMetadata` of every kind of commit comes back parsed."""

    def test_every_write_leaves_its_metadata_in_the_log(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        said = {"operation": "save", "pipeline": "a/b 'é' \"x\" \\", "generation": 2**53 + 1, "reason": None}
        first = engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 3)], metadata=said)
        second = engine.merge(LINES.name, line("p", 2), Merge(keys=("id",)), metadata={"operation": "merge"})
        third = engine.delete(LINES.name, col("id").eq(1), metadata={"operation": "delete"})
        fourth = engine.raise_fence(LINES.name, Fence(APP, 9), metadata={"operation": "takeover"})
        assert fourth is not None
        entries = engine.history(LINES.name)
        assert [entry.version for entry in entries] == [fourth.version, third.version, second.version, first.version, 0]
        commits = [entry.metadata.get("commit") for entry in entries[:4]]
        assert commits == [fourth.commit_id, third.commit_id, second.commit_id, first.commit_id]
        told = [entry.metadata.get("operation") for entry in entries[:4]]
        assert told == ["takeover", "delete", "merge", "save"]
        saved = entries[3].metadata
        assert {name: saved[name] for name in said} == said
        assert saved["fences"] == {APP: 3}
        times = [entry.timestamp_ms for entry in entries]
        assert times == sorted(times, reverse=True)
        assert all(entry.operation for entry in entries)

    def test_a_limit_gives_the_newest(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        for number in range(3):
            engine.append(LINES.name, line("p", number))
        newest = engine.version(LINES.name)
        assert [entry.version for entry in engine.history(LINES.name, limit=2)] == [newest, newest - 1]

    def test_metadata_that_is_not_json_is_refused(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        refused: tuple[dict[str, object], ...] = (
            {"x": object()},
            {"x": float("nan")},
            {"commit": "mine"},
            {"fences": {}},
        )
        for bad in refused:
            with pytest.raises(InvalidInputError):
                engine.append(LINES.name, line("p", 1), metadata=bad)
        assert harness.raw_rows(LINES.name) == []
