"""Maintenance through Spark's statements and, for the log on a local disk, through its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from laminar_delta.engine.base import Metadata
from laminar_delta.engine.predicate import quote_name
from laminar_delta.engine.request import Stamp, stamp
from laminar_delta.engine.spark import files
from laminar_delta.engine.spark.ddl import SQL
from laminar_delta.engine.spark.faults import reading
from laminar_delta.engine.spark.reading import SparkReader
from laminar_delta.engine.spark.session import stamped
from laminar_delta.errors import ErrorCode, InvalidInputError


class SparkUpkeep(SparkReader):
    """What keeps the tables quick and small."""

    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """See `Engine.optimize`."""
        statement = f"OPTIMIZE {self._places.reference(table)}"
        if order_by:
            statement += f" ZORDER BY ({', '.join(quote_name(name, SQL) for name in order_by)})"
        return self._maintain(table, statement, stamp((), metadata))

    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """See `Engine.restore`."""
        statement = f"RESTORE TABLE {self._places.reference(table)} TO VERSION AS OF {version}"
        made = self._maintain(table, statement, stamp((), metadata), version)
        # Spark makes no version when the one asked for is the newest.
        return self.version(table) if made is None else made

    def vacuum(
        self,
        table: str,
        *,
        older_than_hours: int | None = None,
        dry_run: bool = True,
        metadata: Metadata | None = None,
    ) -> list[str]:
        """See `Engine.vacuum`."""
        statement = f"VACUUM {self._places.reference(table)}"
        if older_than_hours is not None:
            statement += f" RETAIN {older_than_hours} HOURS"
        home = f"{self._places.detail(table)['location']}/"
        with self._own.borrowed() as session, reading(table):
            named = [row[0].removeprefix(home) for row in session.sql(f"{statement} DRY RUN").collect()]
        if not dry_run:
            self._maintain(table, statement, stamp((), {"operation": "vacuum", **(metadata or {})}))
        return named

    def log_checkpoint(self, table: str) -> None:
        """See `Engine.log_checkpoint`."""
        directory = self._local_directory(table, "writes log checkpoints")
        with self._turn(table):
            files.write_log_checkpoint(table, directory)

    def clean_log(self, table: str) -> None:
        """See `Engine.clean_log`."""
        directory = self._local_directory(table, "cleans the log")
        with self._turn(table):
            files.clean_log(table, directory)

    def _maintain(self, table: str, statement: str, made: Stamp, version: int | None = None) -> int | None:
        """One statement of maintenance, and the version it made. It changes no rows, so it can be repeated after any error."""
        with self._turn(table) as before:
            with self._own.borrowed() as session, reading(table, version), stamped(session, made):
                session.sql(statement).collect()
            return self._commits.made(table, made, before)

    def _local_directory(self, table: str, what: str) -> Path:
        directory = self._places.directory(table)
        if directory is None:
            raise InvalidInputError(
                f"table {table!r} is not on this machine's disk: there Spark {what} by itself",
                code=ErrorCode.UNSUPPORTED,
                expected="a table on a local disk",
                found=self.location,
                next_step="Set delta.checkpointInterval and delta.enableExpiredLogCleanup on the table instead.",
            )
        return directory
