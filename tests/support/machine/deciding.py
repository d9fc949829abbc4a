"""Rules for what becomes of checkpoints: statuses, retention, recovery, maintenance."""

import datetime as dt
from functools import partial

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from laminar_delta.catalog.choosing import FailedSinks
from laminar_delta.catalog.maintenance import MaintenancePolicy
from laminar_delta.catalog.retention import RetentionPolicy
from tests.support.machine.base import Held, Machine, status_of
from tests.support.model import COMMITTED, PENDING, Checkpoint, Status

LONG_MS = 10**12
"""Longer than any of this is old."""

statuses: st.SearchStrategy[Status] = st.sampled_from([COMMITTED, ("Failed", "disk full"), PENDING])


class Deciding(Machine):
    """Statuses, decisions, recoveries."""

    # -- statuses -----------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(found.content.sinks for _, found in self.all()))
    @rule(data=st.data(), changes=st.lists(statuses, min_size=1, max_size=3))
    def set_statuses(self, data: st.DataObject, changes: list[Status]) -> None:
        """One after another of the same sink."""
        known = [
            (name, found)
            for name, found in self.all()
            if found.content.sinks and self.writers[name] and found.number not in self.models[name].removed
        ]
        if not known:
            return
        # The newest are where recovery looks first.
        name, found = data.draw(st.sampled_from(known[::-1]))
        sink = data.draw(st.sampled_from(sorted(found.content.sinks)))
        for status in changes:
            held = self.draw_writer(data, name)[1]
            told = self.told(partial(held.real.set_sink_statuses, found.number, {sink: status_of(status)}))[0]
            if self.models[name].holds(held.model):
                assert told == "ok"
                self.models[name].set_status(held.model, found.number, sink, status)
            else:
                assert told == "FencedError"

    def set_status_of_nothing(self, name: str, held: Held, number: int) -> None:
        told = self.told(lambda: held.real.sink_committed(number, "no such sink"))[0]
        assert told == ("NotFoundError" if self.models[name].holds(held.model) else "FencedError")

    # -- retention ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(True for _ in self.all()))
    @rule(
        data=st.data(),
        whats=st.lists(
            st.sampled_from(["prune", "prune", "pin", "unpin", "restore", "maintain"]), min_size=1, max_size=4
        ),
    )
    def decide(self, data: st.DataObject, whats: list[str]) -> None:
        for what in whats:
            name, found = self.draw_checkpoint(data)
            if what == "prune":
                self.prune(
                    name,
                    data.draw(st.sampled_from([0, 0, 1, 2])),
                    data.draw(st.sampled_from(["", "", "look", "young"])),
                )
            elif what == "maintain":
                self.maintain(vacuum=data.draw(st.booleans()))
            else:
                self.decide_on(name, found, what)

    def prune(self, name: str, keep_last: int, more: str) -> None:
        model, look = self.models[name], more == "look"
        policy = RetentionPolicy(keep_last=keep_last, keep_for_ms=LONG_MS if more == "young" else None)
        expected = model.prune(keep_last=keep_last, keep_young=more == "young")
        assert list(self.pipeline(name).prune(policy, dry_run=look).retire) == expected
        if not look:
            model.retire(expected)

    def decide_on(self, name: str, found: Checkpoint, what: str) -> None:
        model, number, pipeline = self.models[name], found.number, self.pipeline(name)
        if what == "pin":
            told = self.told(lambda: pipeline.pin(number, reason="audit"))[0]
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
            told = self.told(lambda: pipeline.restore(number))[0]
            if found.row_gone:
                assert told == "NotFoundError"
            else:
                assert told == {"ok": "ok", "conflict": "ConflictError"}[model.restore(number)]

    # -- recovering ---------------------------------------------------------------------------------------------------

    def recover(self, name: str, accept: bool, dry_run: bool) -> None:
        report = self.pipeline(name).recover(failed_sinks=failed_sinks(accept), dry_run=dry_run)
        self.agrees(name, report, accept=accept)

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), accept=st.sampled_from([False, False, True]), start_over=st.booleans())
    def resume(self, data: st.DataObject, accept: bool, start_over: bool) -> None:
        name, held = self.draw_writer(data)
        told, report = self.told(lambda: held.real.recover(failed_sinks=failed_sinks(accept), start_over=start_over))
        if not self.models[name].holds(held.model):
            assert told == "FencedError"
            return
        self.models[name].settle(held.model)
        if not start_over and not self.models[name].may_begin(accept_failed=accept):
            assert told == "CorruptionError"
            return
        assert told == "ok"
        self.agrees(name, report, accept=accept)
        self.models[name].recover(accept_failed=accept, start_over=start_over)

    @precondition(lambda self: any(self.writers.values()))
    @rule(data=st.data(), by_writer=st.booleans())
    def remove_orphans(self, data: st.DataObject, by_writer: bool) -> None:
        name, held = self.draw_writer(data)
        model = self.models[name]
        aborted = held.real.aborted if by_writer else frozenset()
        removed = self.pipeline(name).remove_orphans(aborted=aborted)
        expected = model.orphans(of=held.model if by_writer else None)
        told = {(orphan.checkpoint_id, orphan.generation) for orphan in removed}
        assert told <= {(staged.number, staged.generation) for staged in expected}
        # State that was as before may have needed no rows.
        assert told >= {(staged.number, staged.generation) for staged in expected if staged.content.sources}
        model.staged = [staged for staged in model.staged if staged not in expected]
        model.burned = max([model.burned, *(number for number, _ in told)])

    def maintain(self, *, vacuum: bool) -> None:
        policy = MaintenancePolicy(grace=dt.timedelta(0), compact_after=10, vacuum=vacuum)
        told, report = self.told(lambda: self.catalog.maintain(policy))
        if vacuum and any(model.only_in_the_past() for model in self.models.values()):
            assert told == "ConflictError"
            return
        assert told == "ok"
        assert not report.put_off
        for name, model in self.models.items():
            there = {number for number, found in model.checkpoints.items() if not found.row_gone}
            assert set(report.removed.get(name, ())) & there == set(model.remove()) & there


def failed_sinks(accept: bool) -> FailedSinks:
    return FailedSinks.ACCEPT if accept else FailedSinks.SKIP
