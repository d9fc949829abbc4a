"""What the JSON fields of several commands mean. `docs/cli.md` is made from these; a test holds every command against them."""

from __future__ import annotations

from collections.abc import Mapping

OVERVIEW = {
    "pipeline": "name",
    "latest_id": "newest checkpoint; null without one",
    "latest_epoch": "its epoch",
    "latest_at": "when it was saved",
    "latest_size_bytes": "of its operator state, inline state included",
    "watermark": "of the newest checkpoint",
    "delivered_id": "newest checkpoint that all its sinks have: where recovery goes back to if nothing is damaged",
    "checkpoints": "how many are visible",
    "pinned": "how many of them are pinned",
    "retired": "how many are retired and not removed yet",
    "abandoned": "how many visible ones a writer's recovery passed over for good",
    "sinks_pending": "sinks of visible checkpoints that have not delivered",
    "sinks_failed": "sinks that failed, of visible checkpoints newer than the newest that all its sinks have",
    "failed_ids": "checkpoints these are of",
    "generation": "of the newest writer; 0 before there was any",
    "owner": "that writer",
    "held": "whether it has not let go",
    "recoveries": "how many are on record",
    "last_recovery_at": "when the last one was",
    "last_recovery_chose": "what it chose",
    "last_recovery_skipped": "how many it passed over",
    "recovery_damage": "checkpoints that recoveries found damaged",
    "recovery_healed": "how often recoveries read rows from an earlier table version",
}

HEAD = {
    "checkpoint_id": "id",
    "epoch": "epoch",
    "created_at": "when it was saved",
    "generation": "of the writer that saved it",
    "is_pinned": "whether it is pinned",
    "is_abandoned": "whether a writer's recovery passed over it for good",
    "parent_id": "checkpoint its deltas are against",
    "needs": "checkpoints whose rows must stay as long as it does, as `pipeline/id`",
}

POSITION = {
    "pipeline": "name",
    "checkpoint_id": "id",
    "epoch": "epoch",
    "created_at": "when it was saved",
    "watermark": "of the whole checkpoint",
    "sources": "per source its `offsets` by partition, its `epoch` and `watermark`",
    "sinks": "per sink its `status` and `error`",
}

DERIVED = {
    "applied": "whether it was done, or only told",
    "pipeline": "whose checkpoint it is",
    "how": "`rewind`, `fork`, `edit` or `undo`",
    "checkpoint_id": "id of the new checkpoint",
    "from_pipeline": "pipeline it is made from",
    "from_id": "checkpoint it is made from",
    "over_id": "newest checkpoint before it, which `offsets undo` goes back to",
    "changes": "what differs from the newest checkpoint now",
    **{
        f"changes[].{name}": meaning
        for name, meaning in {
            "kind": "`source`, `table` or `offset`",
            "name": "of the source",
            "detail": "partition of an offset",
            "change": "`added`, `removed` or `changed`",
            "before": "value now",
            "after": "value then",
            "difference": "`after - before` where both are whole numbers",
        }.items()
    },
}

RECOVERY = {
    "pipeline": "name",
    "chosen_id": "checkpoint that is used; null when there is none",
    "examined": "how many there were to choose from",
    "skipped": "those passed over, newest first",
    "skipped[].checkpoint_id": "id",
    "skipped[].reason": "why, in words",
    "skipped[].findings": "what the reason rests on",
    "healed": "rows read from an earlier table version",
    "healed[].checkpoint_id": "whose",
    "healed[].table": "of which table",
    "healed[].version": "from which version",
    "healed[].reason": "what is wrong with the current ones",
    "notes": "further remarks",
    "generation": "of the writer that recovered; null for a reader",
    "started_at_ms": "milliseconds since 1970",
    "elapsed_ms": "how long it took",
    "dry_run": "whether nothing was recorded",
    "stored": "whether the catalog keeps this report",
    "manifest": "of the chosen checkpoint, where it was read",
}


def of_each(name: str, meaning: str, inner: Mapping[str, str]) -> dict[str, str]:
    """The fields of a list of objects."""
    return {name: meaning, **{f"{name}[].{key}": text for key, text in inner.items()}}
