"""Steps staged as rows by many tasks, committed by one session in one merge; and positions as they were."""

from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.tables import SESSION_STEPS, SOURCE_CHECKPOINTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import ConflictError, FencedError, InvalidInputError, SessionStateError
from tests.sessions.support import Opener, StoreOpener, at, commit_as_statement, commits


def test_a_table_is_staged_as_its_rows_say(store: ld.SourceCheckpointStore) -> None:
    rows = pa.table(
        {
            "source": ["a", "b", "a", "c", "c", "a", "c"],
            "sequence": [1, 2, 3, 4, 4, 2, 4],
            "position": [b"early", b"", None, None, b"same", b"late", b"name"],
        }
    )
    with store.session() as s:
        assert s.stage_table(rows) == 7
        # The highest sequence counts, then the highest position, in whatever order they come.
        assert s.read_all() == {"a": at(3), "b": at(2, b""), "c": at(4, b"same")}
    assert store.read_all_checkpoints() == {"a": at(3), "b": at(2, b""), "c": at(4, b"same")}


def test_every_kind_of_step_can_be_staged_as_a_row(store: ld.SourceCheckpointStore) -> None:
    with store.session() as s:
        s.stage("gone", 1, b"x")
        s.write_result_sequence("gone", 1)
        s.write_result_sequence("q", 50)
    with store.session() as s:
        s.stage_table(
            [
                {"kind": "result", "source": "q", "sequence": 7},
                {"kind": "result", "source": "q", "sequence": 6},
                {"kind": "config", "config_hash": 2**64 - 1},
                {"kind": "clear"},
                {"source": "kafka", "sequence": 3, "position": b"y"},
            ]
        )
    assert store.read_all_checkpoints() == {"kafka": at(3, b"y")}
    assert store.read_config_hash() == 2**64 - 1
    assert (store.read_result_sequence("q"), store.read_result_sequence("gone")) == (7, None)
    with store.session() as s:
        s.stage_table([{"kind": "result", "source": "q", "sequence": 2}])
    assert store.read_result_sequence("q") == 7


@pytest.mark.parametrize(
    "row",
    [
        {"source": "kafka"},
        {"sequence": 1},
        {"source": "", "sequence": 1},
        {"source": "kafka", "sequence": -1},
        {"source": "kafka", "sequence": 1, "position": b"x" * 65_537},
        {"source": "kafka", "sequence": 1, "offset": 3},
        {"source": "kafka", "sequence": "many"},
        {"source": "kafka", "sequence": 1, "position": "text"},
        {"kind": "result", "source": "q"},
        {"kind": "config"},
        {"kind": "config", "config_hash": 2**64},
        {"kind": "head"},
    ],
)
def test_rows_that_are_no_steps_are_refused_whole(row: dict[str, object], store: ld.SourceCheckpointStore) -> None:
    s = store.session()
    s.stage("before", 1)
    good = {"source": "good", "sequence": 1}
    for _ in range(2):
        with pytest.raises(InvalidInputError):
            s.stage_table([good, row])
        with pytest.raises(InvalidInputError):
            store.stage_steps(s.token, [good, row])
    assert s.take_steps() == 0
    assert s.read_all() == {"before": at(1)}
    s.rollback()


def test_tasks_stage_for_a_session_and_one_merge_commits_it(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    begun = store.session()
    token = begun.token

    def task(number: int) -> None:
        # A store of its own, as in another process; and twice, as a task that is repeated does.
        for _ in range(2):
            open_store(owner=f"task {number}").stage_steps(
                token, [{"source": f"partition {number}", "sequence": number, "position": bytes([number])}]
            )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(task, range(4)))
    assert store.read_all_checkpoints() == {}
    before = commits(catalog)
    with open_store(generation=token.generation).session(token) as s:
        assert s.take_steps() == 8
    assert commits(catalog) == before + 1
    expected = {f"partition {number}": at(number, bytes([number])) for number in range(4)}
    assert store.read_all_checkpoints() == expected
    # A part that arrives late belongs to nothing any more.
    store.stage_steps(token, [{"source": "late", "sequence": 1}])
    late = open_store(generation=token.generation).session(token)
    late.take_steps()
    with pytest.raises(ConflictError, match="committed with other steps"):
        late.commit()
    assert store.read_all_checkpoints() == expected


def test_a_staged_session_that_lost_is_told_and_can_be_tried_again(
    store: ld.SourceCheckpointStore, open_store: StoreOpener
) -> None:
    begun = store.session()
    store.stage_steps(begun.token, [{"source": "staged", "sequence": 1}])
    begun.rollback()
    store.stage_checkpoint("other", 1)
    s = open_store(generation=store.take_generation()).session(begun.token)
    s.take_steps()
    with pytest.raises(ConflictError):
        s.commit()
    s.retry()
    assert store.read_all_checkpoints() == {"staged": at(1), "other": at(1)}


def test_steps_that_no_session_takes_any_more_are_removed(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    def staged() -> set[str]:
        rows = catalog.engine.read(SESSION_STEPS.name, where=col("pipeline").eq(pipeline)).to_pylist()
        return {row["source"] for row in rows}

    committed = store.session()
    store.stage_steps(committed.token, [{"source": "committed", "sequence": 1}])
    committed.take_steps()
    committed.commit()
    open_one = store.session()
    store.stage_steps(open_one.token, [{"source": "open", "sequence": 1}, {"source": "open too", "sequence": 1}])
    assert store.remove_steps() == 1
    assert staged() == {"open", "open too"}
    successor = open_store()
    assert successor.remove_steps() == 2
    assert successor.remove_steps() == 0
    assert staged() == set()
    with pytest.raises(FencedError):
        open_one.take_steps()


def test_maintenance_removes_steps_of_sessions_that_ended(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    def removed(*, dry_run: bool = False) -> int:
        return catalog.maintain(ld.MaintenancePolicy(vacuum=False), dry_run=dry_run).steps.get(pipeline, 0)

    with store.session() as done:
        store.stage_steps(done.token, [{"source": "done", "sequence": 1}])
        done.take_steps()
    waiting = store.session().token
    store.stage_steps(waiting, [{"source": "waiting", "sequence": 1}, {"source": "waiting too", "sequence": 1}])
    assert removed(dry_run=True) == 1
    assert removed() == 1
    assert removed() == 0, "what is staged for a session that may still commit stays"
    open_store().stage_checkpoint("kafka", 1)
    assert removed() == 2, "fenced off: it never commits"


def test_steps_of_a_statement_that_says_nothing_of_itself_are_removed_too(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    """Without the label the rows alone tell that it is committed, also when another session came after it."""
    token = store.session().token
    store.stage_steps(token, [{"source": "kafka", "sequence": 1}])
    assert store.remove_steps() == 0
    commit_as_statement(catalog, pipeline, token.session_id)
    store.stage_checkpoint("files", 1)
    assert store.remove_steps() == 1


def test_a_step_that_does_not_say_whose_it_is_stops_no_maintenance(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    """Whoever can append to the table can leave out a column."""

    def append(**values: object) -> None:
        row = {"pipeline": pipeline, "session_id": session.id, "generation": 1, "source": "kafka", "sequence": 1}
        table = pa.Table.from_pylist([{**row, **values}], schema=SESSION_STEPS.schema)
        catalog.engine.append(SESSION_STEPS.name, table)

    session = store.session()
    append()
    append(generation=None, source="files")
    append(session_id=None)
    append(pipeline=None)
    report = catalog.maintain(ld.MaintenancePolicy(vacuum=False))
    assert report.steps[pipeline] == 1
    assert pipeline not in report.put_off
    # What says its session is committed with it, and goes with it.
    session.take_steps()
    session.commit()
    assert store.read_all_checkpoints() == {"kafka": at(1), "files": at(1)}
    assert catalog.maintain(ld.MaintenancePolicy(vacuum=False)).steps[pipeline] == 2


def test_a_pipeline_that_has_lost_positions_does_not_stop_maintenance_of_the_others(
    store: ld.SourceCheckpointStore, open_again: Opener, pipeline: str
) -> None:
    catalog = open_again()
    other = ld.SourceCheckpointStore(catalog, f"{pipeline} whole")
    for one in (store, other):
        with one.session() as session:
            one.stage_steps(session.token, [{"source": "kafka", "sequence": 1}])
            session.take_steps()
    version = commits(catalog)
    head = col("pipeline").eq(pipeline) & col("kind").eq("head")
    catalog.engine.delete(SOURCE_CHECKPOINTS.name, head)
    report = catalog.maintain(ld.MaintenancePolicy(vacuum=False, compact_after=1))
    assert report.steps == {f"{pipeline} whole": 1}
    assert "0 head rows" in report.put_off[pipeline]
    assert report.compacted
    catalog.engine.restore(SOURCE_CHECKPOINTS.name, version)
    assert catalog.maintain(ld.MaintenancePolicy(vacuum=False)).steps == {pipeline: 1}


def test_positions_as_they_were_at_any_time(
    store: ld.SourceCheckpointStore, catalog: ld.Catalog, pipeline: str
) -> None:
    versions = [store.stage_checkpoint("kafka", number, bytes([number])).version for number in range(1, 4)]
    store.clear_checkpoints()
    for number, version in enumerate(versions, 1):
        assert version is not None
        then = ld.SourceCheckpointStore(catalog.as_of(versions={SOURCE_CHECKPOINTS.name: version}), pipeline)
        assert then.read_all_checkpoints() == {"kafka": at(number, bytes([number]))}
    # Of commits in the same millisecond the last one was.
    records = store.history()
    by_time = {record.timestamp_ms: record.version for record in reversed(records)}
    expected = {version: {"kafka": at(number, bytes([number]))} for number, version in enumerate(versions, 1)}
    for timestamp_ms, version in by_time.items():
        at_that_time = ld.SourceCheckpointStore(catalog.as_of(timestamp_ms=timestamp_ms), pipeline)
        assert at_that_time.read_all_checkpoints() == expected.get(version, {})
    assert len(records) == 4
    with pytest.raises(SessionStateError, match="as it was"):
        at_that_time.stage_checkpoint("kafka", 9)


def test_history_tells_session_sources_and_owner(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog
) -> None:
    with store.session() as few:
        few.stage("kafka", 1)
        few.stage("files", 1)
        few.write_config_hash(5)
    with store.session() as many:
        for number in range(21):
            many.stage(f"source {number}", number)
    open_store(owner="successor").clear_checkpoints()
    cleared, second, first = store.history()
    assert (first.session_id, first.owner, first.generation, first.ordinal) == (few.id, "job", 1, 1)
    assert (first.sources, first.names, first.cleared) == (2, ("files", "kafka"), False)
    assert (second.session_id, second.sources, second.names) == (many.id, 21, None)
    assert (cleared.owner, cleared.generation, cleared.cleared) == ("successor", 2, True)
    entry = catalog.engine.history(SOURCE_CHECKPOINTS.name, limit=1)[0]
    assert entry.operation == "MERGE"
    assert entry.metadata["operation"] == "session"


def test_history_takes_what_statements_say_of_themselves_for_what_it_is(
    store: ld.SourceCheckpointStore, open_store: StoreOpener, catalog: ld.Catalog, pipeline: str
) -> None:
    token = store.session().token
    label = {"operation": "session", "pipeline": pipeline}
    odd = {"generation": "7", "ordinal": [], "owner": 7, "sources": True, "names": "kafka", "cleared": "no"}
    statements: list[dict[str, object]] = [
        {
            **label,
            "session": "whole",
            "generation": 1,
            "ordinal": 1,
            "owner": "notebook",
            "sources": 1,
            "names": ["kafka"],
        },
        {**label, "session": "short"},
        {**label, "session": "odd", **odd},
        {**label, "session": 5},
        {**label},
        {"pipeline": [], "session": {}},
    ]
    for said in statements:
        commit_as_statement(catalog, pipeline, str(said.get("session")), said)
    odd_one, short, whole = store.history()
    assert (whole.session_id, whole.generation, whole.ordinal, whole.owner) == ("whole", 1, 1, "notebook")
    assert (whole.sources, whole.names, whole.cleared) == (1, ("kafka",), False)
    for record, name in ((short, "short"), (odd_one, "odd")):
        assert (record.session_id, record.names, record.cleared) == (name, None, False)
        assert (record.generation, record.ordinal, record.owner, record.sources) == (None, None, None, None)
    # And nobody who looks for a commit is misled.
    late = open_store(generation=token.generation).session(token)
    late.stage("files", 1)
    with pytest.raises(ConflictError, match="commit 6 came first"):
        late.commit()
    late.retry()
    assert store.read_all_checkpoints() == {"kafka": at(6), "files": at(1)}
