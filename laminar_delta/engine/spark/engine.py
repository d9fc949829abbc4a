"""Delta through Spark SQL.

Every statement runs in a session of the engine's own (`session.py`), is stamped, and is looked for in the log before it is
answered (`commits.py`), because Spark says nothing when a fence kept it out.

Only SQL and DataFrames are used, so that the same code runs on Connect; `writeTo` and not `save`, which would make a new table
where one was removed. On a local disk writes take turns under the catalog's lock, because Spark's log store there can overwrite
a concurrent commit, and are flushed before they are answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.engine.answer import Commit
from laminar_delta.engine.base import Metadata
from laminar_delta.engine.predicate import Dialect, Literal, Predicate
from laminar_delta.engine.request import Merge, Stamp, stamp
from laminar_delta.engine.settle import Settled
from laminar_delta.engine.spark.ddl import SQL
from laminar_delta.engine.spark.faults import GuardFailed, committing, reading
from laminar_delta.engine.spark.merge import SOURCE_VIEW, acts_on_every_row, effect_query, merge_statement
from laminar_delta.engine.spark.session import frame, stamped
from laminar_delta.engine.spark.upkeep import SparkUpkeep
from laminar_delta.errors import LaminarDeltaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_FILE_BYTES = 64 << 20
"""About how much goes into one data file of an append; small appends make one."""


class SparkEngine(SparkUpkeep):
    """Delta tables below a directory or an object-store URI, or in a schema of Spark's catalogs.

    Here is what writes; below it `SparkUpkeep`, `SparkReader` and `SparkTables`.
    """

    name: ClassVar[str] = "spark"
    persistent: ClassVar[bool] = True
    many_fences: ClassVar[bool] = False
    beyond = frozenset({"append_frame", "frame"})
    dialect: ClassVar[Dialect] = SQL

    def _append(self, table: str, rows: pa.Table, made: Stamp) -> int:
        with reading(table):
            prepared = frame(self._own.main, rows).coalesce(1 + rows.nbytes // _FILE_BYTES)
        return self._append_frame(table, prepared, made)

    def append_frame(
        self,
        table: str,
        rows: DataFrame,
        *,
        metadata: Metadata | None = None,
        key: Mapping[str, Literal] | None = None,
    ) -> Commit:
        """Appends a frame of the user's own session as one commit: what executors make does not pass through the driver."""
        made = stamp((), metadata)
        settled = self._settlement(table, made, key).run(
            lambda: Settled(self._append_frame(table, rows, made)), retry=True
        )
        return Commit(version=settled.version, commit_id=made.commit_id, replayed=settled.replayed)

    def _append_frame(self, table: str, prepared: DataFrame, made: Stamp) -> int:
        with self._turn(table) as before:
            with committing(table, local=before is not None):
                writer = prepared.writeTo(self._places.reference(table)).option("userMetadata", made.user_metadata)
                for fence in made.fences:
                    writer = writer.option("txnAppId", fence.application_id).option("txnVersion", str(fence.version))
                writer.append()
            version = self._commits.made(table, made, before)
            if version is None:
                raise self._commits.skipped(table, made, before)
            return version

    def _commit_fence(self, table: str, made: Stamp) -> int:
        return self._append(table, self.schema(table).empty_table(), made)

    def _merge(self, table: str, rows: pa.Table, merge: Merge, made: Stamp) -> Settled:
        reference = self._places.reference(table)
        statement = merge_statement(reference, merge, rows.column_names, fenced=bool(made.fences))
        # Spark would commit the fence of a merge without effect. Whether it stands is still to be asked.
        asking = f"DELETE FROM {reference} WHERE FALSE"
        with self._turn(table) as before, self._own.borrowed() as session:
            with reading(table):
                frame(session, rows).createOrReplaceTempView(SOURCE_VIEW)
            try:
                if statement is None or (made.fences and self._is_idle(session, table, merge, rows)):
                    return self._run(session, table, asking, made, before)
                with suppress(GuardFailed):
                    return self._run(session, table, statement, made, before)
                # Another commit came since it was looked at.
                return self._run(session, table, asking, made, before)
            finally:
                # What became of the merge is told above; a view left behind is replaced by the next one.
                with suppress(LaminarDeltaError), reading(table):
                    session.catalog.dropTempView(SOURCE_VIEW)

    def _is_idle(self, session: SparkSession, table: str, merge: Merge, rows: pa.Table) -> bool:
        """Whether a merge would change nothing."""
        if rows.num_rows > 0 and acts_on_every_row(merge):
            return False
        with reading(table):
            return not session.sql(effect_query(self._places.reference(table), merge)).collect()

    def _delete(self, table: str, where: Predicate, made: Stamp) -> Settled:
        statement = f"DELETE FROM {self._places.reference(table)} WHERE {where.sql(SQL)}"
        with self._turn(table) as before, self._own.borrowed() as session:
            return self._run(session, table, statement, made, before)

    def _run(self, session: SparkSession, table: str, statement: str, made: Stamp, before: int | None) -> Settled:
        """One MERGE or DELETE under its fence, and what it came to."""
        with committing(table, local=before is not None), stamped(session, made):
            told = session.sql(statement).collect()
        if not told:
            raise self._commits.skipped(table, made, before)
        counts = told[0].asDict()
        affected = counts["num_affected_rows"]
        # No row touched is no version, unless a fenced merge came to be without effect after it was looked at.
        idle = affected == 0 and not ("num_inserted_rows" in counts and made.fences)
        return Settled(
            None if idle else self._commits.made(table, made, before),
            inserted=counts.get("num_inserted_rows", 0),
            updated=counts.get("num_updated_rows", 0),
            deleted=counts.get("num_deleted_rows", affected),
        )
