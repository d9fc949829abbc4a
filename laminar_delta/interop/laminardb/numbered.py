"""Reading the checkpoints of LaminarDB's file-system and object stores, examined as those stores examine them.

Ids come from names, as they do for LaminarDB, and a manifest is looked for only where LaminarDB would find it again. What
it does not notice and we do is said: a document under another id is refused, an unreadable file is skipped instead of
ending the walk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from laminar_delta.catalog.sidecar import SIDECAR
from laminar_delta.errors import LaminarDeltaError, NotFoundError, StorageError
from laminar_delta.interop.laminardb.checksums import examine_state
from laminar_delta.interop.laminardb.documents import Document, read_document
from laminar_delta.interop.laminardb.layout import (
    LATEST_JSON,
    LATEST_TEXT,
    MANIFEST,
    STATE,
    Layout,
    batch_order,
    checkpoint_name,
    manifest_name,
    parse_batch_name,
    parse_checkpoint_name,
    parse_manifest_name,
)
from laminar_delta.interop.source import (
    Candidate,
    ForeignCheckpoint,
    ForeignState,
    Source,
    fatal,
    take_state,
    warning,
)
from laminar_delta.model import Finding, validate_manifest

if TYPE_CHECKING:
    from laminar_delta.interop.place import Place

LONGEST_POINTER = 4096


class NumberedSource(Source):
    """A tree of the file layout, of the object layout, or of both: an id in both is the object layout's."""

    kind: ClassVar[str] = "laminardb-files"

    def __init__(self, place: Place, layout: Layout | None = None) -> None:
        super().__init__(place)
        self.layout = layout or Layout()
        self._objects: frozenset[int] = frozenset()
        self._unknown: Counter[str] = Counter()
        self._found_sources: Counter[str] = Counter()

    def candidates(self) -> list[Candidate]:
        """See `Source.candidates`."""
        named: dict[tuple[int, str], Candidate] = {}
        objects: set[int] = set()
        for entry in [] if self.layout.inside else self.place.entries(self.layout.manifests):
            number = None if entry.is_directory else parse_manifest_name(entry.name)
            if number is not None:
                canonical = entry.name == manifest_name(number)
                named[number, entry.name] = Candidate(name=entry.name, number=number if canonical else None)
                objects.add(number)
        self._objects = frozenset(objects)
        batches: list[str] = []
        for entry in self.place.entries(self.layout.checkpoints):
            if not entry.is_directory:
                if parse_batch_name(entry.name) is not None:
                    batches.append(entry.name)
                continue
            number = parse_checkpoint_name(entry.name)
            if number is not None and number not in objects:
                canonical = entry.name == checkpoint_name(number)
                named[number, entry.name] = Candidate(name=entry.name, number=number if canonical else None)
        self.batches = tuple(self.layout.in_checkpoints(name) for name in sorted(batches, key=batch_order))
        return [candidate for _, candidate in sorted(named.items(), key=lambda item: item[0])]

    def read(self, candidate: Candidate) -> ForeignCheckpoint:
        """See `Source.read`."""
        if candidate.number is None:
            return _unreadable(candidate, _misnamed(candidate.name))
        manifest, state = self._paths(candidate.number)
        try:
            document = read_document(self.place.document(manifest))
        except NotFoundError:
            return _unreadable(candidate, f"manifest not found for checkpoint {candidate.number}")
        except StorageError as error:
            return _unreadable(candidate, f"manifest cannot be read: {self.tolerated(error).message}")
        except LaminarDeltaError as error:
            return _unreadable(candidate, f"corrupt manifest: {error.message}")
        sidecar: ForeignState | None = None
        findings = []
        try:
            sidecar = self._sidecar(state, document)
            findings = list(self._examine(candidate.number, document, sidecar))
        except LaminarDeltaError as error:
            findings = [fatal("state-unreadable", f"state.bin cannot be read: {self.tolerated(error).message}")]
        self._unknown.update(document.unknown)
        self._found_sources.update(document.found_sources)
        return ForeignCheckpoint(
            candidate=candidate,
            manifest=document.manifest,
            states={} if sidecar is None else {(SIDECAR, 0): sidecar},
            vnode_count=document.vnode_count,
            findings=tuple(findings),
        )

    def pointer(self) -> str | None:
        """See `Source.pointer`. The object layout's, where there is one."""
        for name in (f"{self.layout.manifests}/{LATEST_JSON}", self.layout.in_checkpoints(LATEST_TEXT)):
            try:
                return self.place.read(name, limit=LONGEST_POINTER).decode("utf-8", "replace").strip()
            except NotFoundError:
                continue
            except LaminarDeltaError as error:
                return f"unreadable: {error.message}"
        return None

    def notes(self) -> tuple[str, ...]:
        """See `Source.notes`."""
        kept = [
            f"offsets of source {name!r} stood under table_offsets in {times} checkpoints: they are source offsets now"
            for name, times in sorted(self._found_sources.items())
        ]
        return (
            *kept,
            *(
                f"field {name!r} of {times} manifests is not kept: there is no place for it"
                for name, times in sorted(self._unknown.items())
            ),
        )

    def _paths(self, number: int) -> tuple[str, str]:
        if number in self._objects:
            return self.layout.object_manifest(number), self.layout.object_state(number)
        directory = self.layout.file_directory(number)
        return f"{directory}/{MANIFEST}", f"{directory}/{STATE}"

    def _sidecar(self, path: str, document: Document) -> ForeignState | None:
        if self.place.size(path) is not None:
            return take_state(self.place, path)
        if document.manifest.checkpoint_id in self._objects:
            # 0.18 looks for the sidecar of an object's manifest in the file layout too.
            legacy = f"{self.layout.file_directory(document.manifest.checkpoint_id)}/{STATE}"
            if self.place.size(legacy) is not None:
                return take_state(self.place, legacy)
        return None

    def _examine(self, number: int, document: Document, sidecar: ForeignState | None) -> Iterator[Finding]:
        """The findings in LaminarDB's words and order, then ours."""
        manifest = document.manifest
        for finding in validate_manifest(manifest):
            yield warning(finding.code, f"manifest validation: {finding.message}")
        yield from examine_state(manifest, sidecar)
        if manifest.epoch == 0 or manifest.checkpoint_id == 0:
            yield fatal("zero", "epoch or checkpoint_id is 0 — likely corrupted")
        if manifest.checkpoint_id != number:
            message = (
                f"the document is of checkpoint {manifest.checkpoint_id}, its name says {number}: copied or renamed"
            )
            yield fatal("other-id", message)


class ObjectSource(NumberedSource):
    """The same tree, when it has manifests of the object layout."""

    kind: ClassVar[str] = "laminardb-objects"


def _unreadable(candidate: Candidate, message: str) -> ForeignCheckpoint:
    return ForeignCheckpoint(candidate=candidate, findings=(fatal("manifest-unreadable", message),))


def _misnamed(name: str) -> str:
    number = parse_checkpoint_name(name)
    wanted = manifest_name(parse_manifest_name(name) or 0) if number is None else checkpoint_name(number)
    return f"manifest not found: LaminarDB looks for it under {wanted}, not {name}"
