"""A machine that does anything to a catalog, in any order, and holds it against the plain model after every step.

Writers that were taken over are kept and used on purpose; rows are deleted, files go missing and come back; answers are lost
and commits arrive late. Each test makes a machine of its own with `machine_on`.
"""

import datetime as dt
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import laminar_delta as ld
from laminar_delta.catalog.committing import Saved
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.pipeline import Pipeline
from laminar_delta.catalog.recovery import FailedSinks
from laminar_delta.catalog.retention import RetentionPolicy
from laminar_delta.catalog.tables import MANIFESTS, OPERATOR_SNAPSHOTS, SINK_STATUSES, SOURCE_OFFSETS
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.engine.settle import FenceRefused, WriteConflict
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, RecoveryReport, SinkCommitStatus
from laminar_delta.model.status import SinkCommitKind
from tests.support.damage import DataFile, data_files, overwrite
from tests.support.faults import failing_appends, unanswered_appends, unheard_appends
from tests.support.model import COMMITTED, PENDING, Checkpoint, Content, PipelineModel, Staged, Status, WriterModel

PIPELINES = ("orders", "returns")
CHILDREN = (SOURCE_OFFSETS.name, OPERATOR_SNAPSHOTS.name)
COMPACTED = (MANIFESTS.name, *CHILDREN, SINK_STATUSES.name, "retention", "writers")
LONG_MS = 10**12
"""Longer than any of this is old."""

TOLD = {
    "saved": "ok",
    "replayed": "ok",
    "fenced": "FencedError",
    "conflict": "ConflictError",
    "not found": "NotFoundError",
}
"""The model's words as a caller hears them."""

Opener = Callable[[], ld.Catalog]

pipelines = st.sampled_from(["orders", "orders", "orders", "returns"])
statuses: st.SearchStrategy[Status] = st.sampled_from([COMMITTED, ("Failed", "disk full"), PENDING])
contents = st.builds(
    Content,
    sources=st.dictionaries(
        st.sampled_from(["kafka", "files"]),
        st.dictionaries(st.sampled_from("01"), st.sampled_from(["7", "12", ""]), max_size=2),
        max_size=2,
    ),
    states=st.dictionaries(
        st.tuples(st.sampled_from(["agg", "join"]), st.integers(0, 2)),
        st.sampled_from([b"x", b"", b"y" * 30]),
        max_size=3,
    ),
    sinks=st.dictionaries(
        st.sampled_from(["warehouse", "search"]), st.sampled_from([PENDING, PENDING, COMMITTED]), max_size=2
    ),
    watermark=st.integers(-2, 2),
)


@dataclass(frozen=True)
class Held:
    """A writer and what the model knows of it."""

    real: Writer
    model: WriterModel

    def __repr__(self) -> str:
        return f"the writer of generation {self.model.generation}"


class CatalogMachine(RuleBasedStateMachine):
    """The rules; `machine_on` says where."""

    make: ClassVar[Callable[[], Opener]]
    """Makes a fresh catalog; what it returns opens it again and again."""
    thorough: ClassVar[bool] = True
    """Walk after every step, not only now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.open_again = type(self).make()
        self.catalog = self.open_again()
        self.models: dict[str, PipelineModel] = {}
        self.models.update({name: PipelineModel(name, self.models) for name in PIPELINES})
        self.writers: dict[str, list[Held]] = {name: [] for name in PIPELINES}
        self.given: dict[tuple[str, int], tuple[CheckpointManifest, dict[tuple[str, int], bytes]]] = {}
        """What each checkpoint was saved with, to save it again."""
        self.late: list[tuple[str, Staged, Callable[[], int]]] = []

    # -- writers ------------------------------------------------------------------------------------------------------

    @initialize(saves=st.lists(contents, max_size=4))
    def begin(self, saves: list[Content]) -> None:
        self.take_over("orders")
        (held,) = self.writers["orders"]
        for number, content in enumerate(saves, 1):
            self._save("orders", held, number, content)

    @rule(name=pipelines)
    def take_over(self, name: str) -> None:
        real = self.open_again().writer(name, owner=f"writer {len(self.writers[name])}")
        held = Held(real, self.models[name].take_over())
        self.writers[name].append(held)
        assert (real.generation, real.next_id) == (held.model.generation, held.model.next_id)

    @rule(name=pipelines)
    def ask_politely(self, name: str) -> None:
        """Becomes the writer only if nobody is."""
        if self.models[name].released:
            told = self._told(lambda: self.catalog.writer(name, takeover=False))
            held = Held(told[1], self.models[name].take_over())
            self.writers[name].append(held)
        else:
            assert self._told(lambda: self.catalog.writer(name, takeover=False))[0] == "ConflictError"

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data())
    def let_go(self, data: st.DataObject) -> None:
        name, held = self._draw_writer(data)
        held.real.close()
        self.models[name].released |= self.models[name].holds(held.model)
        self.writers[name].remove(held)

    # -- saving -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), saves=st.lists(contents, min_size=1, max_size=3), ahead=st.sampled_from([0, 0, 0, 1, -1]))
    def save(self, data: st.DataObject, saves: list[Content], ahead: int) -> None:
        name, held = self._draw_writer(data)
        for content in saves:
            number = max(held.real.next_id + ahead, 1)
            if number not in self.models[name].checkpoints:
                self._save(name, held, number, replace(content, parent=self._draw_parent(data, name)))

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), content=contents)
    def fill_in(self, data: st.DataObject, content: Content) -> None:
        """Saves by filling in a checkpoint, where small state goes another way."""
        name, held = self._draw_writer(data)
        content = replace(content, sinks=dict.fromkeys(content.sinks, PENDING))
        number = held.model.next_id
        held.model.next_id += 1
        cp = held.real.checkpoint()
        assert cp.id == number
        for source, offsets in content.sources.items():
            cp.source(source, offsets)
        for (operator, partition), state in content.states.items():
            cp.state(operator, state, partition=partition)
        for sink in content.sinks:
            cp.sink(sink)
        cp.describe(watermark=content.watermark)
        manifest = cp.manifest()
        inline = {
            operator: state for (operator, _), state in content.states.items() if operator in manifest.operator_states
        }
        states = {key: state for key, state in content.states.items() if key[0] not in inline}
        content = replace(content, states=states, inline=inline)
        self._save(name, held, number, content, given=(manifest, states), save=cp.commit)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), other=st.sampled_from(["", "", "watermark", "source", "state", "parent"]))
    def save_again(self, data: st.DataObject, other: str) -> None:
        name, number = data.draw(st.sampled_from(sorted(self.given)))
        if not self.writers[name]:
            return
        held = self._draw_writer(data, name)[1]
        manifest, states = self.given[name, number]
        content = self.models[name].checkpoints[number].content
        if other == "watermark":
            manifest, content = replace(manifest, watermark=99), replace(content, watermark=99)
        elif other == "source":
            manifest, content = replace(manifest, source_offsets={}), replace(content, sources={})
        elif other == "state":
            states = {**states, ("agg", 9): b"more"}
            content = replace(content, states={**content.states, ("agg", 9): b"more"})
        elif other == "parent":
            manifest = replace(manifest, parent_id=number, is_incremental=True)
            content = replace(content, parent=number)
        self._save(name, held, number, content, given=(manifest, states))

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), content=contents, how=st.sampled_from(["failing", "unheard", "unanswered"]))
    def save_cut_off(self, data: st.DataObject, content: Content, how: str) -> None:
        """The storage fails at the commit, or its answer is lost, or it is still under way."""
        name = self._draw_writer(data)[0]
        held, model = self.writers[name][-1], self.models[name]
        if not model.holds(held.model):
            return
        number = held.real.next_id
        assert number == held.model.next_id
        manifest = _manifest(number, content)
        assert model.settle(held.model)
        staged = model.stage(held.model, number, content)
        engine = held.real.reading.engine
        if how == "failing":
            with failing_appends(engine, MANIFESTS.name):
                assert self._told(lambda: held.real.save(manifest, dict(content.states)))[0] == "StorageError"
            model.give_up(held.model, staged)
            return
        if how == "unheard":
            held.real.settle()
            with unheard_appends(engine, MANIFESTS.name):
                told = self._told(lambda: held.real.save(manifest, dict(content.states)))[0]
            assert model.land(staged)
            self.given[name, number] = manifest, dict(content.states)
        else:
            with unanswered_appends(engine, MANIFESTS.name) as late:
                told = self._told(lambda: held.real.save(manifest, dict(content.states)))[0]
            self.late.append((name, staged, late[0]))
        assert told == "CommitUnknownError"
        model.doubt(held.model, staged)

    @precondition(lambda self: self.late)
    @rule()
    def arrive_late(self) -> None:
        name, staged, arrive = self.late.pop()
        try:
            arrive()
            landed = True
        except (FenceRefused, WriteConflict):
            landed = False
        assert landed == self.models[name].land(staged)
        if landed:
            self.given[name, staged.number] = _manifest(staged.number, staged.content), dict(staged.content.states)

    # -- deriving -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(True for _ in self._all()))
    @rule(
        data=st.data(), how=st.sampled_from(["rewind", "rewind", "fork", "edit", "edit newest"]), accept=st.booleans()
    )
    def derive(self, data: st.DataObject, how: str, accept: bool) -> None:
        origin, found = self._draw_checkpoint(data)
        name = next(other for other in PIPELINES if other != origin) if how == "fork" else origin
        if not self.writers[name]:
            return
        held, model, number = self._draw_writer(data, name)[1], self.models[name], found.number
        edits = {data.draw(st.sampled_from(["kafka", "files"])): {"0": "99"}}
        if how == "fork":
            expected = model.derive(held.model, self.models[origin], number)
            told = self._told(lambda: held.real.fork(origin, number, reason="try"))[0]
        elif how == "rewind":
            expected = model.derive(held.model, model, number, accept_undelivered=accept)
            told = self._told(lambda: held.real.rewind(number, reason="back", accept_undelivered=accept))[0]
        else:
            chosen = max(model.visible(), default=None) if how == "edit newest" else number
            expected = "not found"
            if chosen is not None:
                expected = model.derive(held.model, model, chosen, edits=edits, accept_undelivered=accept)
            told = self._told(
                lambda: held.real.edit_offsets(
                    edits,
                    reason="skip",
                    checkpoint_id=None if how == "edit newest" else number,
                    accept_undelivered=accept,
                )
            )[0]
        assert told == TOLD[expected]
        assert held.real.next_id == held.model.next_id

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        name, held = self._draw_writer(data)
        expected = self.models[name].undo(held.model)
        assert self._told(lambda: held.real.undo(reason="mistake"))[0] == TOLD[expected]
        assert held.real.next_id == held.model.next_id

    # -- statuses -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(found.content.sinks for _, found in self._all()))
    @rule(data=st.data(), status=statuses)
    def set_status(self, data: st.DataObject, status: Status) -> None:
        known = [
            (name, found)
            for name, found in self._all()
            if found.content.sinks and self.writers[name] and found.number not in self.models[name].removed
        ]
        if not known:
            return
        # The newest are where recovery looks first.
        name, found = data.draw(st.sampled_from(known[::-1]))
        held = self._draw_writer(data, name)[1]
        sink = data.draw(st.sampled_from(sorted(found.content.sinks)))
        told = self._told(lambda: held.real.set_sink_statuses(found.number, {sink: _status(status)}))[0]
        if self.models[name].holds(held.model):
            assert told == "ok"
            self.models[name].set_status(held.model, found.number, sink, status)
        else:
            assert told == "FencedError"

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), number=st.integers(1, 12))
    def set_status_of_nothing(self, data: st.DataObject, number: int) -> None:
        name, held = self._draw_writer(data)
        told = self._told(lambda: held.real.sink_committed(number, "no such sink"))[0]
        assert told == ("NotFoundError" if self.models[name].holds(held.model) else "FencedError")

    # -- retention ----------------------------------------------------------------------------------------------------

    @rule(
        name=pipelines,
        keep_last=st.integers(0, 3),
        keep_young=st.sampled_from([False, False, True]),
        look=st.booleans(),
    )
    def prune(self, name: str, keep_last: int, keep_young: bool, look: bool) -> None:
        model = self.models[name]
        policy = RetentionPolicy(keep_last=keep_last, keep_for_ms=LONG_MS if keep_young else None)
        expected = model.prune(keep_last=keep_last, keep_young=keep_young)
        assert list(self._pipeline(name).prune(policy, dry_run=look).retire) == expected
        if not look:
            model.retire(expected)

    @precondition(lambda self: any(True for _ in self._all()))
    @rule(data=st.data(), what=st.sampled_from(["pin", "unpin", "restore"]))
    def decide(self, data: st.DataObject, what: str) -> None:
        name, found = self._draw_checkpoint(data)
        model, number, pipeline = self.models[name], found.number, self._pipeline(name)
        if what == "pin":
            told = self._told(lambda: pipeline.pin(number, reason="audit"))[0]
            if found.row_gone:
                assert told == "NotFoundError"
            elif number in model.retired:
                assert told == "ConflictError"
            else:
                assert told == "ok"
                model.pinned.add(number)
        elif what == "unpin":
            pipeline.unpin(number)
            model.pinned.discard(number)
        else:
            told = self._told(lambda: pipeline.restore(number))[0]
            assert told == ("NotFoundError" if found.row_gone else "ok")
            if told == "ok":
                model.retired.discard(number)

    # -- recovering ---------------------------------------------------------------------------------------------------

    @rule(name=pipelines, accept=st.booleans(), dry_run=st.booleans())
    def recover(self, name: str, accept: bool, dry_run: bool) -> None:
        report = self._pipeline(name).recover(failed_sinks=_failed_sinks(accept), dry_run=dry_run)
        self._agrees(name, report, accept=accept)

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), accept=st.sampled_from([False, False, True]))
    def resume(self, data: st.DataObject, accept: bool) -> None:
        name, held = self._draw_writer(data)
        told, report = self._told(lambda: held.real.recover(failed_sinks=_failed_sinks(accept)))
        if not self.models[name].holds(held.model):
            assert told == "FencedError"
            return
        assert told == "ok"
        self.models[name].settle(held.model)
        self._agrees(name, report, accept=accept)
        self.models[name].recover(accept_failed=accept)

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), by_writer=st.booleans())
    def remove_orphans(self, data: st.DataObject, by_writer: bool) -> None:
        name, held = self._draw_writer(data)
        model = self.models[name]
        aborted = held.real.aborted if by_writer else frozenset()
        removed = self._pipeline(name).remove_orphans(aborted=aborted)
        expected = model.orphans(of=held.model if by_writer else None)
        assert sorted((orphan.checkpoint_id, orphan.generation) for orphan in removed) == sorted(
            (staged.number, staged.generation) for staged in expected
        )
        model.staged = [staged for staged in model.staged if staged not in expected]

    @rule(vacuum=st.booleans())
    def maintain(self, vacuum: bool) -> None:
        policy = MaintenancePolicy(grace=dt.timedelta(0), compact_after=10, vacuum=vacuum)
        told, report = self._told(lambda: self.catalog.maintain(policy))
        if vacuum and any(model.only_in_the_past() for model in self.models.values()):
            assert told == "ConflictError"
            return
        assert told == "ok"
        assert not report.put_off
        for name, model in self.models.items():
            there = {number for number, found in model.checkpoints.items() if not found.row_gone}
            assert set(report.removed.get(name, ())) & there == set(model.remove()) & there

    @rule(table=st.sampled_from(COMPACTED))
    def compact(self, table: str) -> None:
        self.catalog.engine.optimize(table)

    # -- damage -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(True for _ in self._all()))
    @rule(data=st.data(), table=st.sampled_from([MANIFESTS, SOURCE_OFFSETS, OPERATOR_SNAPSHOTS]), changed=st.booleans())
    def damage_rows(self, data: st.DataObject, table: Any, changed: bool) -> None:
        name, found = self._draw_checkpoint(data)
        if found.number in self.models[name].removed:
            return
        where: Predicate = col("pipeline").eq(name) & col("checkpoint_id").eq(found.number)
        if table is MANIFESTS:
            self.catalog.engine.delete(table.name, where)
            found.row_gone = True
        elif table is SOURCE_OFFSETS and found.content.sources and not found.sources_gone:
            if changed:
                overwrite(self.catalog.engine, table, where, {"offsets": [("0", "666")]})
            else:
                self.catalog.engine.delete(table.name, where)
            found.sources_gone = True
        elif table is OPERATOR_SNAPSHOTS and found.content.states and found.state_of is None:
            operator, partition = data.draw(st.sampled_from(sorted(found.content.states)))
            self.catalog.engine.delete(
                table.name, where & col("operator").eq(operator) & col("partition").eq(partition)
            )
            found.states_gone.add((operator, partition))

    @rule(
        data=st.data(), table=st.sampled_from([MANIFESTS.name, *CHILDREN]), place=st.floats(0, 1), resume=st.booleans()
    )
    def rot(self, data: st.DataObject, table: str, place: float, resume: bool) -> None:
        """A file is unreadable or changed for a while. What is used is what was saved; what is passed over was in it."""
        files = data_files(self.catalog.engine, table)
        name = data.draw(pipelines)
        if not files or not self.models[name].checkpoints:
            return
        file: DataFile = data.draw(st.sampled_from(files))
        victims = {
            number
            for number, found in self.models[name].checkpoints.items()
            if file.touches(name, number) or (found.state_of is not None and file.touches(*found.state_of))
        }
        with file.rotten(place) if file.can_rot and place < 1 else file.missing():
            if not resume or not self.writers[name] or not self.models[name].holds(self.writers[name][-1].model):
                self._agrees(name, self._pipeline(name).recover(dry_run=True), victims=victims)
                return
            held = self.writers[name][-1]
            report = held.real.recover()
            self.models[name].settle(held.model)
            self._agrees(name, report, victims=victims)
            self.models[name].abandoned.update(skipped.checkpoint_id for skipped in report.skipped)

    # -- agreeing -----------------------------------------------------------------------------------------------------

    @invariant()
    def lists_what_is_visible(self) -> None:
        for name, model in self.models.items():
            if not model.generation:
                continue
            pipeline = self._pipeline(name)
            assert [head.checkpoint_id for head in pipeline.list()] == model.visible()
            if self.thorough:
                self._agrees(name, pipeline.recover(dry_run=True))

    @precondition(lambda self: any(True for _ in self._all()))
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        self._look_at(*self._draw_checkpoint(data))

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # a step has failed: what it left is of no interest
        for name, found in self._all():
            self._look_at(name, found)
        for name, model in self.models.items():
            latest = self._told(self._pipeline(name).latest)
            visible = model.visible()
            if not visible:
                assert latest == ("ok", None)
            elif latest[0] == "ok":
                assert latest[1].checkpoint_id == visible[-1]
            else:
                assert latest[0] == "CorruptionError"
                assert model.checkpoints[visible[-1]].sources_gone
            self._agrees(name, self._pipeline(name).recover(dry_run=True))
        self.catalog.close()

    def _look_at(self, name: str, found: Checkpoint) -> None:
        pipeline, retired = self._pipeline(name), found.number in self.models[name].retired
        told, manifest = self._told(lambda: pipeline.get(found.number))
        if retired or found.row_gone:
            assert told == "NotFoundError"
        elif found.sources_gone:
            assert told == "CorruptionError"
        else:
            assert told == "ok"
            _is_what_was_saved(manifest, found)
        told, result = self._told(lambda: pipeline.validate(found.number))
        if found.row_gone:
            assert told == "NotFoundError"
            return
        assert result.valid == found.intact
        state = pipeline.state(found.number)
        every = {**found.content.states, **{(operator, 0): at for operator, at in found.content.inline.items()}}
        for (operator, partition), expected in every.items():
            told, content = self._told(lambda at=(operator, partition): state.read(*at))
            if (operator, partition) in found.states_gone:
                assert told in ("NotFoundError", "CorruptionError")
            else:
                assert (told, content) == ("ok", expected)

    def _agrees(
        self,
        name: str,
        report: RecoveryReport,
        *,
        accept: bool = False,
        victims: frozenset[int] | set[int] = frozenset(),
    ) -> None:
        """A recovery against the model. Of `victims` rows cannot be read: they may be passed over, and may be healed."""
        model = self.models[name]
        chosen, skipped = model.walk(accept_failed=accept)
        told = [(entry.checkpoint_id, entry.reason.partition(":")[0]) for entry in report.skipped]
        if not victims:
            assert (report.chosen_id, told) == (chosen, skipped), (name, report.chosen_id, told, chosen, skipped)
        else:
            passed_over = dict(told)
            for number, word in told:
                assert number in victims or word == model.why_not(number, accept_failed=accept)
            left = [n for n in model.checkpoints if n not in passed_over and not model.why_not(n, accept_failed=accept)]
            assert report.chosen_id == max(left, default=None)
        if report.chosen_id is not None:
            assert report.manifest is not None
            _is_what_was_saved(report.manifest, model.checkpoints[report.chosen_id])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _save(
        self,
        name: str,
        held: Held,
        number: int,
        content: Content,
        *,
        given: tuple[CheckpointManifest, dict[tuple[str, int], bytes]] | None = None,
        save: Callable[[], Saved] | None = None,
    ) -> None:
        model = self.models[name]
        manifest, states = given or (_manifest(number, content), dict(content.states))
        expected = model.save(held.model, number, content)
        told, saved = self._told(save or (lambda: held.real.save(manifest, states)))
        assert told == TOLD[expected]
        if told == "ok":
            assert saved.replayed == (expected == "replayed")
        if (name, number) not in self.given and number in model.checkpoints:
            self.given[name, number] = manifest, states
        assert held.real.next_id == held.model.next_id

    def _told(self, action: Callable[[], Any]) -> tuple[str, Any]:
        """What a caller is told: the result, or the error's class."""
        try:
            return "ok", action()
        except LaminarDeltaError as error:
            return type(error).__name__, error

    def _pipeline(self, name: str) -> Pipeline:
        return self.catalog.pipeline(name)

    def _all(self) -> list[tuple[str, Checkpoint]]:
        return [(name, model.checkpoints[n]) for name, model in self.models.items() for n in sorted(model.checkpoints)]

    def _draw_checkpoint(self, data: st.DataObject) -> tuple[str, Checkpoint]:
        return data.draw(st.sampled_from(self._all()[::-1]))

    def _draw_writer(self, data: st.DataObject, name: str | None = None) -> tuple[str, Held]:
        """Mostly the current one."""
        if name is None:
            drawn = data.draw(pipelines)
            name = drawn if self.writers[drawn] else next(name for name, found in self.writers.items() if found)
        *zombies, current = self.writers[name]
        return name, data.draw(st.sampled_from([current, current, current, *zombies[-2:]]))

    def _draw_parent(self, data: st.DataObject, name: str) -> int | None:
        return data.draw(st.sampled_from([None, None, *sorted(self.models[name].checkpoints)[-3:]]))


def _manifest(number: int, content: Content) -> CheckpointManifest:
    return CheckpointManifest(
        version=1,
        checkpoint_id=number,
        epoch=number,
        timestamp_ms=1_700_000_000_000,
        source_offsets={
            n: ConnectorCheckpoint(offsets=offsets, epoch=number) for n, offsets in content.sources.items()
        },
        source_names=tuple(sorted(content.sources)),
        sink_epochs=dict.fromkeys(content.sinks, number),
        sink_commit_statuses={name: _status(status) for name, status in content.sinks.items()},
        sink_names=tuple(sorted(content.sinks)),
        watermark=content.watermark,
        parent_id=content.parent,
        is_incremental=content.parent is not None,
    )


def _is_what_was_saved(manifest: CheckpointManifest, found: Checkpoint) -> None:
    content = found.content
    assert (manifest.checkpoint_id, manifest.epoch) == (found.number, found.epoch)
    assert {name: dict(source.offsets) for name, source in manifest.source_offsets.items()} == content.sources
    assert (manifest.watermark, manifest.parent_id) == (content.watermark, content.parent)
    assert set(manifest.operator_states) == {operator for operator, _ in content.states} | set(content.inline)
    assert {n: (s.kind.value, s.message) for n, s in manifest.sink_commit_statuses.items()} == found.statuses


def _status(status: Status) -> SinkCommitStatus:
    return SinkCommitStatus(kind=SinkCommitKind(status[0]), message=status[1])


def _failed_sinks(accept: bool) -> FailedSinks:
    return FailedSinks.ACCEPT if accept else FailedSinks.SKIP


def machine_on(make: Callable[[], Opener], *, thorough: bool) -> type[CatalogMachine]:
    """The machine for catalogs that `make` makes."""
    return type("CatalogMachineHere", (CatalogMachine,), {"make": staticmethod(make), "thorough": thorough})
