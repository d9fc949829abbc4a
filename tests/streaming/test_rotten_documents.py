"""A batch over thousands of files: its log entries do not fit into the checkpoint's row, and rot. It is run anew."""

from pathlib import Path
from typing import Any

import pytest

import laminar_delta as ld
from laminar_delta.catalog.sinks import Step, When
from laminar_delta.errors import ConflictError
from laminar_delta.streaming import Delivery, DeltaSink, Written, restore_spark_checkpoint
from tests.support.stream_plans import DeltaFrame, Planned, numbers_in


class KilledError(BaseException):
    """Ends a batch where it is."""


class ManyFiles(Planned):
    def plan(self, batch: int, *paths: str) -> None:
        super().plan(batch, *(paths or (f"file:///in/{batch}/{number:060}.json" for number in range(2000))))


class Rotten:
    """A query whose second batch was saved, and killed at a point; then what the catalog keeps of its log entries rots."""

    def __init__(self, home: Path, at: tuple[Step, When]) -> None:
        self.home, self.sink = home, str(home / "out")
        self.catalog = ld.open_catalog(str(home / "catalog"))
        self.query = ManyFiles(home / "query", "q")
        self.run()

        def observe(step: Any, when: When) -> None:
            if (step, when) == at:
                raise KilledError

        before = set(self.files())
        with pytest.raises(KilledError):
            self.run(1, observe=observe)
        (file,) = set(self.files()) - before
        kept = bytearray(file.read_bytes())
        kept[200:260] = bytes(byte ^ 0xFF for byte in kept[200:260])
        file.write_bytes(kept)
        self.catalog = ld.open_catalog(str(home / "catalog"))

    def files(self) -> list[Path]:
        return list((self.home / "catalog" / "operator_snapshots").rglob("*.parquet"))

    def run(self, batch: int = 0, planned: Planned | None = None, **options: Any) -> Any:
        def to_out(frame: Any, batch: Any) -> Any:
            return {"out": frame}

        frame = DeltaFrame(batch + 1)
        return (planned or self.query).run(self.catalog, batch, frame, to_out, [DeltaSink(self.sink)], **options)


@pytest.mark.parametrize(
    ("at", "has_it"), [((Step.COMMIT, When.BEFORE), Written.WRITTEN), ((Step.COMMIT, When.AFTER), Written.FOUND)]
)
def test_the_batch_is_run_anew_and_a_table_has_it_once(tmp_path: Path, at: tuple[Step, When], has_it: Written) -> None:
    rotten = Rotten(tmp_path, at)
    again = rotten.run(1)
    assert (again.delivery, again.sinks) == (Delivery.REPLAYED_WRITTEN, {"out": has_it})
    assert rotten.run(2).delivery is Delivery.FRESH
    assert numbers_in(rotten.sink) == [1, 2, 3]


def test_a_batch_that_was_planned_anew_is_refused_all_the_same(tmp_path: Path) -> None:
    """By digests of the entries that rotted: the table has the other records under that number."""
    rotten = Rotten(tmp_path, (Step.COMMIT, When.AFTER))
    with rotten.catalog.writer("orders") as writer:
        assert writer.recover().chosen_id == 1
    rotten.query.plan(1, "file:///in/other.json")
    with rotten.query.deliver(rotten.catalog, lambda frame, batch: frame, [DeltaSink(rotten.sink)]) as deliver:
        for _ in range(2):
            with pytest.raises(ConflictError, match=r"batch 1 of query q was planned anew.*sources/0/1 differs"):
                deliver(DeltaFrame(7), 1)  # type: ignore[arg-type]  # stands in for Spark's
    assert numbers_in(rotten.sink) == [1, 2]


@pytest.mark.parametrize("is_recovered", [False, True])
def test_the_checkpoint_before_is_restored_and_rewound_to(tmp_path: Path, is_recovered: bool) -> None:
    rotten = Rotten(tmp_path, (Step.COMMIT, When.BEFORE))
    if is_recovered:
        with rotten.catalog.writer("orders") as writer:
            assert writer.recover().chosen_id == 1
    made = restore_spark_checkpoint(rotten.catalog, "orders", 1, tmp_path / "again")
    assert (made.batch_id, made.is_new_query) == (0, False)
    with rotten.catalog.writer("orders") as writer:
        writer.rewind(1, reason="again")
    assert rotten.run(1, ManyFiles(tmp_path / "again", made.query_id)).delivery is Delivery.FRESH
    assert numbers_in(rotten.sink) == [1, 2]
