"""Fences: a lower or equal version never commits, and whoever offered it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from laminar_delta.engine.predicate import col, target
from laminar_delta.engine.request import Fence, Merge
from laminar_delta.errors import ErrorCode, FencedError, InvalidInputError
from laminar_delta.testing.conformance.tables import LINES, line

if TYPE_CHECKING:
    from laminar_delta.testing.harness import EngineHarness

APP = "laminar:orders"


class Fences:
    """One winner, the loser told, an equal retry recognised."""

    def test_a_lower_or_equal_version_is_refused_and_leaves_nothing(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 10)], key={"attempt": "a"})
        version = engine.version(LINES.name)
        for offered in (10, 9, 0):
            with pytest.raises(FencedError) as caught:
                engine.append(LINES.name, line("p", 2, "b"), fences=[Fence(APP, offered)], key={"attempt": "b"})
            assert caught.value.expected == {APP: offered}
            assert caught.value.found == {APP: 10}
        assert engine.version(LINES.name) == version
        assert [row["attempt"] for row in harness.raw_rows(LINES.name)] == ["a"]

    def test_a_higher_version_commits_also_far_higher(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        for version in (0, 1, 2**32, 2**32 + 1, 2**62, 2**63 - 1):
            engine.append(LINES.name, line("p", version), fences=[Fence(APP, version)])
        assert len(harness.raw_rows(LINES.name)) == 6

    def test_the_fence_stands_for_every_engine_object(self, harness: EngineHarness) -> None:
        old, new = harness.open(), harness.open()
        old.create(LINES)
        old.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 1)], key={"attempt": "a"})
        new.raise_fence(LINES.name, Fence(APP, 2**32))
        with pytest.raises(FencedError):
            old.append(LINES.name, line("p", 2, "b"), fences=[Fence(APP, 2)], key={"attempt": "b"})
        new.append(LINES.name, line("p", 3, "c"), fences=[Fence(APP, 2**32 + 1)], key={"attempt": "c"})
        assert sorted(row["attempt"] for row in harness.raw_rows(LINES.name)) == ["a", "c"]

    def test_an_equal_retry_is_recognised_by_its_key(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        first = engine.append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 5)], key={"attempt": "a"})
        engine.append(LINES.name, line("q", 1))
        again = harness.open().append(LINES.name, line("p", 1, "a"), fences=[Fence(APP, 5)], key={"attempt": "a"})
        assert again.replayed
        assert not first.replayed
        assert again.version == first.version
        assert len(harness.raw_rows(LINES.name)) == 2

    def test_applications_and_unfenced_writes_do_not_disturb_each_other(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1), fences=[Fence("laminar:p", 9)])
        engine.append(LINES.name, line("q", 1), fences=[Fence("laminar:q", 1)])
        engine.append(LINES.name, line("r", 1))
        assert len(harness.raw_rows(LINES.name)) == 3

    def test_raising_a_fence_writes_no_row_and_can_be_repeated(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        made = engine.raise_fence(LINES.name, Fence(APP, 7), metadata={"operation": "takeover"})
        assert made is not None
        assert made.version == engine.version(LINES.name)
        assert engine.raise_fence(LINES.name, Fence(APP, 7)) is None
        assert harness.open().raise_fence(LINES.name, Fence(APP, 3)) is None
        assert engine.version(LINES.name) == made.version
        assert harness.raw_rows(LINES.name) == []
        with pytest.raises(FencedError):
            engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 7)])

    def test_a_merge_and_a_delete_are_fenced_too(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        by_id = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"))
        assert engine.merge(LINES.name, line("p", 1), by_id, fences=[Fence(APP, 4)]).inserted == 1
        with pytest.raises(FencedError):
            engine.merge(LINES.name, line("p", 2), by_id, fences=[Fence(APP, 4)])
        with pytest.raises(FencedError):
            engine.delete(LINES.name, col("id").eq(1), fences=[Fence(APP, 3)])
        assert [row["id"] for row in harness.raw_rows(LINES.name)] == [1]
        assert engine.delete(LINES.name, col("id").eq(1), fences=[Fence(APP, 5)]).deleted == 1
        with pytest.raises(FencedError):
            engine.append(LINES.name, line("p", 3), fences=[Fence(APP, 5)])
        assert harness.raw_rows(LINES.name) == []

    def test_a_write_without_effect_makes_no_version_and_moves_no_fence(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        engine.append(LINES.name, line("p", 1))
        version = engine.version(LINES.name)
        by_id = Merge(keys=("pipeline", "id"), scope=target("pipeline").eq("p"))
        merged = engine.merge(LINES.name, line("p", 1), by_id, fences=[Fence(APP, 4)])
        assert (merged.version, merged.inserted, merged.updated, merged.deleted) == (None, 0, 0, 0)
        deleted = engine.delete(LINES.name, col("id").eq(2), fences=[Fence(APP, 4)])
        assert (deleted.version, deleted.deleted) == (None, 0)
        assert engine.version(LINES.name) == version
        engine.append(LINES.name, line("p", 2), fences=[Fence(APP, 4)])

    def test_several_fences_commit_together_or_not_at_all(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        both = pa.concat_tables([line("p", 1), line("q", 1)])
        fences = [Fence("laminar:p", 1), Fence("laminar:q", 1)]
        if not engine.many_fences:
            with pytest.raises(InvalidInputError) as refused:
                engine.append(LINES.name, both, fences=fences)
            assert refused.value.code is ErrorCode.UNSUPPORTED
            assert harness.raw_rows(LINES.name) == []
            return
        engine.append(LINES.name, both, fences=fences)
        with pytest.raises(FencedError) as caught:
            engine.append(LINES.name, both, fences=[Fence("laminar:p", 2), Fence("laminar:q", 1)])
        assert caught.value.expected == {"laminar:q": 1}
        assert len(harness.raw_rows(LINES.name)) == 2
        engine.append(LINES.name, line("p", 2), fences=[Fence("laminar:p", 2)])

    def test_impossible_fences_are_refused(self, harness: EngineHarness) -> None:
        engine = harness.open()
        engine.create(LINES)
        with pytest.raises(InvalidInputError):
            Fence(APP, -1)
        with pytest.raises(InvalidInputError) as caught:
            Fence(APP, 2**63)
        assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
        with pytest.raises(InvalidInputError):
            engine.append(LINES.name, line("p", 1), fences=[Fence(APP, 1), Fence(APP, 2)])
        assert harness.raw_rows(LINES.name) == []
