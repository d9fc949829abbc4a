"""Rules for writers and what they save: by filling in, again, cut off in the middle, arriving late, derived."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from laminar_delta.catalog.staged import Saved
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.settle import FenceRefused, WriteConflict
from laminar_delta.model import CheckpointManifest
from tests.support.faults import failing_appends, unanswered_appends, unheard_appends
from tests.support.machine.base import TOLD, Held, Machine, manifest_of, pipelines
from tests.support.model import COMMITTED, PENDING, Content

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


class Saving(Machine):
    """Writers and saves."""

    # -- writers ------------------------------------------------------------------------------------------------------

    @initialize(saves=st.lists(contents, min_size=2, max_size=5))
    def begin(self, saves: list[Content]) -> None:
        self.take_over("orders")
        (held,) = self.writers["orders"]
        for number, content in enumerate(saves, 1):
            self.save_as("orders", held, number, content)

    @rule(name=pipelines)
    def take_over(self, name: str) -> None:
        real = self.open_again().writer(name, owner=f"writer {len(self.writers[name])}")
        held = Held(real, self.models[name].take_over())
        self.writers[name].append(held)
        assert (real.generation, real.next_id) == (held.model.generation, held.model.next_id)

    def ask_politely(self, name: str) -> None:
        """Becomes the writer only if nobody is."""
        if self.models[name].released and self.models[name].holder_known:
            told = self.told(lambda: self.catalog.writer(name, takeover=False))
            held = Held(told[1], self.models[name].take_over())
            self.writers[name].append(held)
        else:
            assert self.told(lambda: self.catalog.writer(name, takeover=False))[0] == "ConflictError"

    def let_go(self, name: str, held: Held) -> None:
        held.real.close()
        self.models[name].let_go(held.model)
        self.writers[name].remove(held)

    # -- saving -------------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.writers.values()))
    @rule(
        data=st.data(),
        saves=st.lists(
            st.tuples(st.sampled_from(["whole", "whole", "filled in", "staged twice"]), contents),
            min_size=1,
            max_size=3,
        ),
        ahead=st.sampled_from([0, 0, 0, 1, -1]),
    )
    def save(self, data: st.DataObject, saves: list[tuple[str, Content]], ahead: int) -> None:
        name, held = self.draw_writer(data)
        for how, content in saves:
            number = max(held.real.next_id + ahead, 1)
            if how == "filled in":
                self.fill_in(name, held, content)
            elif number not in self.models[name].checkpoints:
                content = replace(
                    content, parent=data.draw(st.sampled_from([None, None, *self.models[name].checkpoints]))
                )
                twice = self.staged_twice(held, number, content) if how == "staged twice" else None
                self.save_as(name, held, number, content, save=twice)

    def staged_twice(self, held: Held, number: int, content: Content) -> Callable[[], Saved]:
        """A save with parts that come again from a task that was repeated, with other content, and are not accepted."""
        manifest = manifest_of(number, content)
        other = manifest_of(number, replace(content, sources={"kafka": {"0": "other"}}))

        def save() -> Saved:
            held.real.settle()
            with held.real.attempting(number) as attempt:
                staged = held.real.stage(attempt, manifest, dict(content.states))
                saved = held.real.commit(attempt, staged.manifest, staged.parts, state=staged.state)
                held.real.stage(attempt, other, dict.fromkeys(content.states, b"other"))
            return saved

        return save

    def fill_in(self, name: str, held: Held, content: Content) -> None:
        """Saves by filling in a checkpoint, where small state goes another way."""
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
        self.save_as(name, held, number, content, given=(manifest, states), save=cp.commit)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), other=st.sampled_from(["", "", "watermark", "source", "state", "parent"]))
    def save_again(self, data: st.DataObject, other: str) -> None:
        name, number = data.draw(st.sampled_from(sorted(self.given)))
        if not self.writers[name]:
            return
        held = self.draw_writer(data, name)[1]
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
        self.save_as(name, held, number, content, given=(manifest, states))

    @precondition(lambda self: any(self.writers.values()))
    @rule(
        data=st.data(),
        content=contents,
        how=st.sampled_from(["failing", "unheard", "unanswered", "unanswered"]),
        then=st.sampled_from(["nothing", "again", "other", "take over"]),
    )
    def save_cut_off(self, data: st.DataObject, content: Content, how: str, then: str) -> None:
        """The storage fails at the commit, or its answer is lost, or it is still under way; then the writer goes on."""
        name = self.draw_writer(data)[0]
        held, model = self.writers[name][-1], self.models[name]
        if not model.holds(held.model):
            return
        number, states = held.model.next_id, dict(content.states)
        manifest, engine = manifest_of(number, content), held.real.engine
        assert model.settle(held.model)
        held.real.settle()
        staged = model.stage(held.model, number, content)
        if how == "failing":
            with failing_appends(engine, MANIFESTS.name):
                assert self.told(lambda: held.real.save(manifest, states))[0] == "StorageError"
            model.give_up(held.model, staged)
        elif how == "unheard":
            with unheard_appends(engine, MANIFESTS.name):
                assert self.told(lambda: held.real.save(manifest, states))[0] == "CommitUnknownError"
            assert model.land(staged, self.stored(name, number))
            self.given[name, number] = manifest, states
            model.doubt(held.model, staged)
        else:
            with unanswered_appends(engine, MANIFESTS.name) as late:
                assert self.told(lambda: held.real.save(manifest, states))[0] == "CommitUnknownError"
            self.late.append((name, staged, late[0]))
            model.doubt(held.model, staged)
        if then == "take over":
            self.take_over(name)
        elif then != "nothing":
            content = replace(content, watermark=99) if then == "other" else content
            self.save_as(name, held, number, content, given=(manifest_of(number, content), states))

    @precondition(lambda self: self.late)
    @rule()
    def arrive_late(self) -> None:
        name, staged, arrive = self.late.pop()
        try:
            arrive()
            landed = True
        except (FenceRefused, WriteConflict):
            landed = False
        assert landed == self.models[name].land(staged, self.stored(name, staged.number))
        if landed:
            self.given[name, staged.number] = manifest_of(staged.number, staged.content), dict(staged.content.states)

    # -- inside -------------------------------------------------------------------------------------------------------

    def save_as(
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
        manifest, states = given or (manifest_of(number, content), dict(content.states))
        told, saved = self.told(save or (lambda: held.real.save(manifest, states)))
        expected = model.save(held.model, number, content, self.stored(name, number))
        assert told == TOLD[expected]
        if told == "ok":
            assert saved.replayed == (expected == "replayed")
        if (name, number) not in self.given and number in model.checkpoints:
            self.given[name, number] = manifest, states
        assert held.real.next_id == held.model.next_id
