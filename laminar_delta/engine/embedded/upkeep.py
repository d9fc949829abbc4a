"""Maintenance through delta-rs.

Its own hooks after a commit are off: they remove log entries before the log checkpoint that replaces them is on the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from laminar_delta.engine.base import Metadata
from laminar_delta.engine.deltars import upkeep
from laminar_delta.engine.embedded.reading import EmbeddedReader
from laminar_delta.engine.embedded.tables import NO_HOOKS, commit_properties
from laminar_delta.engine.request import stamp

ORDERED_FILE_BYTES = 1 << 20
"""About how large the files of an unpartitioned table become when it is compacted in an order: some ten thousand checkpoints. A
reader of one pipeline opens the one or two that have it; at delta-rs's own 100 MB one file would have them all."""


class EmbeddedUpkeep(EmbeddedReader):
    """What keeps the tables quick and small."""

    def optimize(self, table: str, *, order_by: Sequence[str] = (), metadata: Metadata | None = None) -> int | None:
        """See `Engine.optimize`."""
        made = stamp((), metadata)
        with self._turn():
            handle = self._open(table)
            before = int(handle.version())
            with self._maintaining(table):
                if order_by:
                    partitioned = bool(handle.metadata().partition_columns)
                    handle.optimize.z_order(
                        # By the first alone: delta-rs looks at 16 bytes of each column and interleaves them, so that numbers
                        # in a second column would scatter names that have their first eight characters in common. Of a name
                        # that is its first 14 bytes; it has no way to go by more (docs/adr/0013).
                        list(order_by[:1]),
                        target_size=None if partitioned else ORDERED_FILE_BYTES,
                        commit_properties=commit_properties(made),
                        post_commithook_properties=NO_HOOKS,
                    )
                else:
                    handle.optimize.compact(
                        commit_properties=commit_properties(made), post_commithook_properties=NO_HOOKS
                    )
            after = self.version(table)
            if after == before:
                return None
            # Compaction of a partitioned table can make several commits.
            for version in range(before + 1, after + 1):
                self._make_durable(table, version)
            return after

    def log_checkpoint(self, table: str) -> None:
        """See `Engine.log_checkpoint`."""
        with self._turn():
            self._write_log_checkpoint(table)

    def clean_log(self, table: str) -> None:
        """See `Engine.clean_log`."""
        with self._turn():
            handle = self._open(table)
            with self._maintaining(table):
                upkeep.clean_log(handle, self._root / table if self._root is not None else None)

    def vacuum(
        self,
        table: str,
        *,
        older_than_hours: int | None = None,
        dry_run: bool = True,
        metadata: Metadata | None = None,
    ) -> list[str]:
        """See `Engine.vacuum`."""
        # A look waits for nobody, and whoever may only read can have one.
        with nullcontext() if dry_run else self._turn():
            handle = self._open(table)
            with self._maintaining(table):
                # `full` lists the directory, so that files of writes that never committed go too.
                found = handle.vacuum(
                    retention_hours=older_than_hours,
                    dry_run=dry_run,
                    enforce_retention_duration=False,
                    full=True,
                    commit_properties=commit_properties(stamp((), {"operation": "vacuum", **(metadata or {})})),
                    post_commithook_properties=NO_HOOKS,
                )
            unfinished = upkeep.remove_unfinished(self._root / table, dry_run=dry_run) if self._root is not None else []
            return [*found, *unfinished]

    def restore(self, table: str, version: int, *, metadata: Metadata | None = None) -> int:
        """See `Engine.restore`."""
        made = stamp((), metadata)
        with self._turn():
            self._open(table, version)
            handle = self._open(table)
            with self._maintaining(table):
                handle.restore(version, commit_properties=commit_properties(made), post_commithook_properties=NO_HOOKS)
            return self._acknowledge(table, self._find_commit(table, made))
