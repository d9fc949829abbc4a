"""Log records with stable names: what a log collector can match on, whatever the words say.

The library logs through the standard `logging`, below the logger `laminar_delta`, and configures nothing. A record made here
has the attributes `event`, one of `Event`, and `fields`, its facts by name. `JsonFormatter` writes both.
"""

from __future__ import annotations

import json
import logging
from datetime import datetime, timezone
from enum import Enum
from typing import Any


class Event(str, Enum):
    """Everything that is logged. Append only; a name is never reused."""

    CATALOG_CREATED = "catalog.created"
    VIEWS_MISSING = "catalog.views_missing"
    WRITER_TAKEN = "writer.taken"
    WRITER_RELEASED = "writer.released"
    WRITER_NOT_RELEASED = "writer.not_released"
    CHECKPOINT_COMMITTED = "checkpoint.committed"
    CHECKPOINT_FAILED = "checkpoint.failed"
    SINK_STATUS = "sink.status"
    RECOVERY_DONE = "recovery.done"
    RETENTION_DECIDED = "retention.decided"
    PRUNE_FAILED = "retention.prune_failed"
    ORPHANS_REMOVED = "orphans.removed"
    MAINTENANCE_DONE = "maintenance.done"
    STATE_HEALED = "state.healed"
    STATE_NOT_STORED_UPON = "state.not_stored_upon"
    STATE_NOT_STORED_ANEW = "state.not_stored_anew"
    LOG_CHECKPOINT_FAILED = "log_checkpoint.failed"
    POSITIONS_FORGOTTEN = "positions.forgotten"
    BATCH_DONE = "streaming.batch_done"
    BATCHES_BEGIN_LATE = "streaming.begins_late"
    BATCHES_REPEATED = "streaming.repeats"
    IDENTIFIERS_EXPIRE = "streaming.identifiers_expire"
    PROGRESS_LOST = "streaming.progress_lost"
    CALL_FAILED = "call.failed"

    def __str__(self) -> str:
        return self.value


def log_event(
    logger: logging.Logger,
    level: int,
    event: Event,
    message: str,
    *arguments: object,
    cause: BaseException | None = None,
    **fields: object,
) -> None:
    """Logs one event.

    Args:
        logger: Whose.
        level: Of `logging`.
        event: What happened.
        message: The same for people, with `%` placeholders for `arguments`.
        *arguments: What goes there.
        cause: An exception whose traceback goes with it.
        **fields: The facts, as JSON values.
    """
    if logger.isEnabledFor(level):
        extra = {"event": event.value, "fields": fields}
        logger.log(level, message, *arguments, exc_info=cause, extra=extra, stacklevel=2)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `at`, `level`, `logger`, `event`, `message`, `fields`, and `exception` where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter.format`."""
        document: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": getattr(record, "event", None),
            "message": record.getMessage(),
            "fields": getattr(record, "fields", {}),
        }
        if record.exc_info:
            document["exception"] = self.formatException(record.exc_info)
        text = json.dumps(document, ensure_ascii=False, default=str)
        # Names of files that are no UTF-8 come as halves of characters, which no stream takes: the line would be lost.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")
