"""Sharing the states of a checkpoint out among tasks: as few as keep all cores busy, each with about as many bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.state.applying import applied
from laminar_delta.catalog.state.together import stream_each
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.state.checkpoint_state import CheckpointState
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout

TASKS_PER_CORE = 4
"""A task takes Spark as long as reading many a small state; with several for a core, nobody waits long for the last."""
TASKS_UNASKED = 256
"""Where Spark does not tell how many cores there are."""
KEY_BYTES = 64 << 10
"""What a state costs beside its bytes, in bytes that are read meanwhile."""
SMALL_BYTES = 1 << 20
"""States up to which many are read with one look, and whole."""


def most_tasks(spark: SparkSession) -> int:
    """Into how many tasks a load is divided at most."""
    try:
        return TASKS_PER_CORE * int(spark.sparkContext.defaultParallelism)
    except (PySparkException, AttributeError):
        # Spark Connect has no context to ask.
        return TASKS_UNASKED


def packs(lengths: Mapping[Key, int], most: int) -> list[list[Key]]:
    """Keys for at most so many tasks, of about as many bytes each. Neighbours together: they lie beside each other."""
    total = sum(lengths.values()) + KEY_BYTES * len(lengths)
    found: dict[int, list[Key]] = {}
    before = 0
    for key in sorted(lengths):
        own = lengths[key] + KEY_BYTES
        # By its middle: whichever of the equal shares most of it is in.
        found.setdefault((2 * before + own) * most // (2 * total), []).append(key)
        before += own
    return list(found.values())


def each_state(state: CheckpointState, keys: Sequence[Key]) -> Iterator[tuple[Key, Iterator[bytes | memoryview]]]:
    """Some states in pieces, small ones read many at a time; where that meets damage, each by itself: healed, or named."""
    left = dict.fromkeys(keys)
    for layouts in _small(state, keys):
        try:
            for members, states in stream_each(state.reading, state.owner, state.lines(layouts)):
                payload = _whole(members, states)
                if payload is not None:
                    key = members[-1].operator, members[-1].partition
                    del left[key]
                    yield key, iter((payload,))
        except (CorruptionError, StorageError) as damage:
            raise_unless_damage(damage)
    for key in left:
        yield key, state.pieces(*key)


def _whole(members: Sequence[Layout], states: Sequence[Iterator[memoryview]]) -> bytes | None:
    """A state; None where it is damaged."""
    try:
        return b"".join(applied(members, states))
    except (CorruptionError, StorageError) as damage:
        raise_unless_damage(damage)
        return None


def _small(state: CheckpointState, keys: Sequence[Key]) -> Iterator[list[Layout]]:
    """The layouts of small states among keys, by operator; none where they cannot be read."""
    inline = state.inline()
    for operator, own in groupby(keys, key=lambda key: key[0]):
        partitions = {partition for _, partition in own if partition != 0 or operator not in inline}
        if len(partitions) < 2:
            continue
        where = col("operator").eq(operator) & col("partition").ge(min(partitions))
        try:
            found = state.present(where & col("partition").le(max(partitions)))
        except (CorruptionError, StorageError) as damage:
            raise_unless_damage(damage)
            continue
        yield [layout for layout in found if layout.partition in partitions and layout.length <= SMALL_BYTES]
