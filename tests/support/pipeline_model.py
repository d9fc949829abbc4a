"""A pipeline as plain dictionaries and sets: what saving, recovering and retiring come to, without a table in sight."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tests.support.model import Checkpoint, Content, Staged, Status, WriterModel

Stored = tuple[frozenset[int], tuple[str, int] | None]
"""Where the catalog put a checkpoint's state: the earlier ones it is stored upon, and whose it uses as it is."""
NOWHERE: Stored = (frozenset(), None)


@dataclass
class PipelineModel:
    """One pipeline."""

    name: str
    every: dict[str, "PipelineModel"]
    """All pipelines, this one too."""
    generation: int = 0
    released: bool = True
    holder_known: bool = True
    """Whether what was written down of its writer is still there."""
    fence: tuple[int, int] = (0, 0)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    staged: list[Staged] = field(default_factory=list)
    retired: set[int] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    """Retired for good."""
    pinned: set[int] = field(default_factory=set)
    abandoned: set[int] = field(default_factory=set)
    burned: int = 0
    """The highest id that a writer which let go had given out."""

    # -- reading ------------------------------------------------------------------------------------------------------

    def visible(self) -> list[int]:
        return sorted(n for n, found in self.checkpoints.items() if n not in self.retired and not found.row_gone)

    def listed(self) -> list[int]:
        """What readers are shown: with all rows gone, what earlier versions have."""
        return self.visible() or self.known()

    def known(self) -> list[int]:
        """What recovery walks over, and what is derived from: also those whose row somebody deleted."""
        return sorted(number for number in self.checkpoints if number not in self.retired)

    def walk(self, *, accept_failed: bool = False) -> tuple[int | None, list[tuple[int, str]]]:
        """What recovery chooses, and what it passes over before that with the first word of the reason."""
        skipped: list[tuple[int, str]] = []
        for number in sorted(self.checkpoints, reverse=True):
            why_not = self.why_not(number, accept_failed=accept_failed)
            if why_not is None:
                return number, skipped
            if why_not != "retired":
                skipped.append((number, why_not))
        return None, skipped

    def why_not(self, number: int, *, accept_failed: bool = False) -> str | None:
        """Why recovery cannot use a checkpoint, in one word; None when it can."""
        if number in self.retired:
            return "retired"
        if number in self.abandoned:
            return "abandoned"
        return None if self.checkpoints[number].acceptable(accept_failed=accept_failed) else "undelivered"

    # -- writing ------------------------------------------------------------------------------------------------------

    def take_over(self) -> WriterModel:
        self.generation += 1
        self.released = False
        self.holder_known = True
        self.fence = (self.generation, 0)
        # A derived one uses state that is there already.
        burned = [
            staged.number
            for staged in self.staged
            if staged.content.sources or (staged.content.states and not staged.derived)
        ]
        highest = max([self.burned, *self.checkpoints, *burned])
        return WriterModel(generation=self.generation, highest=highest, next_id=highest + 1)

    def let_go(self, writer: WriterModel) -> None:
        self.released |= self.holds(writer)
        self.burned = max(self.burned, writer.next_id - 1)

    def holds(self, writer: WriterModel) -> bool:
        return writer.generation == self.generation

    def settle(self, writer: WriterModel) -> bool:
        """What a writer in doubt does before anything else. False: it is fenced."""
        if writer.in_doubt:
            if not self.holds(writer):
                return False
            writer.turn += 1
            self.fence = (writer.generation, writer.turn)
            writer.in_doubt = False
            # What has not landed by now never will.
            writer.given_up += [staged for staged in writer.unsettled if staged in self.staged]
            writer.unsettled.clear()
        return True

    def save(self, writer: WriterModel, number: int, content: Content, stored: Stored = NOWHERE) -> str:
        """What a save comes to: saved, replayed, conflict or fenced. `stored` is where the catalog put its state."""
        if not self.settle(writer):
            return "fenced"
        if number <= writer.highest and number in self.checkpoints:
            same = number not in self.removed and self.checkpoints[number].content == content
            return "replayed" if same else "conflict"
        return self._commit(writer, self.stage(writer, number, content), stored)

    def derive(
        self,
        writer: WriterModel,
        origin: "PipelineModel",
        number: int,
        *,
        edits: Mapping[str, Mapping[str, str]] | None = None,
        accept_undelivered: bool = False,
        stored: Stored = NOWHERE,
    ) -> str:
        """What deriving comes to: saved, not found, conflict or fenced."""
        if not self.settle(writer):
            return "fenced"
        own = writer.next_id
        writer.next_id += 1
        source = origin.checkpoints.get(number)
        if source is None or number in origin.retired:
            return "not found"
        owed = not source.acceptable() or number in origin.abandoned
        if origin is self and owed and not accept_undelivered:
            return "conflict"
        if not set(edits or {}) <= set(source.content.sources):
            return "not found"
        sources = {name: {**found, **(edits or {}).get(name, {})} for name, found in source.content.sources.items()}
        content = replace(source.content, sources=sources, sinks=dict.fromkeys(source.content.sinks), parent=None)
        staged = self.stage(writer, own, content)
        self.staged[-1] = replace(staged, derived=True, over=max(self.known(), default=None), epoch=self._next_epoch())
        return self._commit(writer, self.staged[-1], stored)

    def undo(self, writer: WriterModel, stored: Stored = NOWHERE, *, accept_undelivered: bool = False) -> str:
        known = self.known()
        if not known:
            return "not found"
        over = self.checkpoints[known[-1]].over
        if over is None:
            return "conflict"
        return self.derive(writer, self, over, accept_undelivered=accept_undelivered, stored=stored)

    def _next_epoch(self) -> int:
        gone = [number for number, found in self.checkpoints.items() if found.row_gone]
        return max([0, *gone, *(found.epoch for found in self.checkpoints.values())]) + 1

    def _commit(self, writer: WriterModel, staged: Staged, stored: Stored) -> str:
        if not self.holds(writer):
            self.give_up(writer, staged)
            return "fenced"
        self.land(staged, stored)
        self._know(writer, staged.number)
        if self._keep(self.needs(staged.number)):
            return "saved"
        self.retired.add(staged.number)
        return "conflict"

    def _keep(self, needs: Collection[tuple[str, int]]) -> bool:
        """Restores what a visible checkpoint needs; whether all of it is there."""
        for name, number in needs:
            if number in self.every[name].retired:
                self.every[name].restore_needed()
        return not any(number in self.every[name].removed for name, number in needs)

    def stage(self, writer: WriterModel, number: int, content: Content) -> Staged:
        writer.turn += 1
        writer.next_id = max(writer.next_id, number + 1)
        staged = Staged(number=number, epoch=number, generation=writer.generation, content=content, turn=writer.turn)
        self.staged.append(staged)
        return staged

    def give_up(self, writer: WriterModel, staged: Staged) -> None:
        writer.given_up.append(staged)

    def doubt(self, writer: WriterModel, staged: Staged) -> None:
        writer.in_doubt = True
        writer.unsettled.append(staged)
        self._know(writer, staged.number)

    def land(self, staged: Staged, stored: Stored = NOWHERE) -> bool:
        """The one commit that makes a checkpoint; False when the fence is past it."""
        if (staged.generation, staged.turn) <= self.fence:
            return False
        self.fence = (staged.generation, staged.turn)
        self.staged.remove(staged)
        made = Checkpoint(
            number=staged.number,
            epoch=staged.epoch,
            generation=staged.generation,
            content=staged.content,
            over=staged.over,
            stored_in=stored[0],
            state_of=stored[1],
        )
        self.checkpoints[staged.number] = made
        return True

    def set_status(self, writer: WriterModel, number: int, sink: str, status: Status) -> None:
        writer.status_turn += 1
        self.checkpoints[number].changes.append((writer.generation, writer.status_turn, sink, status))

    def may_begin(self, *, accept_failed: bool = False) -> bool:
        """Whether going on from nothing is all right; nothing here is damaged beyond healing."""
        kept = [found for number, found in self.checkpoints.items() if number not in self.removed | self.abandoned]
        chosen, _ = self.walk(accept_failed=accept_failed)
        return chosen is not None or not any(found.delivered for found in kept)

    def recover(self, *, accept_failed: bool = False, start_over: bool = False) -> None:
        """What a recovery by the writer leaves behind."""
        chosen, skipped = self.walk(accept_failed=accept_failed)
        self.abandoned.update(number for number, _ in skipped)
        if start_over and chosen is None:
            kept = self.checkpoints.keys() - self.removed
            self.abandoned.update(number for number in kept if self.checkpoints[number].delivered)

    def orphans(self, *, of: WriterModel | None = None) -> list[Staged]:
        """What can never become a checkpoint: of older generations, and what the current writer itself gave up."""
        given_up = [] if of is None else of.given_up
        return [staged for staged in self.staged if staged.generation < self.generation or staged in given_up]

    # -- retention ----------------------------------------------------------------------------------------------------

    def prune(self, *, keep_last: int, keep_young: bool) -> list[int]:
        """What a policy retires. `keep_young`: it also keeps by age, and everything here is young."""
        visible = self.visible()
        kept = set(visible[-1:]) | (self.pinned & set(visible)) | set(visible[max(0, len(visible) - keep_last) :])
        kept |= {number for number in [self._resumable()] if number is not None}
        # What undoing the newest goes back to.
        kept |= {number for number in visible if number == self.checkpoints[visible[-1]].over}
        kept |= self._used_elsewhere() & set(visible)
        if keep_young:
            kept |= set(visible)
        kept = self._followed(kept, among=visible)
        return [number for number in visible if number not in kept]

    def retire(self, numbers: Collection[int]) -> None:
        """What pruning leaves behind: what is needed after all comes back."""
        self.retired.update(numbers)
        if numbers:
            self.restore_needed()

    def restore(self, number: int) -> str:
        """What restoring comes to: ok, or a conflict where something that it needs is removed."""
        if number not in self.retired:
            return "ok"
        chain = self._all_needed(number)
        if any(other in self.every[name].removed for name, other in chain):
            return "conflict"
        self.retired -= {number, *(other for name, other in chain if name == self.name)}
        assert self._keep(chain)
        return "ok"

    def _all_needed(self, number: int) -> set[tuple[str, int]]:
        found: set[tuple[str, int]] = set()
        todo = [(self.name, number)]
        while todo:
            name, one = todo.pop()
            there = self.every[name].checkpoints.get(one)
            more = set() if there is None or there.row_gone else {*self.every[name].needs(one)} - found
            found |= more
            todo.extend(more)
        return found

    def restore_needed(self) -> None:
        self.retired -= self._needed() - self.removed

    def remove(self) -> list[int]:
        """What maintenance without a grace period removes."""
        gone = sorted(self.retired - self.removed - self.pinned - self._needed(lost=True))
        self.removed.update(gone)
        for number in self.removed:
            found = self.checkpoints[number]
            found.row_gone = found.sources_gone = True
        self.staged = [staged for staged in self.staged if staged.number not in self.removed]
        return gone

    def only_in_the_past(self) -> bool:
        """Whether what is pinned, the newest, or what recovery goes back to is damaged now: an earlier version has its only
        good copy.
        """
        chosen, _ = self.walk()
        if chosen is not None and any(kind != "Committed" for kind, _ in self.checkpoints[chosen].statuses.values()):
            return True
        found = {*self.pinned, *self.known()[-1:], *([] if chosen is None else [chosen])}
        return any(not self.checkpoints[number].intact for number in found)

    def needs(self, number: int) -> list[tuple[str, int]]:
        found = self.checkpoints[number]
        needed = [] if found.content.parent is None else [(self.name, found.content.parent)]
        needed += [(self.name, other) for other in sorted(found.stored_in)]
        return needed if found.state_of is None else [*needed, found.state_of]

    def _needed(self, *, lost: bool = False) -> set[int]:
        """What visible checkpoints, of this pipeline or others, need or are; `lost`: those too whose row somebody deleted."""
        there = [n for n, found in self.checkpoints.items() if not found.row_gone or (lost and n not in self.removed)]
        visible = self.known() if lost else self.visible()
        return self._followed({*visible, *self._used_elsewhere(lost=lost)}, among=there)

    def _used_elsewhere(self, *, lost: bool = False) -> set[int]:
        others = [other for other in self.every.values() if other is not self]
        visible = [(other, other.known() if lost else other.visible()) for other in others]
        used = [other.checkpoints[number].state_of for other, numbers in visible for number in numbers]
        return {state_of[1] for state_of in used if state_of is not None and state_of[0] == self.name}

    def _followed(self, roots: set[int], *, among: Collection[int]) -> set[int]:
        reached, todo = set(roots), [number for number in roots if number in among]
        while todo:
            for name, number in self.needs(todo.pop()):
                if name == self.name and number in among and number not in reached:
                    reached.add(number)
                    todo.append(number)
        return reached

    def _resumable(self) -> int | None:
        candidates = [n for n in self.visible() if n not in self.abandoned and self.checkpoints[n].delivered]
        return max(candidates, default=None)

    def _know(self, writer: WriterModel, number: int) -> None:
        writer.highest = max(writer.highest, number)
        writer.next_id = max(writer.next_id, number + 1)
