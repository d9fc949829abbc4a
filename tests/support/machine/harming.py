"""Rules that do harm: rows deleted or overwritten by a careless statement, files that rot or go missing."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from laminar_delta.catalog.tables import (
    MANIFESTS,
    OPERATOR_DELTAS,
    OPERATOR_SNAPSHOTS,
    RETENTION,
    SINK_STATUSES,
    SOURCE_OFFSETS,
    WRITERS,
)
from laminar_delta.engine.predicate import Predicate, col
from laminar_delta.engine.request import TableSpec
from tests.support.damage import DataFile, data_files, overwrite
from tests.support.machine.base import Machine, pipelines

HARMED = [MANIFESTS, SOURCE_OFFSETS, OPERATOR_SNAPSHOTS, OPERATOR_DELTAS]


class Harming(Machine):
    """Damage."""

    # -- damage -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(True for _ in self.all()))
    @rule(data=st.data(), table=st.sampled_from([MANIFESTS, SOURCE_OFFSETS]), changed=st.booleans())
    def damage_rows(self, data: st.DataObject, table: TableSpec, changed: bool) -> None:
        name, found = self.draw_checkpoint(data)
        where: Predicate = col("pipeline").eq(name) & col("checkpoint_id").eq(found.number)
        rows = self.catalog.engine.read(MANIFESTS.name, where=where).to_pylist()
        if not rows:
            return
        # Attempts that came to nothing may have used the same number.
        where &= col("attempt_id").eq(rows[0]["attempt_id"])
        if table is MANIFESTS:
            self.catalog.engine.delete(table.name, where)
            found.row_gone = True
        elif table is SOURCE_OFFSETS and found.content.sources and not found.sources_gone:
            if changed:
                overwrite(self.catalog.engine, table, where, {"offsets": [("0", "666")]})
            else:
                self.catalog.engine.delete(table.name, where)
            found.sources_gone = True

    @precondition(lambda self: any(True for _ in self.all()))
    @rule(data=st.data(), table=st.sampled_from([SINK_STATUSES, RETENTION, RETENTION, WRITERS]), some=st.booleans())
    def damage_records(self, data: st.DataObject, table: TableSpec, some: bool) -> None:
        """What was said of sinks, decided on checkpoints, or written down of writers is taken out."""
        name, found = self.draw_checkpoint(data)
        where: Predicate = col("pipeline").eq(name)
        if table is SINK_STATUSES:
            where &= col("checkpoint_id").eq(found.number)
            found.taken += found.changes
            found.changes.clear()
        elif table is WRITERS:
            # Who was the writer is forgotten, and that there was one is not.
            self.models[name].holder_known = False
        elif some:
            # All of them stand, and so does the first of several.
            where &= col("ordinal").eq(1)
        self.catalog.engine.delete(table.name, where)

    @rule(data=st.data(), table=st.sampled_from(HARMED), place=st.floats(0, 1), resume=st.booleans())
    def rot(self, data: st.DataObject, table: TableSpec, place: float, resume: bool) -> None:
        """A file is unreadable or changed for a while. What is used is what was saved; what is passed over was in it."""
        files = data_files(self.catalog.engine, table.name)
        name = data.draw(pipelines)
        if not files or not self.models[name].checkpoints:
            return
        file: DataFile = data.draw(st.sampled_from(files))
        victims = {number for number in self.models[name].checkpoints if self.touched(file, name, number)}
        # Whether what was only staged has a row cannot be told either, while there is no reading all of them.
        victims |= {staged.number for staged in self.models[name].staged} if victims else set()
        with file.rotten(place) if file.can_rot and place < 1 else file.missing():
            if not resume or not self.writers[name] or not self.models[name].holds(self.writers[name][-1].model):
                self.agrees(name, self.pipeline(name).recover(dry_run=True), victims=victims)
                return
            held = self.writers[name][-1]
            told, report = self.told(held.real.recover)
            self.models[name].settle(held.model)
            if told == "CorruptionError":
                # Nothing to go on from, because of the file or anyway: then nothing is given up either.
                assert victims or not self.models[name].may_begin()
                return
            assert told == "ok"
            self.agrees(name, report, victims=victims)
            self.models[name].abandoned.update(skipped.checkpoint_id for skipped in report.skipped)

    def touched(self, file: DataFile, name: str, number: int) -> bool:
        """Whether something of a checkpoint may be in the file, its state stored elsewhere included."""
        if file.touches(name, number):
            return True
        if number not in self.models[name].checkpoints:
            return False
        found = self.models[name].checkpoints[number]
        elsewhere = [*((name, other) for other in found.stored_in), *([found.state_of] if found.state_of else [])]
        return any(self.touched(file, *other) for other in elsewhere)
