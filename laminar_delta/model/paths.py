"""Where the files of the distributed ("V2") layout lie.

    checkpoints/_latest                                          text of the newest id
    checkpoints/<id>/manifest.json
    checkpoints/<id>/operators/<operator>/partition-<n>.snap     or .delta
    checkpoints/<id>/offsets/<source>.json

LaminarDB 0.18 forgets the slash after the id everywhere but in the directory's own path, so its real files are called
`checkpoints/<id>manifest.json`. A writer uses the form above; a reader of existing files needs both.
"""

from dataclasses import dataclass

from laminar_delta.model.ids import CheckpointId
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import U32_RANGE

_ENCODED_ASCII = frozenset(b'\\{}^%`[]"~<>#|*?') | frozenset(range(0x20)) | {0x7F}


@dataclass(frozen=True, slots=True)
class CheckpointPaths:
    """The paths of one prefix; computes text, touches nothing. Names are not escaped here, see `object_store_path`."""

    base_prefix: str = "checkpoints/"
    """Ends with a slash; one is added if it is missing, so that the empty prefix becomes `/`."""
    slashless: bool = False
    """Give the paths that 0.18 really writes."""

    def __post_init__(self) -> None:
        if not self.base_prefix.endswith("/"):
            object.__setattr__(self, "base_prefix", f"{self.base_prefix}/")

    def latest_pointer(self) -> str:
        """The file that names the newest checkpoint."""
        return f"{self.base_prefix}_latest"

    def checkpoint_dir(self, checkpoint_id: CheckpointId) -> str:
        """The checkpoint's directory, with its slash in both forms."""
        return f"{self.base_prefix}{checkpoint_id}/"

    def manifest(self, checkpoint_id: CheckpointId) -> str:
        """The checkpoint's manifest."""
        return self._inside(checkpoint_id, "manifest.json")

    def snapshot(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> str:
        """The full state of an operator's partition."""
        return self._inside(checkpoint_id, f"operators/{operator}/partition-{_number(partition)}.snap")

    def delta(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> str:
        """The changed state of an operator's partition."""
        return self._inside(checkpoint_id, f"operators/{operator}/partition-{_number(partition)}.delta")

    def source_offset(self, checkpoint_id: CheckpointId, source_name: str) -> str:
        """The offsets of a source. The layout promises it; 0.18 keeps them in the manifest and never writes the file."""
        return self._inside(checkpoint_id, f"offsets/{source_name}.json")

    def _inside(self, checkpoint_id: CheckpointId, name: str) -> str:
        slash = "" if self.slashless else "/"
        return f"{self.base_prefix}{checkpoint_id}{slash}{name}"


def object_store_path(text: str) -> str:
    """Normalise a path as Rust's object_store does before it touches storage, hence the name a file really has on disk.

    Empty segments vanish, `.` and `..` are encoded rather than followed, and what some store could misread is
    percent-encoded, everything beyond ASCII included.
    """
    return "/".join(_encoded_segment(segment) for segment in text.split("/") if segment)


def _encoded_segment(segment: str) -> str:
    if segment in (".", ".."):
        return "%2E" * len(segment)
    return "".join(
        f"%{byte:02X}" if byte >= 0x80 or byte in _ENCODED_ASCII else chr(byte) for byte in segment.encode("utf-8")
    )


def _number(partition: int) -> int:
    try:
        return U32_RANGE.take(partition)
    except Mismatch as mismatch:
        raise mismatch.as_input_error("partition") from None
