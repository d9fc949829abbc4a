"""Group commit: many pipelines, few commits, each told its own."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.group import Save
from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.state.applying import AppliedDelta
from laminar_delta.catalog.state.policy import StatePolicy
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.engine.request import Stamp
from laminar_delta.errors import (
    CommitUnknownError,
    ConflictError,
    FencedError,
    InvalidInputError,
    SessionStateError,
    StorageError,
)
from laminar_delta.model.manifest import CheckpointManifest, ConnectorCheckpoint
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.faults import (
    INTERRUPTS,
    failing_appends,
    interrupted_appends,
    unheard_appends,
    unreadable_after_appends,
)


def _manifest(number: int, offset: str) -> CheckpointManifest:
    return CheckpointManifest(
        version=1,
        checkpoint_id=number,
        epoch=number,
        timestamp_ms=1_700_000_000_000,
        source_offsets={"kafka": ConnectorCheckpoint(offsets={"0": offset}, epoch=number)},
    )


def _versions(catalog: ld.Catalog) -> list[int]:
    return [catalog.engine.version(name) for name in (SOURCE_OFFSETS.name, OPERATOR_SNAPSHOTS.name, MANIFESTS.name)]


def test_a_group_saves_all_in_the_commits_of_one(catalog: ld.Catalog) -> None:
    writers = [catalog.writer(f"p{number}") for number in range(4)]
    before = _versions(catalog)
    saves = [
        Save(writer, _manifest(1, str(number)), {("agg", 0): bytes([number]) * 30_000} if number % 2 else None)
        for number, writer in enumerate(writers)
    ]
    answers = catalog.save_together(saves)
    assert all(isinstance(answer, Saved) and not answer.replayed for answer in answers)
    made = [after - was for was, after in zip(before, _versions(catalog), strict=True)]
    assert made == ([1, 1, 1] if catalog.engine.many_fences else [4, 2, 4])
    for number in range(4):
        pipeline = catalog.pipeline(f"p{number}")
        latest = pipeline.latest()
        assert latest is not None
        assert latest.source_offsets["kafka"].offsets == {"0": str(number)}
        assert pipeline.validate(1).valid
        if number % 2:
            assert pipeline.state(1).read("agg") == bytes([number]) * 30_000
    # Healing and the audit find each in the shared commit.
    catalog.engine.delete(MANIFESTS.name, col("pipeline").eq("p2"))
    assert catalog.pipeline("p2").recover(dry_run=True).chosen_id == 1
    assert [entry.checkpoint_id for entry in catalog.audit(pipeline="p3") if entry.operation == "save"] == [1]
    again = catalog.save_together([replace(saves[0], writer=writers[0]), Save(writers[1], _manifest(1, "9"))])
    assert isinstance(again[0], Saved)
    assert again[0].replayed
    assert isinstance(again[1], ConflictError)


def test_each_of_a_group_stores_state_by_its_own_policy(catalog: ld.Catalog) -> None:
    policies = {"coarse": StatePolicy(block_bytes=8192), "fine": StatePolicy(block_bytes=1024, part_bytes=4096)}
    writers = {name: catalog.writer(name, state_policy=policy) for name, policy in policies.items()}
    state = bytes(range(256)) * 200
    for number, content in ((1, state), (2, b"!" + state[1:])):
        saves = [Save(writer, _manifest(number, "0"), {("agg", 0): content}) for writer in writers.values()]
        assert all(isinstance(answer, Saved) for answer in catalog.save_together(saves))
    for name, policy in policies.items():
        found = catalog.pipeline(name).state(2)
        (layout,) = found.layouts()
        assert layout.block_bytes == policy.block_bytes
        assert layout.needs == {1, 2}
        assert found.read("agg") == b"!" + state[1:]


@pytest.mark.also_on_spark
def test_who_was_taken_over_is_told_and_the_rest_commit(catalog: ld.Catalog) -> None:
    writers = [catalog.writer(f"p{number}", owner="old") for number in range(3)]
    successor = catalog.writer("p1", owner="new")
    answers = catalog.save_together([Save(writer, _manifest(1, "a")) for writer in writers])
    assert isinstance(answers[0], Saved)
    assert isinstance(answers[1], FencedError)
    assert (answers[1].expected, answers[1].found) == (1, 2)
    assert isinstance(answers[2], Saved)
    assert catalog.pipeline("p1").latest() is None
    assert len(catalog.pipeline("p1").remove_orphans()) == 1
    successor.save(_manifest(1, "b"))


@pytest.mark.parametrize("error", INTERRUPTS)
@pytest.mark.parametrize("engine", QUICK_ENGINES)
def test_an_interrupt_around_the_shared_commit_is_neither_success_nor_failure(
    engine: str, error: type[BaseException], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    writers = [catalog.writer(f"p{number}") for number in range(2)]
    saves = [Save(writer, _manifest(1, "a")) for writer in writers]
    with interrupted_appends(catalog.engine, MANIFESTS.name, error), pytest.raises(error):
        catalog.save_together(saves)
    assert [writer.aborted for writer in writers] == [frozenset(), frozenset()]
    others = catalog.save_together([Save(writer, _manifest(1, "b")) for writer in writers])
    assert [type(answer) for answer in others] == [ConflictError, ConflictError]
    assert all(isinstance(answer, Saved) and answer.replayed for answer in catalog.save_together(saves))
    assert catalog.engine.read(MANIFESTS.name).num_rows == 2


@pytest.mark.parametrize("engine", QUICK_ENGINES)
def test_a_lost_answer_is_in_doubt_for_all_until_settled(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    writers = [catalog.writer(f"p{number}") for number in range(2)]
    saves = [Save(writer, _manifest(1, "a")) for writer in writers]
    with unheard_appends(catalog.engine, MANIFESTS.name):
        answers = catalog.save_together(saves)
    assert [type(answer).__name__ for answer in answers] == ["CommitUnknownError"] * 2
    assert all(isinstance(answer, Saved) and answer.replayed for answer in catalog.save_together(saves))
    with failing_appends(catalog.engine, SOURCE_OFFSETS.name), pytest.raises(StorageError):
        catalog.save_together([Save(writer, _manifest(2, "a")) for writer in writers])
    assert [len(writer.aborted) for writer in writers] == [1, 1]
    assert all(isinstance(a, Saved) for a in catalog.save_together([Save(w, _manifest(2, "a")) for w in writers]))


def test_a_group_is_of_one_catalog_and_each_pipeline_once(catalog: ld.Catalog) -> None:
    writer = catalog.writer("p")
    with pytest.raises(InvalidInputError, match="more than once"):
        catalog.save_together([Save(writer, _manifest(1, "a")), Save(writer, _manifest(2, "a"))])
    other = ld.open_catalog("elsewhere", engine="memory")
    with pytest.raises(InvalidInputError, match="one catalog"):
        catalog.save_together([Save(other.writer("p"), _manifest(1, "a"))])
    assert catalog.save_together([]) == []


@pytest.mark.parametrize("name", QUICK_ENGINES)
def test_where_an_engine_has_one_fence_each_is_told_its_own_whatever_it_is(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made(name, tmp_path / "catalog", request)()
    saves = [Save(catalog.writer(f"p{number}"), _manifest(1, str(number))) for number in range(3)]
    real = catalog.engine._append

    def full_for_one(table: str, rows: pa.Table, made: Stamp) -> int:
        if table == MANIFESTS.name and rows.column("pipeline").to_pylist() == ["p1"]:
            raise StorageError("no space left")
        return real(table, rows, made)

    with (
        patch.object(type(catalog.engine), "many_fences", False),
        patch.object(catalog.engine, "_append", full_for_one),
    ):
        answers = catalog.save_together(saves)
    assert [type(answer) for answer in answers] == [Saved, StorageError, Saved]
    assert [len(catalog.pipeline(f"p{number}").list()) for number in range(3)] == [1, 0, 1]


@pytest.mark.parametrize("together", [True, False], ids=["many-fences", "one-fence"])
@pytest.mark.parametrize(
    "number", ["checkpoint_id", "epoch", "timestamp_ms", "parent_id", "sink_epochs", "source_offsets"]
)
def test_a_number_that_is_too_large_refuses_the_group_before_anything_is_begun(
    number: str, together: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made("memory", tmp_path / "catalog", request)()
    writers = [catalog.writer(f"p{count}") for count in range(2)]
    wrong: object = {"sink_epochs": {"warehouse": 2**63}}.get(number, 2**63)
    if number == "source_offsets":
        wrong = {"kafka": ConnectorCheckpoint(offsets={"0": "1"}, epoch=2**63)}
    manifests = [_manifest(1, "0"), replace(_manifest(1, "1"), **{number: wrong})]  # type: ignore[arg-type]
    before = _versions(catalog)
    with (
        patch.object(type(catalog.engine), "many_fences", together),
        pytest.raises(InvalidInputError, match="expected an integer from 0 to 9223372036854775807"),
    ):
        catalog.save_together([Save(writer, manifest) for writer, manifest in zip(writers, manifests, strict=True)])
    assert _versions(catalog) == before
    # And nobody's id is taken.
    assert [writer.next_id for writer in writers] == [1, 1]


@pytest.mark.parametrize("together", [True, False], ids=["many-fences", "one-fence"])
def test_who_of_a_group_cannot_begin_is_told_and_the_rest_commit(
    together: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    catalog = ready_made("memory", tmp_path / "catalog", request)()
    saves = [Save(catalog.writer(f"p{number}"), _manifest(1, str(number))) for number in range(3)]
    saves[1].writer.close()
    with patch.object(type(catalog.engine), "many_fences", together):
        answers = catalog.save_together(saves)
    assert [type(answer) for answer in answers] == [Saved, SessionStateError, Saved]
    assert [len(catalog.pipeline(f"p{number}").list()) for number in range(3)] == [1, 0, 1]


def _appended(number: int, delta: bytes, writer: Writer) -> Save:
    return Save(writer, _manifest(number, "0"), {("op", 0): AppliedDelta(delta, "append")})


@pytest.mark.parametrize("engine", QUICK_ENGINES)
@pytest.mark.parametrize("error", [StorageError, KeyboardInterrupt])
def test_who_of_a_group_cannot_be_looked_after_puts_none_of_the_others_upon_a_wrong_state(
    error: type[BaseException], engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    catalog = ready_made(engine, tmp_path / "catalog", request)()
    one, other = catalog.writer("one"), catalog.writer("other")
    catalog.save_together([Save(writer, _manifest(1, "0"), {("op", 0): b"1"}) for writer in (one, other)])
    saves = [_appended(2, b"+2", one), _appended(2, b"+2", other)]
    with unreadable_after_appends(catalog.engine, MANIFESTS.name, times=1, error=error):
        if error is StorageError:
            told, answer = catalog.save_together(saves)
            assert isinstance(told, CommitUnknownError)
            assert isinstance(answer, Saved)
        else:
            with pytest.raises(KeyboardInterrupt):
                catalog.save_together(saves)
    assert [len(catalog.pipeline(name).list()) for name in ("one", "other")] == [2, 2]
    assert all(isinstance(answer, Saved) and answer.replayed for answer in catalog.save_together(saves))
    catalog.save_together([_appended(3, b"+3", one), _appended(3, b"+3", other)])
    assert [catalog.pipeline(name).state(3).read("op") for name in ("one", "other")] == [b"1+2+3"] * 2
    assert [writer.aborted for writer in (one, other)] == [frozenset()] * 2


@pytest.mark.parametrize("together", [True, False], ids=["many-fences", "one-fence"])
def test_a_delta_of_one_that_stands_upon_nothing_is_told_and_the_rest_commit(
    together: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ld.register_apply("append", lambda state, delta: state + delta)
    catalog = ready_made("memory", tmp_path / "catalog", request)()
    writers = [catalog.writer(f"p{number}") for number in range(4)]
    for number, writer in enumerate(writers[1:3]):
        # The last of them at an id above the one that follows, the other with a builder that another save overtakes.
        writer.save(_manifest(1 + 4 * number, "0"), {("op", 0): b"1"})
    overtaken = writers[1].checkpoint(checkpoint_id=9)
    overtaken.state_delta("op", b"+2", apply="append")
    writers[1].save(_manifest(2, "0"), {("op", 0): b"2"})
    saves = [
        _appended(3, b"+3", writers[0]),
        Save(writers[1], _manifest(9, "0"), overtaken._state),
        _appended(3, b"+3", writers[2]),
        Save(writers[3], _manifest(3, "0")),
    ]
    with patch.object(type(catalog.engine), "many_fences", together):
        answers = catalog.save_together(saves)
    assert [type(answer) for answer in answers] == [InvalidInputError, ConflictError, ConflictError, Saved]
    assert [[head.checkpoint_id for head in catalog.pipeline(w.pipeline).list()] for w in writers] == [
        [],
        [1, 2],
        [5],
        [3],
    ]
