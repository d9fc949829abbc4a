"""Whether what is saved under a committed id is what is committed there: then saving it again changes nothing.

A state is the same when its bytes are, whichever way they came: in the manifest row, from a file, in pieces. An application
delta is another thing than a state of the same bytes, and than one for another function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from laminar_delta.catalog.reading import raise_unless_damage
from laminar_delta.catalog.state.checkpoint_state import CheckpointState
from laminar_delta.codec import xxh3_hex
from laminar_delta.errors import ConflictError, CorruptionError, NotFoundError, StorageError

if TYPE_CHECKING:
    from laminar_delta.catalog.reading import Reading, Row
    from laminar_delta.catalog.state.chunks import Measured
    from laminar_delta.catalog.state.given import Key
    from laminar_delta.catalog.state.layout import Layout
    from laminar_delta.model.manifest import CheckpointManifest


@dataclass(frozen=True, slots=True)
class Stored:
    """A committed checkpoint."""

    row: Row
    manifest: CheckpointManifest


def check_same_again(reading: Reading, stored: Stored, manifest: CheckpointManifest, measured: Measured | None) -> None:
    """Raises `ConflictError`, naming the fields, unless a save is of what is committed under its id.

    Args:
        reading: Where.
        stored: What is committed.
        manifest: What is saved, with what it has to say of its state.
        measured: The state that is saved beside the manifest.
    """
    row, kept = stored.row, stored.manifest
    # When it was saved, and how far its sinks are by now, do not make it another checkpoint.
    alike = replace(manifest, timestamp_ms=kept.timestamp_ms, sink_commit_statuses=kept.sink_commit_statuses)
    if alike == kept and measured is None:
        return
    layouts = _layouts(reading, row)
    if layouts is not None:
        applies = {(one.operator, one.partition): one.apply for one in layouts if one.apply is not None}
        said = {} if measured is None else measured.applies
        if applies != said:
            raise _conflict(row, ["application delta"], said, applies)
        alike = _in_the_same_form(alike, kept, measured, layouts)
    if alike != kept:
        given, there = manifest.to_dict(), kept.to_dict()
        changed = [name for name, value in alike.to_dict().items() if value != there[name]]
        raise _conflict(row, changed, {name: given[name] for name in changed}, {name: there[name] for name in changed})


def _in_the_same_form(
    manifest: CheckpointManifest, stored: CheckpointManifest, measured: Measured | None, layouts: list[Layout]
) -> CheckpointManifest:
    """The manifest as it would be if its states had come the way the stored ones did; as it is when they are others."""
    beside = {} if measured is None else measured.checksums
    kept_beside = {(layout.operator, layout.partition): layout.checksum for layout in layouts}
    if _contents(manifest, beside) != _contents(stored, kept_beside):
        return manifest
    length = 0 if measured is None else sum(measured.lengths.values())
    kept_length = sum(layout.length for layout in layouts)
    return replace(
        manifest,
        # Of operators without state here, an entry says what only its author knows.
        operator_states={
            **manifest.operator_states,
            **{
                operator: entry
                for operator, entry in stored.operator_states.items()
                if entry.state_b64 is not None or any(operator == name for name, _ in kept_beside)
            },
        },
        state_checksum=stored.state_checksum if kept_beside or beside else manifest.state_checksum,
        size_bytes=manifest.size_bytes - length + kept_length,
    )


def _contents(manifest: CheckpointManifest, beside: Mapping[Key, str]) -> dict[Key, str]:
    """The checksums of all states, wherever they are."""
    inline = {
        (operator, 0): state
        for operator, entry in manifest.operator_states.items()
        if (state := entry.decode_inline()) is not None
    }
    return {**{key: xxh3_hex(state) for key, state in inline.items()}, **beside}


def _layouts(reading: Reading, row: Row) -> list[Layout] | None:
    """What state is stored; None when it is damaged: then the manifest has to do, which has its checksum."""
    try:
        return CheckpointState(reading, row, heal=True).layouts()
    except (CorruptionError, StorageError, NotFoundError) as error:
        raise_unless_damage(error)
        return None


def _conflict(row: Row, changed: list[str], expected: object, found: object) -> ConflictError:
    return ConflictError(
        f"checkpoint {row['checkpoint_id']} of pipeline {row['pipeline']!r} is committed with another "
        f"{', '.join(changed)}",
        expected=expected,
        found=found,
        next_step="Save other content under another id.",
    )
