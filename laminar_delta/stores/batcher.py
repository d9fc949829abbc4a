"""LaminarDB's `CheckpointBatcher`: collects state blobs and writes them as one compressed batch.

    batcher = CheckpointBatcher(CatalogTarget(catalog, "orders"))
    batcher.add("partition-0/agg", data)
    if batcher.should_flush():
        batcher.flush(epoch)

What LaminarDB loses is kept: a second flush of an epoch is a second batch beside the first, a failed flush leaves
everything in the buffer, and one whose outcome is unknown is written once, however often it is tried. Batches are read
back with `catalog.batches.StateBatches`, or with `interop.BatchFiles` where they were written to files.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from laminar_delta.catalog.batches import BatchAppender
from laminar_delta.catalog.pipeline import default_owner
from laminar_delta.codec import MAX_BATCH_BYTES, encode_batch, parse_header
from laminar_delta.codec.lcb1 import ENTRY_COST_BYTES, KEY_COST_FACTOR
from laminar_delta.errors import InvalidInputError, LaminarDeltaError, is_certain
from laminar_delta.model import check_u64, new_attempt_id

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog

DEFAULT_FLUSH_THRESHOLD = 8 << 20
_LENGTHS_BYTES = 8
"""Two lengths of four bytes each: what an entry takes beside its key and data."""


class BatchTarget(Protocol):
    """Where batches go."""

    def write(self, epoch: int, payload: bytes, attempt_id: str) -> object:
        """Writes a batch durably, beside those that are there. The same attempt again writes nothing twice.

        Only a `LaminarDeltaError` other than `CommitUnknownError` says that nothing was written; after anything else the next
        flush begins with the same attempt again.
        """
        ...


class CatalogTarget:
    """The table `state_batches` of a catalog."""

    def __init__(self, catalog: Catalog, pipeline: str, *, owner: str | None = None) -> None:
        self._appender = BatchAppender(catalog.engine, pipeline, owner=owner or default_owner())

    def write(self, epoch: int, payload: bytes, attempt_id: str) -> object:
        """See `BatchTarget.write`."""
        return self._appender.append(epoch, payload, attempt_id)


@dataclass(slots=True)
class BatchMetrics:
    """Counters that only grow. The object a batcher hands out goes on counting; `snapshot` is a copy."""

    batches_flushed: int = 0
    entries_flushed: int = 0
    bytes_before_compression: int = 0
    """Of bodies, without headers."""
    bytes_after_compression: int = 0
    """Of whole batches, header included."""
    put_count: int = 0

    def snapshot(self) -> BatchMetrics:
        """The counters as they are now."""
        return BatchMetrics(
            self.batches_flushed,
            self.entries_flushed,
            self.bytes_before_compression,
            self.bytes_after_compression,
            self.put_count,
        )


@dataclass(frozen=True, slots=True)
class _Flush:
    """A batch on its way."""

    epoch: int
    payload: bytes
    attempt_id: str
    entries: int
    buffered: int


class CheckpointBatcher:
    """Accumulates state blobs and flushes them as single compressed batches. Safe to share between threads."""

    def __init__(self, target: BatchTarget, flush_threshold: int | None = None) -> None:
        """Starts with an empty buffer.

        Args:
            target: Where batches go: a `CatalogTarget`, or `interop.BatchFiles`.
            flush_threshold: From how many buffered bytes on `should_flush` says so; 8 MiB by default.
        """
        threshold = DEFAULT_FLUSH_THRESHOLD if flush_threshold is None else flush_threshold
        if threshold < 0:
            raise InvalidInputError("flush_threshold is negative", expected="0 or more", found=threshold)
        self._target = target
        self._threshold = threshold
        self._entries: list[tuple[str, bytes]] = []
        self._size = 0
        self._metrics = BatchMetrics()
        self._unknown: _Flush | None = None
        self._turn = threading.Lock()

    def add(self, key: str, data: bytes) -> None:
        """Buffers a blob under a key such as `partition-0/agg`. Never flushes by itself.

        Raises:
            InvalidInputError: The key is no valid Unicode, or the blob alone is more than a batch can hold.
        """
        try:
            length = len(key.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise InvalidInputError(f"key {key!r} is no valid Unicode: {error.reason}", found=key) from error
        blob = bytes(data)
        if _cost(length, len(blob)) > MAX_BATCH_BYTES:
            raise InvalidInputError(
                f"blob {key[:100]!r} has {len(blob)} bytes, more than a batch can hold",
                expected=MAX_BATCH_BYTES,
                found=len(blob),
            )
        with self._turn:
            self._entries.append((key, blob))
            self._size += length + len(blob) + _LENGTHS_BYTES

    def should_flush(self) -> bool:
        """Whether the buffer has reached the threshold."""
        return self._size >= self._threshold

    def buffer_size(self) -> int:
        """Bytes buffered, before compression."""
        return self._size

    def metrics(self) -> BatchMetrics:
        """The batcher's counters; they go on counting."""
        return self._metrics

    def is_empty(self) -> bool:
        """Whether nothing is buffered."""
        return not self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def flush(self, epoch: int) -> None:
        """Writes what is buffered as a batch of the epoch, or several when it is more than one can hold. Nothing if empty.

        When this raises, what was not written is still in the buffer, and the next flush writes it.

        Raises:
            CommitUnknownError: The batch may be written. The next flush finds out before it writes anything.
        """
        check_u64("epoch", epoch)
        with self._turn:
            if self._unknown is not None:
                self._write(self._unknown)
            for entries in _split(self._entries):
                self._write(_made(epoch, entries))

    def _write(self, flush: _Flush) -> None:
        self._unknown = flush
        try:
            self._target.write(flush.epoch, flush.payload, flush.attempt_id)
        except LaminarDeltaError as error:
            if is_certain(error):
                # Nothing was written, so it is like any other content of the buffer again.
                self._unknown = None
            raise
        self._unknown = None
        del self._entries[: flush.entries]
        self._size -= flush.buffered
        self._metrics.batches_flushed += 1
        self._metrics.entries_flushed += flush.entries
        self._metrics.bytes_before_compression += parse_header(flush.payload).raw_length
        self._metrics.bytes_after_compression += len(flush.payload)
        self._metrics.put_count += 1


def _made(epoch: int, entries: Sequence[tuple[str, bytes]]) -> _Flush:
    payload = encode_batch(entries)
    return _Flush(epoch, payload, new_attempt_id(), len(entries), parse_header(payload).raw_length)


def _split(entries: Sequence[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    """The entries in runs that fit a batch each; nearly always one."""
    run: list[tuple[str, bytes]] = []
    cost = 0
    for key, data in list(entries):
        own = _cost(len(key.encode("utf-8")), len(data))
        if run and cost + own > MAX_BATCH_BYTES:
            yield run
            run, cost = [], 0
        run.append((key, data))
        cost += own
    if run:
        yield run


def _cost(key_bytes: int, data_bytes: int) -> int:
    """What an entry counts for against the limit of a batch, as the codec counts it."""
    return ENTRY_COST_BYTES + KEY_COST_FACTOR * key_bytes + data_bytes
