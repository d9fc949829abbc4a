"""Batches without a JVM: a checkpoint directory as Spark writes it, frames that stand in for Spark's, sinks to look into."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.errors import PySparkException

import laminar_delta as ld
from laminar_delta import streaming
from laminar_delta.catalog.sinks import SinkEpoch
from laminar_delta.streaming import BatchResult, Written
from laminar_delta.streaming.delta_sink import CLOSED
from laminar_delta.streaming.lines import Line

SAID = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1_700_000_000_000, "conf": {}})
COMPACTED_EVERY = 10


class Frame:
    """What `foreachBatch` hands over, as far as anybody asks: numbers, a schema, and whether it was run for nobody."""

    def __init__(self, *numbers: int, schema: str = "id long") -> None:
        self.numbers = numbers
        self.sparkSession: object = object()  # no classic session: the query is known by its directory
        self.ran = 0
        self._schema = schema

    @property
    def schema(self) -> Any:
        return _Schema(self._schema)

    @property
    def write(self) -> Frame:
        return self

    def format(self, name: str) -> Frame:
        assert name == "noop"
        return self

    def mode(self, name: str) -> Frame:
        assert name == "overwrite"
        return self

    def save(self) -> None:
        self.ran += 1


@dataclass(frozen=True)
class _Schema:
    text: str

    def json(self) -> str:
        return self.text


class KeptSink:
    """A sink in memory that outlives a run: redrivable, and it recognises nothing by itself."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.shown: list[tuple[int, ...]] = []
        self.failing: Exception | None = None
        self._given: list[Any] = []
        self._held: dict[SinkEpoch, list[Any]] = {}

    def write(self, frame: Any) -> None:
        self._given.append(frame)

    def pre_commit(self, epoch: SinkEpoch) -> None:
        self._held[epoch], self._given = self._given, []

    def commit(self, epoch: SinkEpoch) -> None:
        if self.failing is not None:
            raise self.failing
        self.shown.extend(frame.numbers for frame in self._held.pop(epoch, []))

    def abort(self, epoch: SinkEpoch) -> None:
        self._held.pop(epoch, None)

    def landed(self, epoch: SinkEpoch) -> bool | None:
        return epoch not in self._held

    def prepared(self) -> Iterable[SinkEpoch]:
        return list(self._held)


class TableSink:
    """A sink that knows batches by line and number, as a Delta table does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.batches: dict[tuple[str, int], tuple[int, ...]] = {}
        self.failing: Exception | None = None
        self._line: Line | None = None
        self._given: Any = None
        self._outcome = Written.NOTHING

    def follow(
        self,
        spark: Any,
        pipeline: str,
        line: Line | None,
        batches: Mapping[SinkEpoch, tuple[Line, int]],
        **told: Any,
    ) -> None:
        self._line, self._earlier = line, batches

    def write(self, frame: Any) -> None:
        self._given = frame

    def pre_commit(self, epoch: SinkEpoch) -> None:
        pass

    def commit(self, epoch: SinkEpoch) -> None:
        if self.failing is not None:
            raise self.failing
        given, self._given = self._given, None
        if given is None:
            self._outcome = Written.NOTHING
            return
        assert self._line is not None
        key = self._line.application_id, epoch.number - 1
        self._outcome = Written.FOUND if key in self.batches else Written.WRITTEN
        self.batches.setdefault(key, given.numbers)

    def abort(self, epoch: SinkEpoch) -> None:
        self._given = None

    def landed(self, epoch: SinkEpoch) -> bool | None:
        line, batch = self._earlier[epoch]
        return (line.application_id, batch) in self.batches

    def close_line(self, line: Line) -> bool:
        return True

    def outcome(self, epoch: SinkEpoch) -> Written:
        return self._outcome


class Asked:
    """A session that can be asked about Delta tables: delta-rs reads them, in the place of Spark."""

    def __init__(self, rows: list[Any] | None = None) -> None:
        self._rows = rows or []

    @property
    def read(self) -> Asked:
        return self

    def format(self, name: str) -> Asked:
        assert name == "delta"
        return self

    def load(self, path: str) -> DeltaFrame:
        _table(path)
        return DeltaFrame()

    def sql(self, text: str) -> Asked:
        asked = re.fullmatch(r"DESCRIBE (DETAIL|HISTORY) delta\.`(.+)`(?: LIMIT (\d+))?", text)
        assert asked is not None
        what, path, limit = asked.groups()
        table = _table(path)
        if limit is not None:
            return Asked([_Commit(found) for found in table.history(int(limit))])
        if what == "DETAIL":
            said = table.metadata()
            return Asked([{"id": said.id, "properties": dict(said.configuration)}])
        versions = [commit["version"] for commit in table.history()]
        return Asked([(min(versions), max(versions))])

    def select(self, *columns: str) -> Asked:
        rows = [tuple(row[name] for name in columns) if isinstance(row, dict) else row for row in self._rows]
        return Asked(rows)

    selectExpr = select  # noqa: N815  # Spark's name

    def collect(self) -> list[Any]:
        return self._rows


@dataclass(frozen=True)
class _Commit:
    told: Mapping[str, Any]

    def asDict(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        return {"version": self.told["version"], "userMetadata": self.told.get("userMetadata")}


class _NoTable(PySparkException):
    def getCondition(self) -> str:  # noqa: N802  # Spark's name
        return "PATH_NOT_FOUND"


def _table(path: str) -> DeltaTable:
    if not DeltaTable.is_deltatable(path):
        raise _NoTable(f"there is no table at {path}")
    return DeltaTable(path)


class DeltaFrame(Frame):
    """A batch that a Delta table can be given: delta-rs writes it, and skips it as Delta does."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(*numbers)
        self.sparkSession = Asked()
        self._mode, self._options = "", dict[str, str]()

    @property
    def write(self) -> DeltaFrame:
        return self

    def limit(self, number: int) -> DeltaFrame:
        return DeltaFrame(*self.numbers[:number])

    def format(self, name: str) -> DeltaFrame:
        assert name in ("delta", "noop")
        return self

    def mode(self, name: str) -> DeltaFrame:
        self._mode = name
        return self

    def options(self, **options: str) -> DeltaFrame:
        self._options = options
        return self

    def before_writing(self, number: int) -> None:
        """Told of the number under which a table is about to be written."""

    def save(self, path: str | None = None) -> None:
        if path is None:
            self.ran += 1
            return
        line, number = self._options["txnAppId"], int(self._options["txnVersion"])
        self.before_writing(number)
        there = DeltaTable(path).transaction_version(line) if DeltaTable.is_deltatable(path) else None
        if there is not None and there >= number:
            return
        told = CommitProperties(
            custom_metadata={"userMetadata": self._options["userMetadata"]},
            app_transactions=[Transaction(line, number)],
        )
        rows = pa.table({"id": pa.array(self.numbers, pa.int64())})
        assert self._mode in ("append", "overwrite")
        write_deltalake(path, rows, mode="append" if self._mode == "append" else "overwrite", commit_properties=told)


class FailingFrame(DeltaFrame):
    """One that cannot be written, though its table can: closing a line still works."""

    def before_writing(self, number: int) -> None:
        if number < CLOSED:
            raise PySparkException("the store is down")


def said_by(path: str) -> list[dict[str, Any]]:
    """What the commits to a table say of themselves, the oldest first."""
    told = [commit["userMetadata"] for commit in reversed(DeltaTable(path).history()) if "userMetadata" in commit]
    return [json.loads(one)["laminar"] for one in told]


def numbers_in(path: str) -> list[int]:
    """The numbers in a table."""
    files: list[Any] = [pq.read_table(uri, columns=["id"]) for uri in DeltaTable(path).file_uris()]
    return sorted(number for file in files for number in file["id"].to_pylist())


def forget_commits(path: str, but: int) -> None:
    """What log clean-up does: of the commits only the newest are kept, beside what they came to."""
    DeltaTable(path).create_checkpoint()
    for entry in sorted(Path(path, "_delta_log").glob("*.json"))[:-but]:
        entry.unlink()


@dataclass
class Planned:
    """A query over files, each batch one file, as far as its directory tells."""

    home: Path
    query_id: str = field(default_factory=lambda: str(uuid4()))
    offset: Callable[[int], str] = '{{"logOffset":{}}}'.format
    """What the source says after a batch."""

    def __post_init__(self) -> None:
        for name in ("offsets", "commits", "sources/0"):
            (self.home / name).mkdir(parents=True, exist_ok=True)
        (self.home / "metadata").write_text(json.dumps({"id": self.query_id}))

    def plan(self, batch: int, *paths: str) -> None:
        """Writes down what a batch reads; every tenth entry of the source's log holds all before it."""
        (self.home / "offsets" / str(batch)).write_text(f"v1\n{SAID}\n{self.offset(batch)}")
        own = [
            json.dumps({"path": path, "timestamp": 1, "batchId": batch}, separators=(",", ":"))
            for path in paths or (f"file:///in/{batch}.json",)
        ]
        log = self.home / "sources" / "0"
        if (batch + 1) % COMPACTED_EVERY:
            (log / str(batch)).write_text("\n".join(["v1", *own]))
            return
        last = batch - COMPACTED_EVERY
        names = [*([f"{last}.compact"] if last >= 0 else []), *map(str, range(last + 1, batch))]
        before = [line for name in names for line in (log / name).read_text().split("\n")[1:]]
        (log / f"{batch}.compact").write_text("\n".join(["v1", *before, *own]))

    def deliver(
        self, catalog: ld.Catalog, fn: Callable[..., Any], sinks: Iterable[Any] = (), **options: Any
    ) -> streaming.ForeachBatch:
        return streaming.foreach_batch(
            catalog, "orders", fn, sinks=list(sinks), checkpoint_location=str(self.home), **options
        )

    def run(
        self,
        catalog: ld.Catalog,
        batch: int,
        frame: Frame,
        fn: Callable[..., Any],
        sinks: Iterable[Any] = (),
        **options: Any,
    ) -> BatchResult:
        """One start of the query that comes to one batch."""
        self.plan(batch)
        deliver = self.deliver(catalog, fn, sinks, **options)
        deliver(frame, batch)  # type: ignore[arg-type]  # stands in for Spark's
        assert deliver.last is not None
        return deliver.last
