"""A number for what a pipeline is, to be kept as `pipeline_hash` of its checkpoints.

The same on every machine and in every release: recovery compares it with the one that a checkpoint was saved with, and reports
that the pipeline changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from laminar_delta.codec import block_hash
from laminar_delta.errors import InvalidInputError


def pipeline_hash(
    *, sources: Iterable[str] = (), sinks: Iterable[str] = (), queries: Mapping[str, str] | None = None
) -> int:
    """The xxh3-64 of a pipeline's configuration, 0 to 2^64-1; in whichever order its parts are given.

    Args:
        sources: The names of its sources.
        sinks: The names of its sinks.
        queries: By name the text of what it computes, such as the SQL of its streams. A blank more is another text.

    Raises:
        InvalidInputError: A name or text is none.
    """
    parts = {
        "queries": dict(_checked("queries", queries or {}, texts=True)),
        "sinks": sorted(name for name, _ in _checked("sinks", sinks)),
        "sources": sorted(name for name, _ in _checked("sources", sources)),
    }
    # Escaped, with sorted keys and without blanks: one text for one configuration.
    return block_hash(json.dumps(parts, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode())


def _checked(what: str, given: object, *, texts: bool = False) -> list[tuple[str, str]]:
    """The names with their texts. A text by itself is not taken for the names of its letters."""
    if texts and isinstance(given, Mapping):
        found = list(given.items())
    elif not texts and isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping)):
        found = [(name, "") for name in given]
    else:
        found = [(given, None)]
    if not all(isinstance(part, str) for pair in found for part in pair):
        raise InvalidInputError(
            f"the {what} of a pipeline hash are no {'texts by name' if texts else 'names'}",
            expected="texts by name" if texts else "names",
            found=given,
        )
    return found
