"""The named races of recovery and retention: late words of a zombie, pins, prunes, and saves that come to need what is going."""

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import laminar_delta as ld
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS, RETENTION, SINK_STATUSES, WRITERS
from laminar_delta.catalog.writer import Writer
from laminar_delta.errors import ConflictError, FencedError, NotFoundError
from laminar_delta.model import CheckpointManifest, SinkCommitStatus
from tests.support.catalogs import QUICK_ENGINES, ready_made
from tests.support.stepping import STEPS, count_steps, stopped

Opener = Callable[[], ld.Catalog]

KEEP_ONE = RetentionPolicy(keep_last=1)
AT_ONCE = MaintenancePolicy(grace=dt.timedelta(0), vacuum=False)
STATE = {("agg", 0): b"state"}


@pytest.fixture(params=QUICK_ENGINES)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    return ready_made(request.param, tmp_path / "catalog", request)


def _save(writer: Writer, *, parent: int | None = None, sink: bool = False) -> int:
    number = writer.next_id
    manifest = CheckpointManifest.new(number, number, 1)
    if parent is not None:
        manifest = replace(manifest, parent_id=parent, is_incremental=True)
    if sink:
        manifest = replace(
            manifest, sink_epochs={"warehouse": number}, sink_commit_statuses={"warehouse": SinkCommitStatus.pending()}
        )
    writer.save(manifest, STATE)
    return number


def _ids(open_again: Opener, pipeline: str = "orders") -> list[int]:
    return [head.checkpoint_id for head in open_again().pipeline(pipeline).list()]


# -- late words of a zombie -----------------------------------------------------------------------------------------------


def test_late_status_of_an_abandoned_checkpoint(open_again: Opener) -> None:
    """At whatever step of its status update a zombie is overtaken: what its successor passed over stays passed over."""
    rehearsal = open_again().writer("orders")
    steps = count_steps(lambda: rehearsal.sink_committed(_save(rehearsal, sink=True), "warehouse"), rehearsal.engine)
    for step in range(1, steps + 1):
        old = open_again().writer("orders", owner="old")
        old.sink_committed(first := _save(old, sink=True), "warehouse")
        number = _save(old, sink=True)

        def report(writer: Writer = old, number: int = number) -> None:
            writer.sink_committed(number, "warehouse")

        if step > count_steps(lambda n=first, w=old: w.sink_committed(n, "warehouse"), old.engine):  # type: ignore[misc]
            break
        with stopped(report, old.engine, *STEPS, nth=step) as zombie:
            new = open_again().writer("orders", owner="new")
            assert new.recover().chosen_id == first
        try:
            zombie.result()
        except FencedError:
            told = True
        else:
            told = False
        again = new.recover()
        assert (again.chosen_id, again.skipped[0].checkpoint_id) == (first, number)
        assert again.skipped[0].reason.startswith("abandoned")
        assert open_again().pipeline("orders").recover(dry_run=True).chosen_id == first
        landed = open_again().pipeline("orders").get(number).sink_commit_statuses["warehouse"].is_committed
        assert told != landed


def test_late_status_before_its_append(open_again: Opener) -> None:
    """The one step that matters, by name: the zombie has looked who holds the pipeline, and then appends."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(_save(old, sink=True), "warehouse")
    _save(old, sink=True)
    with stopped(
        lambda: old.sink_committed(2, "warehouse"), old.engine, "_append", table=SINK_STATUSES.name
    ) as zombie:
        new = open_again().writer("orders", owner="new")
        assert new.recover().chosen_id == 1
    zombie.result()
    assert open_again().pipeline("orders").get(2).sink_commit_statuses["warehouse"].is_committed
    assert new.recover().chosen_id == 1
    assert open_again().writer("orders").recover().chosen_id == 1


def test_zombies_abandon_against_the_successors_choice(open_again: Opener) -> None:
    """At whatever step of a zombie's recovery its successor chooses: what the successor chose is never abandoned under it."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(_save(old, sink=True), "warehouse")
    steps = count_steps(old.recover, old.engine) + 2
    reached = 0
    for step in range(1, steps + 1):
        old = open_again().writer("orders", owner="old")
        number = _save(old, sink=True)
        try:
            with stopped(old.recover, old.engine, *STEPS, nth=step) as zombie:
                new = open_again().writer("orders", owner="new")
                # The successor asks the sink, which has it, and goes on from there.
                new.sink_committed(number, "warehouse")
                assert new.recover().chosen_id == number
            with pytest.raises(FencedError):
                zombie.result()
        except AssertionError as error:
            if "without coming to its gate" not in str(error):
                raise
            break
        reached = step
        assert new.recover().chosen_id == number
        assert open_again().pipeline("orders").recover(dry_run=True).chosen_id == number
        assert open_again().writer("orders").recover().chosen_id == number
    assert reached > 5


def test_zombies_abandon_before_its_append(open_again: Opener) -> None:
    """The one step that matters, by name: the zombie has looked who holds the pipeline, and then abandons."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(_save(old, sink=True), "warehouse")
    _save(old, sink=True)
    with stopped(old.recover, old.engine, "_append", table=RETENTION.name) as zombie:
        new = open_again().writer("orders", owner="new")
        new.sink_committed(2, "warehouse")
        assert new.recover().chosen_id == 2
    with pytest.raises(FencedError):
        zombie.result()
    assert open_again().writer("orders").recover().chosen_id == 2


def test_zombies_abandon_lands_while_the_successor_chooses(open_again: Opener) -> None:
    """The other way round: the successor has walked; before its choice is recorded the zombie's abandonment arrives."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(_save(old, sink=True), "warehouse")
    _save(old, sink=True)
    with stopped(old.recover, old.engine, "_append", table=RETENTION.name) as zombie:
        new = open_again().writer("orders", owner="new")
        new.sink_committed(2, "warehouse")
        chosen = stopped(new.recover, new.engine, "_append", table=RETENTION.name)
        successor = chosen.__enter__()
    zombie_told = pytest.raises(FencedError) if zombie._error is not None else None
    chosen.__exit__(None, None, None)
    if zombie_told is not None:
        with zombie_told:
            zombie.result()
    # Whichever came first, the successor goes on from what everybody after it will find.
    assert successor.result().chosen_id == open_again().pipeline("orders").recover(dry_run=True).chosen_id
    assert open_again().writer("orders").recover().chosen_id == successor.result().chosen_id


# -- pins -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [MANIFESTS.name, RETENTION.name])
def test_pin_against_prune(open_again: Opener, table: str) -> None:
    """A prune comes between a pin's look and its decision: the pin is refused, never told and void."""
    writer = open_again().writer("orders")
    for _ in range(3):
        _save(writer)
    catalog = open_again()
    call = "_append" if table == RETENTION.name else "scan"
    with stopped(
        lambda: catalog.pipeline("orders").pin(1, reason="audit"), catalog.engine, call, table=table
    ) as pinning:
        assert open_again().pipeline("orders").prune(KEEP_ONE).retire == (1, 2)
    with pytest.raises(ConflictError):
        pinning.result()
    assert _ids(open_again) == [3]
    open_again().pipeline("orders").restore(1)
    open_again().pipeline("orders").pin(1, reason="audit")
    assert 1 not in open_again().pipeline("orders").prune(KEEP_ONE).retire


def test_prune_against_pin(open_again: Opener) -> None:
    """At whatever step of a prune the pin comes: it is refused because the prune was first, or it keeps its checkpoint."""
    writer = open_again().writer("orders")
    catalog = open_again()
    for _ in range(3):
        _save(writer)
    steps = count_steps(lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine)
    for step in range(1, steps + 1):
        number = _save(writer)
        _save(writer)
        with stopped(lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine, *STEPS, nth=step) as pruning:
            try:
                open_again().pipeline("orders").pin(number, reason="audit")
                pinned = True
            except ConflictError:
                pinned = False
        assert (number in pruning.result().retire) != pinned
        assert (number in _ids(open_again)) == pinned
        if pinned:
            open_again().pipeline("orders").unpin(number)


# -- coming to need what is going -----------------------------------------------------------------------------------------


def _needing(how: str, writer: Writer, forked: Writer) -> Callable[[], object]:
    """Something that comes to need checkpoint 1."""
    if how == "delta save":
        return lambda: _save(writer, parent=1)
    if how == "rewind":
        return lambda: writer.rewind(1, reason="back")
    if how == "fork":
        return lambda: forked.fork("orders", 1, reason="try")
    return lambda: writer.edit_offsets({}, reason="skip", checkpoint_id=1)


NEEDING = ["delta save", "rewind", "fork", "edit"]


def _begin(open_again: Opener) -> tuple[Writer, Writer]:
    writer, forked = open_again().writer("orders"), open_again().writer("returns")
    for _ in range(3):
        _save(writer)
    return writer, forked


def _kept(open_again: Opener, how: str) -> None:
    """What came to need checkpoint 1 is there and whole, and so is checkpoint 1, also after maintenance."""
    pipeline = open_again().pipeline("returns" if how == "fork" else "orders")
    newest = pipeline.list()[-1].checkpoint_id
    assert 1 in _ids(open_again)
    open_again().maintain(AT_ONCE)
    assert pipeline.validate(newest).valid
    assert pipeline.state(newest).read("agg") == b"state"
    assert open_again().pipeline("orders").validate(1).valid
    assert 1 not in open_again().pipeline("orders").prune(KEEP_ONE).retire


@pytest.mark.parametrize("how", NEEDING)
def test_save_or_derive_against_prune(open_again: Opener, how: str) -> None:
    """It has everything staged, a prune retires what it needs, it commits: what it needs is there again."""
    writer, forked = _begin(open_again)
    saver = forked if how == "fork" else writer
    with stopped(_needing(how, writer, forked), saver.engine, "_append", table=MANIFESTS.name) as needing:
        assert 1 in open_again().pipeline("orders").prune(KEEP_ONE).retire
    needing.result()
    _kept(open_again, how)


@pytest.mark.parametrize("how", NEEDING)
def test_prune_against_save_or_derive(open_again: Opener, how: str) -> None:
    """A prune has planned, something that needs what it retires commits, the prune goes on: what is needed is there again."""
    writer, forked = _begin(open_again)
    catalog = open_again()
    with stopped(
        lambda: catalog.pipeline("orders").prune(KEEP_ONE), catalog.engine, "_append", table=RETENTION.name
    ) as pruning:
        _needing(how, writer, forked)()
    assert 1 not in pruning.result().retire
    _kept(open_again, how)


@pytest.mark.parametrize("how", NEEDING)
@pytest.mark.parametrize("engine", ["memory"])
def test_prune_at_any_step_of_a_save_or_derive(
    engine: str, how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Wherever it comes in: what was answered with success is whole, and so is what it needs."""
    step, ended = 0, False
    while not ended:
        step += 1
        opener = ready_made(engine, tmp_path / str(step), request)
        writer, forked = _begin(opener)
        saver = forked if how == "fork" else writer
        before = len(_ids(opener)) + len(_ids(opener, "returns"))
        try:
            with stopped(_needing(how, writer, forked), saver.engine, *STEPS, nth=step) as needing:
                opener().pipeline("orders").prune(KEEP_ONE)
        except AssertionError as error:
            if "without coming to its gate" not in str(error):
                raise
            ended = True
            continue
        try:
            needing.result()
        except NotFoundError:
            # Retired before it was looked for: refused, and nothing came of it.
            assert how != "delta save"
            assert len(_ids(opener)) + len(_ids(opener, "returns")) == before - 2
        else:
            _kept(opener, how)
    assert step > 5


@pytest.mark.parametrize("how", NEEDING)
def test_save_or_derive_against_removal(open_again: Opener, how: str) -> None:
    """What it needs is pruned and removed for good while it stages: it is told, and leaves nothing that looks usable."""
    writer, forked = _begin(open_again)
    saver, name = (forked, "returns") if how == "fork" else (writer, "orders")
    with stopped(_needing(how, writer, forked), saver.engine, "_append", table=MANIFESTS.name) as needing:
        open_again().pipeline("orders").prune(KEEP_ONE)
        assert 1 in open_again().maintain(AT_ONCE).removed["orders"]
    with pytest.raises(ConflictError, match="removed"):
        needing.result()
    assert _ids(open_again, name) == ([] if how == "fork" else [3])
    assert open_again().pipeline(name).recover(dry_run=True).chosen_id == (None if how == "fork" else 3)
    # The next save goes on.
    assert _save(saver) in _ids(open_again, name)


@pytest.mark.parametrize("how", NEEDING)
def test_removal_against_save_or_derive(open_again: Opener, how: str) -> None:
    """Maintenance has planned its removal; something that needs what it removes commits. One of the two is told."""
    writer, forked = _begin(open_again)
    open_again().pipeline("orders").prune(KEEP_ONE)
    open_again().pipeline("orders").restore(1)
    if how != "delta save":
        needing = _needing(how, writer, forked)
    else:
        needing = _needing(how, writer, forked)
    catalog = open_again()
    open_again().pipeline("orders").prune(KEEP_ONE)
    with stopped(lambda: catalog.maintain(AT_ONCE), catalog.engine, "_append", table=RETENTION.name) as removing:
        open_again().pipeline("orders").restore(1)
        needing()
    assert 1 not in removing.result().removed.get("orders", ())
    _kept(open_again, how)


def test_restore_against_removal(open_again: Opener) -> None:
    """Removed while it was about to be restored: refused, and not restored into a hole."""
    _begin(open_again)
    catalog = open_again()
    catalog.pipeline("orders").prune(KEEP_ONE)
    with stopped(
        lambda: catalog.pipeline("orders").restore(1), catalog.engine, "_append", table=RETENTION.name
    ) as restoring:
        assert open_again().maintain(AT_ONCE).removed == {"orders": (1, 2)}
    with pytest.raises(NotFoundError):
        restoring.result()
    assert _ids(open_again) == [3]


def test_takeover_between_a_recoverys_look_and_its_choice(open_again: Opener) -> None:
    """A recovery that was overtaken while it chose says so, and leaves nothing behind."""
    old = open_again().writer("orders", owner="old")
    old.sink_committed(_save(old, sink=True), "warehouse")
    _save(old, sink=True)
    with stopped(old.recover, old.engine, "scan", table=WRITERS.name) as overtaken:
        open_again().writer("orders", owner="new")
    with pytest.raises(FencedError, match="new"):
        overtaken.result()
    assert open_again().engine.read(RETENTION.name).num_rows == 0
