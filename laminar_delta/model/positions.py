"""Typed source positions, and their way to and from the untyped offsets that manifests hold.

In JSON a position is an object with the variant's name under `type` and its fields beside it, or an array that begins
with that name. In a manifest it is spread over text:

    variant       type text      offsets                                         extras
    Kafka         kafka          `<topic>-<partition>` -> offset                 group_id
    PostgresCdc   postgres_cdc   confirmed_flush_lsn, write_lsn                  slot_name
    MysqlCdc      mysql_cdc      gtid_set, binlog_file, binlog_position          -
    File          file           path, byte_offset                               -
    Generic       any other      as they are                                     -

A `ConnectorCheckpoint` keeps the type text and the extras in its metadata; a V2 `SourceOffsetEntry` has a field for the
former and mixes the latter into the offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from laminar_delta.model.manifest import ConnectorCheckpoint
from laminar_delta.model.mismatch import Mismatch
from laminar_delta.model.numbertext import parse_integer
from laminar_delta.model.rules import I32, I32_RANGE, I64, I64_RANGE, U64, U64_RANGE
from laminar_delta.model.tagged import TAG, read_tagged
from laminar_delta.model.v2 import SourceOffsetEntry
from laminar_delta.model.wire import WireModel

P = TypeVar("P", bound="SourcePosition")
Offsets = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition(WireModel):
    """A place in a source. `SourcePosition.from_json` reads any variant, a variant's own `from_json` only that one."""

    type_name: ClassVar[str] = ""
    """The variant's name in JSON."""
    type_text: ClassVar[str] = ""
    """The variant's name in offsets."""

    def to_connector_checkpoint(self, epoch: int) -> ConnectorCheckpoint:
        """Spread the position over a manifest's entry. Of a Kafka partition that is named twice, the last offset stays."""
        metadata = {"connector_type": self._type_text(), **self._extras()}
        return ConnectorCheckpoint(offsets=self._offsets(), epoch=epoch, metadata=metadata)

    def to_offset_entry(self, epoch: int) -> SourceOffsetEntry:
        """Spread the position over a V2 manifest's entry."""
        return SourceOffsetEntry(
            source_type=self._type_text(), offsets={**self._extras(), **self._offsets()}, epoch=epoch
        )

    @staticmethod
    def from_connector_checkpoint(
        checkpoint: ConnectorCheckpoint, type_hint: str | None = None
    ) -> "SourcePosition | None":
        """Rebuild a position.

        What cannot be read is left out, as LaminarDB does: a Kafka entry without a number, a byte offset that is none.

        Args:
            checkpoint: The manifest's entry.
            type_hint: The type text, if the caller knows better than the entry.

        Returns:
            None if nothing says what type it is, or the one offset is missing that the type cannot do without. A type
            that is not known gives a `GenericPosition`.
        """
        type_text = checkpoint.metadata.get("connector_type") if type_hint is None else type_hint
        return None if type_text is None else _rebuilt(type_text, checkpoint.offsets, checkpoint.metadata)

    @staticmethod
    def from_offset_entry(entry: SourceOffsetEntry) -> "SourcePosition | None":
        """Rebuild a position from a V2 entry, by the same rules."""
        return _rebuilt(entry.source_type, entry.offsets, entry.offsets)

    def _check(self) -> None:
        if not self.type_name:
            raise Mismatch("one of the variants", "the class they have in common")

    def _type_text(self) -> str:
        return self.type_text

    def _offsets(self) -> dict[str, str]:
        raise NotImplementedError

    def _extras(self) -> dict[str, str]:
        return {}

    @classmethod
    def _from_offsets(cls, offsets: Offsets, extras: Offsets) -> "SourcePosition | None":
        raise NotImplementedError

    @classmethod
    def _from_plain(cls: type[P], raw: Any) -> P:
        kinds: dict[str, type[Any]] = {kind.type_name: kind for kind in _KINDS if issubclass(kind, cls)}
        position: P = read_tagged(kinds, raw)
        return position

    def _to_plain(self) -> Any:
        # Not super(): a slotted dataclass is a new class, which the compiled reference to the old one does not know.
        return {TAG: self.type_name, **WireModel._to_plain(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPartitionOffset(WireModel):
    """The offset of one partition."""

    topic: str
    partition: I32
    offset: I64


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPosition(SourcePosition):
    """The offsets of a consumer group.

    A negative partition does not survive the way through offsets: `t--1` reads back as partition 1 of topic `t-`.
    """

    type_name: ClassVar[str] = "Kafka"
    type_text: ClassVar[str] = "kafka"

    group_id: str
    partitions: tuple[KafkaPartitionOffset, ...]

    def _offsets(self) -> dict[str, str]:
        return {f"{entry.topic}-{entry.partition}": str(entry.offset) for entry in self.partitions}

    def _extras(self) -> dict[str, str]:
        return {"group_id": self.group_id}

    @classmethod
    def _from_offsets(cls, offsets: Offsets, extras: Offsets) -> "SourcePosition | None":
        partitions = []
        for key in sorted(offsets):
            topic, dash, number = key.rpartition("-")
            partition, offset = parse_integer(number, I32_RANGE), parse_integer(offsets[key], I64_RANGE)
            if dash and partition is not None and offset is not None:
                partitions.append(KafkaPartitionOffset(topic=topic, partition=partition, offset=offset))
        partitions.sort(key=lambda entry: (entry.topic, entry.partition))
        return cls(group_id=extras.get("group_id", ""), partitions=tuple(partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresCdcPosition(SourcePosition):
    """A place in a replication slot."""

    type_name: ClassVar[str] = "PostgresCdc"
    type_text: ClassVar[str] = "postgres_cdc"

    confirmed_flush_lsn: str
    write_lsn: str | None = None
    slot_name: str

    def _offsets(self) -> dict[str, str]:
        return _present(confirmed_flush_lsn=self.confirmed_flush_lsn, write_lsn=self.write_lsn)

    def _extras(self) -> dict[str, str]:
        return {"slot_name": self.slot_name}

    @classmethod
    def _from_offsets(cls, offsets: Offsets, extras: Offsets) -> "SourcePosition | None":
        flushed = offsets.get("confirmed_flush_lsn")
        if flushed is None:
            return None
        slot_name = extras.get("slot_name", "")
        return cls(confirmed_flush_lsn=flushed, write_lsn=offsets.get("write_lsn"), slot_name=slot_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlCdcPosition(SourcePosition):
    """A place in a binary log, by transaction ids, by file and position, or both."""

    type_name: ClassVar[str] = "MysqlCdc"
    type_text: ClassVar[str] = "mysql_cdc"

    gtid_set: str | None = None
    binlog_file: str | None = None
    binlog_position: U64 | None = None

    def _offsets(self) -> dict[str, str]:
        position = None if self.binlog_position is None else str(self.binlog_position)
        return _present(gtid_set=self.gtid_set, binlog_file=self.binlog_file, binlog_position=position)

    @classmethod
    def _from_offsets(cls, offsets: Offsets, extras: Offsets) -> "SourcePosition | None":  # noqa: ARG003 - it has none
        return cls(
            gtid_set=offsets.get("gtid_set"),
            binlog_file=offsets.get("binlog_file"),
            binlog_position=parse_integer(offsets.get("binlog_position", ""), U64_RANGE),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePosition(SourcePosition):
    """A byte in a file."""

    type_name: ClassVar[str] = "File"
    type_text: ClassVar[str] = "file"

    path: str
    byte_offset: U64

    def _offsets(self) -> dict[str, str]:
        return {"path": self.path, "byte_offset": str(self.byte_offset)}

    @classmethod
    def _from_offsets(cls, offsets: Offsets, extras: Offsets) -> "SourcePosition | None":  # noqa: ARG003 - it has none
        path = offsets.get("path")
        return (
            None
            if path is None
            else cls(path=path, byte_offset=parse_integer(offsets.get("byte_offset", ""), U64_RANGE) or 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericPosition(SourcePosition):
    """The offsets of a connector that has no type of its own here."""

    type_name: ClassVar[str] = "Generic"

    connector_type: str
    offsets: Mapping[str, str]

    def _type_text(self) -> str:
        return self.connector_type

    def _offsets(self) -> dict[str, str]:
        return dict(self.offsets)


_KINDS = (KafkaPosition, PostgresCdcPosition, MysqlCdcPosition, FilePosition, GenericPosition)
_KINDS_BY_TEXT: dict[str, type[SourcePosition]] = {kind.type_text: kind for kind in _KINDS if kind.type_text}


def _rebuilt(type_text: str, offsets: Offsets, extras: Offsets) -> SourcePosition | None:
    kind = _KINDS_BY_TEXT.get(type_text)
    if kind is None:
        return GenericPosition(connector_type=type_text, offsets=offsets)
    return kind._from_offsets(offsets, extras)


def _present(**values: str | None) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}
