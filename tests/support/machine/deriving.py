"""Rules for checkpoints made from others: rewinding, forking, editing offsets, undoing."""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.support.machine.base import PIPELINES, TOLD, Held, Machine


class Deriving(Machine):
    """Derived checkpoints."""

    @precondition(lambda self: any(True for _ in self.all()))
    @rule(
        data=st.data(),
        hows=st.lists(
            st.sampled_from(["rewind", "rewind", "fork", "edit", "edit newest", "undo", "undo"]), min_size=1, max_size=3
        ),
        accept=st.booleans(),
    )
    def derive(self, data: st.DataObject, hows: list[str], accept: bool) -> None:
        for how in hows:
            if how != "undo":
                self.derive_one(data, how, accept)
            elif any(self.writers.values()):
                self.undo(*self.draw_writer(data), accept)

    def derive_one(self, data: st.DataObject, how: str, accept: bool) -> None:
        origin, found = self.draw_checkpoint(data)
        name = next(other for other in PIPELINES if other != origin) if how == "fork" else origin
        if not self.writers[name]:
            return
        held, model, number = self.draw_writer(data, name)[1], self.models[name], found.number
        edits = {data.draw(st.sampled_from(["kafka", "files"])): {"0": "99"}}
        own = held.model.next_id
        if how == "fork":
            told = self.told(lambda: held.real.fork(origin, number, reason="try"))[0]
            expected = model.derive(held.model, self.models[origin], number, stored=self.stored(name, own))
        elif how == "rewind":
            told = self.told(lambda: held.real.rewind(number, reason="back", accept_undelivered=accept))[0]
            expected = model.derive(held.model, model, number, accept_undelivered=accept, stored=self.stored(name, own))
        else:
            chosen = max(model.known(), default=None) if how == "edit newest" else number
            told = self.told(
                lambda: held.real.edit_offsets(
                    edits,
                    reason="skip",
                    checkpoint_id=None if how == "edit newest" else number,
                    accept_undelivered=accept,
                )
            )[0]
            expected = "not found"
            if chosen is not None:
                expected = model.derive(
                    held.model, model, chosen, edits=edits, accept_undelivered=accept, stored=self.stored(name, own)
                )
        assert told == TOLD[expected]
        assert held.real.next_id == held.model.next_id

    def undo(self, name: str, held: Held, accept: bool) -> None:
        own = held.model.next_id
        told = self.told(lambda: held.real.undo(reason="mistake", accept_undelivered=accept))[0]
        expected = self.models[name].undo(held.model, self.stored(name, own), accept_undelivered=accept)
        assert told == TOLD[expected]
        assert held.real.next_id == held.model.next_id
