"""Looking for a micro-batch in the catalog, and for all of those around it that a query needs to go on after it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.tables import MANIFESTS
from laminar_delta.engine.predicate import col
from laminar_delta.errors import CorruptionError, InvalidInputError, NotFoundError, StorageError
from laminar_delta.interop.sparkdir.logs import NO_OFFSET, flattened, parse_offsets
from laminar_delta.interop.sparkdir.source import DOCUMENT, ENTRIES, LISTING, SOURCES, STORE
from laminar_delta.interop.sparkdir.sourcelogs import COMPACT, log_position, own_numbers
from laminar_delta.streaming.documents import Others, document_of, is_forked, origin_of, query_and_batch
from laminar_delta.streaming.kept import KeptBatch
from laminar_delta.streaming.offsets import kafka_offsets

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.state.checkpoint_state import CheckpointState


def find_batch(catalog: Catalog, pipeline: str, checkpoint_id: int) -> KeptBatch:
    """What is kept of the batch that a checkpoint is of.

    Raises:
        NotFoundError: There is no such checkpoint, it is of no batch of Spark's, or something that is needed is not kept.
    """
    found = catalog.pipeline(pipeline)
    manifest, state = found.get(checkpoint_id), found.state(checkpoint_id)
    document = document_of(state)
    if document is None:
        raise NotFoundError(
            f"checkpoint {checkpoint_id} of pipeline {pipeline!r} is not of a micro-batch of Spark's",
            expected=f"an operator {DOCUMENT!r} with its log entries",
            found=sorted(state.inline()),
            next_step="Use `starting_options` to begin a query at its offsets.",
        )
    origin = origin_of(catalog.reading, state.row)
    query_id, batch = query_and_batch(origin, document)
    others = Others.of(catalog, query_id, origin, batch)
    planned = parse_offsets(f"offsets/{batch}", document["offsets"].encode())
    kept = KeptBatch(
        pipeline=pipeline,
        checkpoint_id=checkpoint_id,
        query_id=query_id,
        batch_id=batch,
        manifest=manifest,
        state=state,
        planned=planned,
        as_run=planned.offsets,
        offsets={batch: document["offsets"].encode()},
        commits={},
        has_later=others.has_delivered(batch),
        is_forked=is_forked(catalog.reading, state.row),
        is_capture="query_id" not in document,
        lacks_state=LISTING in state.inline() and not _has_store(state),
    )
    if not kept.is_capture:
        kept.notes.append(
            "saved by foreach_batch, without state of Spark's own: a query that has some needs `captured_in`"
        )
    _follow_edits(kept)
    _add_commit(kept, document, others)
    _add_batch_before(kept, document, others)
    _add_source_logs(kept, others)
    if not kept.has_later and not state.row["derived_how"]:
        _add_unfinished(kept, others)
    return kept


def find_captured(catalog: Catalog, pipeline: str, batch: KeptBatch) -> KeptBatch:
    """What a pipeline into which the query's directory was captured keeps of a batch. Raises `NotFoundError`."""
    external = f"{batch.query_id}/{batch.batch_id}"
    where = col("pipeline").eq(pipeline)
    rows = catalog.reading.rows(MANIFESTS, where=where, columns=["checkpoint_id", "external_id"])
    for row in rows:
        if row["external_id"] == external:
            return find_batch(catalog, pipeline, row["checkpoint_id"])
    raise NotFoundError(
        f"pipeline {pipeline!r} has no batch {batch.batch_id} of query {batch.query_id}",
        expected=external,
        found=len(rows),
        next_step="Capture the query's directory into that pipeline first.",
    )


def _made_from(kept: KeptBatch, document: Mapping[str, Any]) -> tuple[str, int] | None:
    """The checkpoint that the line of a batch began with, when it began with one."""
    said = document.get("restored_from")
    if isinstance(said, Mapping):
        return str(said["pipeline"]), int(said["checkpoint_id"])
    lineage = int(document.get("lineage") or 0)
    return (kept.pipeline, lineage) if lineage else None


def _has_store(state: CheckpointState) -> bool:
    return any(name == STORE or name.startswith(f"{STORE}/") for name in state.partitions())


def _follow_edits(kept: KeptBatch) -> None:
    """Lets Spark's entry say what the checkpoint says, where somebody moved a source with `edit_offsets`.

    Raises:
        CorruptionError: A source was moved to what is no offset.
        InvalidInputError: A source was moved whose offsets are only Spark's to write.
    """
    lines = list(kept.planned.offsets)
    for index, entry in enumerate(lines):
        found = kept.manifest.source_offsets.get(f"source-{index}")
        if found is None or found.metadata.get("spark_offset") != entry:
            continue
        kind, offsets = flattened(entry)
        if dict(found.offsets) == offsets:
            continue
        if kind != "kafka":
            raise InvalidInputError(
                f"source-{index} was moved in checkpoint {kept.checkpoint_id}, and only Kafka's offsets can be written anew",
                expected=offsets,
                found=dict(found.offsets),
                next_step="Begin the source there with `starting_options`, in a new checkpoint directory.",
            )
        lines[index] = json.dumps(kafka_offsets(f"source-{index}", found), sort_keys=True, separators=(",", ":"))
    if tuple(lines) != kept.planned.offsets:
        head = kept.offsets[kept.batch_id].decode().split("\n")[:2]
        kept.offsets[kept.batch_id] = "\n".join([*head, *lines]).encode()
        kept.planned = parse_offsets(f"offsets/{kept.batch_id}", kept.offsets[kept.batch_id])


def _add_commit(kept: KeptBatch, document: Mapping[str, Any], others: Others) -> None:
    entry = document.get("commit")
    if entry is None:
        # The batch was saved before Spark committed it. What a commit tells is the watermark of the next batch.
        after = others.document(kept.batch_id + 1)
        if after is not None:
            watermark = parse_offsets(f"offsets/{kept.batch_id + 1}", after["offsets"].encode()).watermark_ms
        else:
            watermark = kept.planned.watermark_ms
            if watermark:
                kept.notes.append(
                    f"the watermark after batch {kept.batch_id} is not kept: the next begins with that before, {watermark}"
                )
        entry = "v1\n" + json.dumps({"nextBatchWatermarkMs": watermark or 0}, separators=(",", ":"))
    kept.commits[kept.batch_id] = entry.encode()


def _add_batch_before(kept: KeptBatch, document: Mapping[str, Any], others: Others) -> None:
    """Spark wants the entry before the last one, though a committed batch is not run again."""
    number = kept.batch_id - 1
    if number < 0:
        return
    before = others.document(number)
    if before is not None:
        kept.offsets[number] = before["offsets"].encode()
        if before.get("commit") is not None:
            kept.commits[number] = before["commit"].encode()
        return
    made_from = _made_from(kept, document)
    earlier: KeptBatch | None = None
    if made_from is not None:
        with suppress(NotFoundError):  # it may have been removed since, and only Spark's habit asks for it
            earlier = find_batch(others.catalog, *made_from)
    if earlier is not None and earlier.batch_id == number:
        kept.offsets[number] = earlier.offsets[number]
        kept.commits[number] = earlier.commits[number]
        return
    kept.notes.append(f"batch {number} is not kept: its entry is written like that of batch {kept.batch_id}")
    kept.offsets[number] = kept.offsets[kept.batch_id]


def _add_source_logs(kept: KeptBatch, others: Others) -> None:
    """What the sources noted, back to an entry that holds all before it, or to the first.

    Raises:
        NotFoundError: An entry is missing: the source would read again what it read then.
    """
    wanted: dict[int, int] = {}
    for index, offset in enumerate(kept.planned.offsets):
        last = log_position(offset)
        if last is not None:
            wanted[index] = last
    _add_beginnings(kept, others, [index for index in range(len(kept.planned.offsets)) if index not in wanted])
    if not wanted:
        return
    batches = [kept.batch_id, *(batch for batch in reversed(others.batches) if batch < kept.batch_id)]
    document: Mapping[str, Any] = {}
    for batch in batches:
        state = kept.state if batch == kept.batch_id else others.state(batch)
        if state is None:
            continue
        document = document_of(state) or {}
        entries = _entries(document)
        for index in wanted:
            entries.update(_whole_entries(state, index))
        if not _take_down(kept, entries, wanted):
            return
    made_from = _made_from(kept, document)
    if made_from is not None and not _take_down(kept, find_batch(others.catalog, *made_from).source_logs, wanted):
        return
    for index, number in wanted.items():
        raise NotFoundError(
            f"entry {number} of what source {index} noted is not kept: it would read again what it read then",
            expected=f"sources/{index}/{number}",
            found=others.batches,
            next_step="Restore the checkpoint of that batch if it was retired, or choose a later checkpoint.",
        )


def _add_beginnings(kept: KeptBatch, others: Others, indexes: list[int]) -> None:
    """What sources noted that number nothing themselves: where they began, with the first batch there is of the query.

    A source of Spark's `rate` without it would begin anew, and count from there.
    """
    if not indexes:
        return
    number = _first_of(kept, others)
    state = kept.state if number == kept.batch_id else others.state(number)
    document = {} if state is None else document_of(state) or {}
    made_from = _made_from(kept, document)
    earlier: Mapping[str, bytes] = {}
    if made_from is not None:
        with suppress(NotFoundError):
            earlier = find_batch(others.catalog, *made_from).source_logs
    own = _entries(document_of(kept.state) or {})
    for index in indexes:
        found = {**earlier, **_entries(document), **({} if state is None else _whole_entries(state, index)), **own}
        noted = {name: entry for name, entry in found.items() if name.startswith(f"sources/{index}/")}
        kept.source_logs.update(noted)
        offset = kept.planned.offsets[index]
        # Kafka's is asked for by a first batch only, and Delta has none.
        if not noted and number > 0 and offset != NO_OFFSET and flattened(offset)[0] == "spark":
            kept.notes.append(
                f"what source {index} noted when it began is not kept, if it did: batch {number} is the first there is of "
                "the query. Spark's rate source counts from what it noted"
            )


def _first_of(kept: KeptBatch, others: Others) -> int:
    """The first batch that there is of the query; where some are gone in between, perhaps a later one."""
    batches = [batch for batch in others.batches if batch < kept.batch_id]
    if not batches or others.state(batches[0]) is not None:
        return batches[0] if batches else kept.batch_id
    # Below the first one are those of other queries. Not all are read: there may be thousands.
    at = bisect_left(batches, True, key=lambda batch: others.state(batch) is not None)
    return batches[at] if at < len(batches) else kept.batch_id


def _add_unfinished(kept: KeptBatch, others: Others) -> None:
    """The plan of the batch that was begun after this one. Some sink may have it: the query has to run it as it was."""
    number = kept.batch_id + 1
    found = others.readable(number)
    if found is None:
        return
    state, document = found
    entry = document["offsets"].encode()
    brought: dict[str, bytes] = {}
    for index, offset in enumerate(parse_offsets(f"offsets/{number}", entry).offsets):
        try:
            entries = {**_entries(document), **_whole_entries(state, index)}
        except (CorruptionError, StorageError) as damage:
            raise_unless_damage(damage)
            kept.notes.append(f"the plan of batch {number}, which was begun, cannot be read: {damage.message}")
            return
        before = kept.planned.offsets[index] if index < len(kept.planned.offsets) else None
        for at in own_numbers(number, offset, before):
            names = _names(index, at)
            name = next((one for one in names if one in entries), None)
            if name is not None:
                brought[name] = entries[name]
            elif log_position(offset) is not None and kept.source_logs.keys().isdisjoint(names):
                kept.notes.append(f"what source {index} noted of batch {number}, which was begun, is not kept")
                return
    kept.unfinished = {**brought, f"offsets/{number}": entry}


def _names(index: int, number: int) -> tuple[str, str]:
    """What an entry of a source's log can be called."""
    return f"sources/{index}/{number}", f"sources/{index}/{number}{COMPACT}"


def _take_down(kept: KeptBatch, entries: Mapping[str, bytes], wanted: dict[int, int]) -> bool:
    """Takes entries from the numbers wanted down as far as they go; whether some are still wanted then."""
    for index, number in list(wanted.items()):
        at = number
        while at >= 0 and (name := _names(index, at)[0]) in entries:
            kept.source_logs[name] = entries[name]
            at -= 1
        whole = _names(index, at)[1]
        if whole in entries:
            kept.source_logs[whole] = entries[whole]
            at = -1
        wanted[index] = at
        if at < 0:
            del wanted[index]
    return bool(wanted)


def _entries(document: Mapping[str, Any]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in document.items() if name.startswith("sources/")}


def _whole_entries(state: CheckpointState, index: int) -> dict[str, bytes]:
    """Entries that are kept as state: those that hold all before them, and those too long for the document."""
    found = {}
    kept = state.partitions()
    for operator, end in ((SOURCES, COMPACT), (ENTRIES, "")):
        for number in kept.get(f"{operator}/{index}", ()):
            found[f"sources/{index}/{number}{end}"] = state.read(f"{operator}/{index}", number)
    return found
