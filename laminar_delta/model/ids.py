"""Names and numbers that identify: checkpoint ids, attempt ids, pipeline names, and the limits of columns."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from laminar_delta.errors import InvalidInputError
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.rules import U64_RANGE, Form, IntRange, Rule, quoted, refusal, take_text
from laminar_delta.model.wire import WireModel

if TYPE_CHECKING:
    import uuid

LONGEST_PIPELINE_NAME = 200
"""In characters."""
LONGEST_DIRECTORY_NAME_BYTES = 255
"""Of every file system in use; a pipeline's name is part of one, as `pipeline=<percent-encoded>`."""
PARTITION_PREFIX = "pipeline="
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""What Hive-style paths write for a null, so a pipeline of that name would read back as none."""

_ORDERING = IntRange(0, 2**63 - 1)
_HYPHENATED = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_UUID = re.compile(rf"[0-9a-fA-F]{{32}}|{_HYPHENATED}|\{{{_HYPHENATED}\}}|urn:uuid:{_HYPHENATED}")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class _UuidText(Form):
    __slots__ = ()

    def rule(self, *, typed: bool) -> Rule:  # noqa: ARG002 - text on both sides
        return self._take

    @staticmethod
    def _take(raw: Any) -> str:
        text = take_text(raw)
        if _UUID.fullmatch(text) is None:
            raise refusal("a UUID", text)
        digits = text.removeprefix("urn:uuid:").strip("{}").replace("-", "").lower()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@dataclass(frozen=True, slots=True, order=True)
class CheckpointId(WireModel):
    """The id of a checkpoint in the distributed (V2) layout: a UUID, version 7 when made here.

    Ids order by their bytes, which for version 7 is the order of creation. Any UUID is taken: hyphenated, without hyphens,
    in braces, or after `urn:uuid:` (that prefix in lower case only), hexadecimal digits in either case.
    """

    text: Annotated[str, _UuidText()]
    """Hyphenated and lower-case, whatever form was given. Ordering this text is ordering the bytes."""

    @classmethod
    def now(cls) -> "CheckpointId":
        """A new id, later than those before."""
        return cls(new_attempt_id())

    @classmethod
    def from_uuid(cls, value: "uuid.UUID") -> "CheckpointId":
        """Wrap a UUID of any version."""
        return cls(str(value))

    @property
    def uuid(self) -> "uuid.UUID":
        """The id as the standard library's type."""
        import uuid  # importing it costs more than all of this package, and few callers need it

        return uuid.UUID(self.text)

    def __str__(self) -> str:
        return self.text

    @classmethod
    def _from_plain(cls, raw: Any) -> "CheckpointId":
        identifier = object.__new__(cls)
        object.__setattr__(identifier, "text", _UuidText._take(raw))
        return identifier

    def _to_plain(self) -> Any:
        return self.text


def new_attempt_id() -> str:
    """A new UUIDv7 as text: names one try at saving a checkpoint, and sorts after those made before it."""
    import uuid_utils  # loads the standard library's uuid, which is slow; readers never need it

    return str(uuid_utils.uuid7())


def attempt_began_ms(attempt_id: str) -> int:
    """When an attempt was named, in milliseconds since 1970, by the clock of whoever did: a UUIDv7 begins with it."""
    return int(attempt_id.replace("-", "")[:12], 16)


def validate_pipeline_name(name: str) -> str:
    """Return the name if a pipeline can be called that.

    A name becomes a partition's directory, so it has to fit one in its percent-encoded form, on every file system.

    Raises:
        InvalidInputError: It cannot; the text says which limit was crossed.
    """
    try:
        text = take_text(name)
    except Mismatch as mismatch:
        raise mismatch.as_input_error("pipeline name") from None
    if not 1 <= len(text) <= LONGEST_PIPELINE_NAME:
        raise _bad_name(f"1 to {LONGEST_PIPELINE_NAME} characters", f"{len(text)} characters")
    if text == NULL_PARTITION:
        raise _bad_name(f"a name other than {NULL_PARTITION}, which tables use for null", quoted(text))
    if "\0" in text:
        raise _bad_name("a name without NUL", quoted(text))
    size = len(PARTITION_PREFIX) + sum(1 if byte in _UNRESERVED else 3 for byte in text.encode("utf-8"))
    if size > LONGEST_DIRECTORY_NAME_BYTES:
        limit = LONGEST_DIRECTORY_NAME_BYTES - len(PARTITION_PREFIX)
        raise _bad_name(f"at most {limit} bytes when percent-encoded", f"{size - len(PARTITION_PREFIX)} bytes")
    return text


def check_ordering_number(name: str, value: int) -> int:
    """Return the value if a BIGINT column holds it: what identifies or orders has to stay comparable in SQL.

    Raises:
        InvalidInputError: It is no integer from 0 to 2^63-1; with code `number-too-large` if it is an integer.
    """
    return _checked(name, value, _ORDERING)


def check_u64(name: str, value: int) -> int:
    """Return the value if it is an unsigned 64-bit integer.

    Raises:
        InvalidInputError: It is not; with code `number-too-large` if it is an integer.
    """
    return _checked(name, value, U64_RANGE)


def _checked(name: str, value: int, limits: IntRange) -> int:
    try:
        return limits.take(value)
    except Mismatch as mismatch:
        raise mismatch.as_input_error(name) from None


def _bad_name(expected: str, found: str) -> InvalidInputError:
    return Mismatch(expected, found).as_input_error("pipeline name")
