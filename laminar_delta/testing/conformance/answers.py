"""Answers: an error is no proof of failure, and silence never means success."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from laminar_delta.engine.predicate import target
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.errors import CommitUnknownError, LaminarDeltaError
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness

APP = "laminar:orders"


class Answers:
    """Read back before saying anything."""

    def test_a_commit_whose_answer_was_lost_is_found_by_its_key(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        with harness.lose_next_answer(engine):
            made = engine.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 1)], key={"attempt": "a"})
        assert made.replayed
        assert made.version == engine.version(LINES.name)
        assert [row["attempt"] for row in harness.raw_rows(LINES.name)] == ["a"]
        engine.append(LINES.name, line("p", 2, "b"), fences=[Fence(APP, 2)], key={"attempt": "b"})

    def test_a_commit_whose_answer_was_lost_is_found_in_the_log(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        with harness.lose_next_answer(engine):
            made = engine.append(LINES.name, line("p", 1))
        assert made.replayed
        with harness.lose_next_answer(engine):
            raised = engine.raise_fence(LINES.name, Fence(APP, 5))
        assert raised is not None
        assert raised.version == engine.version(LINES.name)
        assert len(harness.raw_rows(LINES.name)) == 1

    def test_a_merge_whose_answer_was_lost_is_found(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        merge = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"))
        with harness.lose_next_answer(engine):
            made = engine.merge(LINES.name, line("p", 1), merge, fences=[Fence(APP, 1)])
        assert made.replayed
        assert made.version == engine.version(LINES.name)
        assert len(harness.raw_rows(LINES.name)) == 1

    def test_what_cannot_be_read_back_is_unknown(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 0))
        with (
            harness.lose_next_answer(engine),
            harness.break_reading(engine),
            pytest.raises(CommitUnknownError) as caught,
        ):
            engine.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 1)], key={"attempt": "a"})
        assert caught.value.details["key"] == {"attempt": "a"}
        assert caught.value.details["table"] == LINES.name
        again = engine.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 1)], key={"attempt": "a"})
        assert again.replayed
        assert len(harness.raw_rows(LINES.name)) == 2

    def test_a_write_that_fails_is_an_error(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        harness.destroy(LINES.name)
        with pytest.raises(LaminarDeltaError):
            engine.append(LINES.name, line("p", 2), fences=[Fence(APP, 1)], key={"id": 2})
        with pytest.raises(LaminarDeltaError):
            engine.merge(LINES.name, line("p", 3), Merge(keys=("id",)))
