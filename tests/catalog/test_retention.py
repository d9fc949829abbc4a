"""Retention, time travel over the whole catalog, and the audit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import laminar_delta as ld
from laminar_delta.catalog.checkpoints import CheckpointHead
from laminar_delta.catalog.retention import RetentionPolicy, plan
from laminar_delta.catalog.standing import Standing
from laminar_delta.errors import ErrorCode, InvalidInputError, NotFoundError, SessionStateError


def _save(catalog: ld.Catalog, count: int) -> None:
    with catalog.writer("orders", owner="job-7") as writer:
        for _ in range(count):
            with writer.checkpoint() as cp:
                cp.source("kafka", {"0": str(cp.id)})


def _ids(catalog: ld.Catalog) -> list[int]:
    return [head.checkpoint_id for head in catalog.pipeline("orders").list()]


@pytest.mark.also_on_spark
def test_pruning_hides_and_restoring_brings_back(catalog: ld.Catalog) -> None:
    _save(catalog, 5)
    orders = catalog.pipeline("orders")
    orders.pin(2, reason="audit")
    policy = RetentionPolicy(keep_last=2)
    looked = orders.prune(policy, dry_run=True)
    assert looked.retire == (1, 3)
    assert [(kept.checkpoint_id, kept.reason) for kept in looked.keep] == [
        (2, "pinned"),
        (4, "one of the last 2"),
        (5, "the newest"),
    ]
    assert _ids(catalog) == [1, 2, 3, 4, 5]
    assert orders.prune(policy).retire == (1, 3)
    assert _ids(catalog) == [2, 4, 5]
    assert orders.prune(policy).retire == ()
    orders.restore(3, reason="mistake")
    orders.restore(3)
    assert _ids(catalog) == [2, 3, 4, 5]
    with pytest.raises(NotFoundError):
        orders.restore(9)
    report = orders.recover(dry_run=True)
    assert (report.chosen_id, report.examined) == (5, 4)


def test_the_newest_stays_whatever_the_policy(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    orders = catalog.pipeline("orders")
    assert orders.prune(RetentionPolicy(keep_last=0)).retire == (1,)
    assert _ids(catalog) == [2]
    assert orders.prune(RetentionPolicy(keep_for_ms=10**12)).retire == ()


def test_a_policy_without_a_rule_or_below_zero_is_refused() -> None:
    for rules in ({}, {"keep_last": -1}, {"keep_for_ms": -1}):
        with pytest.raises(InvalidInputError):
            RetentionPolicy(**rules)


@given(
    parents=st.lists(st.integers(0, 12), min_size=1, max_size=12),
    pinned=st.sets(st.integers(1, 12)),
    retired=st.sets(st.integers(1, 12)),
    keep=st.integers(0, 5),
)
def test_a_plan_never_takes_what_something_that_stays_needs(
    parents: list[int], pinned: set[int], retired: set[int], keep: int
) -> None:
    heads = [
        CheckpointHead(
            pipeline="p",
            checkpoint_id=number,
            epoch=number,
            timestamp_ms=number,
            attempt_id="a",
            generation=1,
            parent_id=parent if 0 < parent < number else None,
        )
        for number, parent in enumerate(parents, 1)
    ]
    seen = Standing(retired=frozenset(retired), pinned=frozenset(pinned))
    made = plan(heads, seen, RetentionPolicy(keep_last=keep), now_ms=0)
    visible = {head.checkpoint_id for head in heads} - retired
    kept = {k.checkpoint_id for k in made.keep}
    assert kept | set(made.retire) == visible
    assert not kept & set(made.retire)
    assert pinned & visible <= kept
    assert not visible or max(visible) in kept
    for head in heads:
        if head.checkpoint_id in kept:
            assert set(head.needs) & visible <= kept
    assert sorted(made.retire) == list(made.retire)


def test_what_was_derived_can_be_undone_after_pruning(catalog: ld.Catalog) -> None:
    _save(catalog, 3)
    orders = catalog.pipeline("orders")
    with catalog.writer("orders") as writer:
        assert writer.rewind(1, reason="back").checkpoint_id == 4
        made = orders.prune(RetentionPolicy(keep_last=1))
        assert made.retire == (1, 2)
        assert [(kept.checkpoint_id, kept.reason) for kept in made.keep] == [(3, "needed to undo 4"), (4, "the newest")]
        undone = writer.undo(reason="it was right")
        assert (undone.checkpoint_id, undone.from_id) == (5, 3)
        assert undone.manifest.source_offsets["kafka"].offsets == {"0": "3"}
        # What that was derived over is kept now, in its place.
        assert orders.prune(RetentionPolicy(keep_last=1)).retire == (3,)
        writer.checkpoint().commit()
    # Work was done since: there is nothing to undo.
    assert orders.prune(RetentionPolicy(keep_last=1)).retire == (4, 5)


@pytest.mark.also_on_spark
def test_the_whole_catalog_as_it_was(catalog: ld.Catalog) -> None:
    _save(catalog, 2)
    then = {entry.table: entry.version for entry in reversed(catalog.audit())}
    _save(catalog, 1)
    catalog.pipeline("orders").prune(RetentionPolicy(keep_last=1))
    assert _ids(catalog) == [3]
    was = catalog.as_of(versions=then)
    assert _ids(was) == [1, 2]
    latest = was.pipeline("orders").latest()
    assert latest is not None
    assert latest.source_offsets["kafka"].offsets == {"0": "2"}
    assert not was.pipeline("orders").recover().stored
    for write in (
        lambda: was.writer("orders"),
        lambda: was.pipeline("orders").prune(RetentionPolicy(keep_last=1)),
        lambda: was.pipeline("orders").pin(1, reason="no"),
    ):
        with pytest.raises(SessionStateError):
            write()


def test_a_time_before_the_catalog_is_gone(catalog: ld.Catalog) -> None:
    with pytest.raises(NotFoundError) as caught:
        catalog.as_of(timestamp_ms=1)
    assert caught.value.code is ErrorCode.VERSION_GONE
    with pytest.raises(InvalidInputError):
        catalog.as_of()
    newest = max(entry.timestamp_ms for entry in catalog.audit())
    assert catalog.as_of(timestamp_ms=newest + 1).pipelines() == []


@pytest.mark.parametrize(
    ("ms", "words"),
    [(604_800_000, "7 days"), (86_400_000, "1 day"), (5_400_000, "90 minutes"), (604_800_001, "604800001 ms")],
)
def test_a_plan_tells_an_age_as_people_do(ms: int, words: str) -> None:
    heads = [
        CheckpointHead(pipeline="p", checkpoint_id=number, epoch=1, timestamp_ms=1, attempt_id="a", generation=1)
        for number in (1, 2)
    ]
    found = plan(heads, Standing(), RetentionPolicy(keep_for_ms=ms), now_ms=2)
    assert found.keep[0].reason == f"younger than {words}"


def test_a_pin_says_why(catalog: ld.Catalog) -> None:
    _save(catalog, 1)
    with pytest.raises(InvalidInputError, match="a pin needs a reason"):
        catalog.pipeline("orders").pin(1, reason=" ")
    assert not catalog.pipeline("orders").standing().pinned


def test_the_limit_of_the_audit_is_for_all_tables_together(catalog: ld.Catalog) -> None:
    for number in (1, 2):
        _save(catalog, number)
    with catalog.writer("busy") as writer:
        for _ in range(4):
            with writer.checkpoint():
                pass
    for pipeline in (None, "orders"):
        everything = catalog.audit(pipeline=pipeline)
        assert len(everything) > 5
        assert catalog.audit(pipeline=pipeline, limit=5) == everything[:5]
    assert catalog.audit(limit=0) == []


@pytest.mark.also_on_spark
def test_the_audit_tells_who_did_what(catalog: ld.Catalog) -> None:
    _save(catalog, 1)
    catalog.pipeline("orders").pin(1, reason="audit", owner="ops")
    told = [(entry.table, entry.operation, entry.owner) for entry in catalog.audit(pipeline="orders")]
    assert set(told) >= {
        ("retention", "decide", "ops"),
        ("manifests", "save", "job-7"),
        ("manifests", "takeover", "job-7"),
        ("source_offsets", "stage", "job-7"),
        ("writers", "claim", "job-7"),
        ("writers", "release", "job-7"),
    }
    (save,) = [entry for entry in catalog.audit() if entry.operation == "save"]
    assert (save.pipeline, save.checkpoint_id, save.generation) == ("orders", 1, 1)
