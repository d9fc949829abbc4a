"""What all rules share: the catalog, the model of it, what is drawn, and what it means that the two agree."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

import laminar_delta as ld
from laminar_delta.catalog.checkpoints import all_heads
from laminar_delta.catalog.pipeline import Pipeline
from laminar_delta.catalog.writer import Writer
from laminar_delta.engine.predicate import col
from laminar_delta.errors import LaminarDeltaError
from laminar_delta.model import CheckpointManifest, ConnectorCheckpoint, RecoveryReport, SinkCommitStatus
from laminar_delta.model.status import SinkCommitKind
from tests.support.model import Checkpoint, Content, Staged, Status, WriterModel
from tests.support.pipeline_model import NOWHERE, PipelineModel, Stored

PIPELINES = ("orders", "returns")

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


@dataclass(frozen=True)
class Held:
    """A writer and what the model knows of it."""

    real: Writer
    model: WriterModel

    def __repr__(self) -> str:
        return f"the writer of generation {self.model.generation}"


class Machine(RuleBasedStateMachine):
    """A catalog and its model."""

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

    # -- agreeing -----------------------------------------------------------------------------------------------------

    @invariant()
    def lists_what_is_visible(self) -> None:
        for name, model in self.models.items():
            if not model.generation:
                continue
            pipeline = self.pipeline(name)
            assert [head.checkpoint_id for head in pipeline.list()] == model.listed()
            if self.thorough:
                self.agrees(name, pipeline.recover(dry_run=True))

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:
            return  # a step has failed: what it left is of no interest
        for name, found in self.all():
            self.look_at(name, found)
        for name, model in self.models.items():
            latest = self.told(self.pipeline(name).latest)
            visible = model.listed()
            if not visible:
                assert latest == ("ok", None)
            else:
                assert latest[0] == "ok"
                assert latest[1].checkpoint_id == visible[-1]
            self.agrees(name, self.pipeline(name).recover(dry_run=True))
        self.catalog.close()

    def look_at(self, name: str, found: Checkpoint) -> None:
        pipeline, retired = self.pipeline(name), found.number in self.models[name].retired
        told, manifest = self.told(lambda: pipeline.get(found.number))
        if retired:
            assert told == "NotFoundError"
        else:
            assert told == "ok"
            assert_what_was_saved(manifest, found, found.statuses)
        told, result = self.told(lambda: pipeline.validate(found.number))
        if found.number in self.models[name].removed:
            assert told == "NotFoundError"
            return
        assert told == "ok"
        if found.row_gone:
            assert [finding.code for finding in result.findings] == ["manifest-gone"]
            return
        assert result.valid == found.intact
        state = pipeline.state(found.number)
        every = {**found.content.states, **{(operator, 0): at for operator, at in found.content.inline.items()}}
        for (operator, partition), expected in every.items():
            told, content = self.told(partial(state.read, operator, partition))
            assert (told, content) == ("ok", expected)

    def agrees(
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
            used = model.checkpoints[report.chosen_id]
            assert_what_was_saved(report.manifest, used, used.told)

    # -- inside -------------------------------------------------------------------------------------------------------

    def stored(self, name: str, number: int) -> Stored:
        """Where the state of a checkpoint is, as its row says: a choice of the catalog's that the model takes as it is."""
        where = col("pipeline").eq(name) & col("checkpoint_id").eq(number)
        for head in all_heads(self.catalog.reading, where):
            state_of = None
            if head.state_pipeline is not None and head.state_checkpoint_id is not None:
                state_of = (head.state_pipeline, head.state_checkpoint_id)
            return frozenset(head.state_needs or ()), state_of
        return NOWHERE

    def told(self, action: Callable[[], Any]) -> tuple[str, Any]:
        """What a caller is told: the result, or the error's class."""
        try:
            return "ok", action()
        except LaminarDeltaError as error:
            return type(error).__name__, error

    def pipeline(self, name: str) -> Pipeline:
        return self.catalog.pipeline(name)

    def all(self) -> list[tuple[str, Checkpoint]]:
        return [(name, model.checkpoints[n]) for name, model in self.models.items() for n in sorted(model.checkpoints)]

    def draw_checkpoint(self, data: st.DataObject) -> tuple[str, Checkpoint]:
        return data.draw(st.sampled_from(self.all()[::-1]))

    def draw_writer(self, data: st.DataObject, name: str | None = None) -> tuple[str, Held]:
        """Mostly the current one."""
        if name is None:
            drawn = data.draw(pipelines)
            name = drawn if self.writers[drawn] else next(name for name, found in self.writers.items() if found)
        *zombies, current = self.writers[name]
        return name, data.draw(st.sampled_from([current, current, current, *zombies[-2:]]))


def manifest_of(number: int, content: Content) -> CheckpointManifest:
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
        sink_commit_statuses={name: status_of(status) for name, status in content.sinks.items() if status is not None},
        sink_names=tuple(sorted(content.sinks)),
        watermark=content.watermark,
        parent_id=content.parent,
        is_incremental=content.parent is not None,
    )


def assert_what_was_saved(manifest: CheckpointManifest, found: Checkpoint, statuses: Mapping[str, Status]) -> None:
    content = found.content
    assert (manifest.checkpoint_id, manifest.epoch) == (found.number, found.epoch)
    assert {name: dict(source.offsets) for name, source in manifest.source_offsets.items()} == content.sources
    assert (manifest.watermark, manifest.parent_id) == (content.watermark, content.parent)
    assert set(manifest.operator_states) == {operator for operator, _ in content.states} | set(content.inline)
    assert {n: (s.kind.value, s.message) for n, s in manifest.sink_commit_statuses.items()} == statuses


def status_of(status: Status) -> SinkCommitStatus:
    return SinkCommitStatus(kind=SinkCommitKind(status[0]), message=status[1])
