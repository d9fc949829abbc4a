"""Spark's plan of a batch: what tells two runs of one batch number apart, when other records came under it.

It is compared as Spark's log entries have it. Where those of an earlier run have rotted, their digests are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from laminar_delta.codec.checksum import xxh3_hex
from laminar_delta.interop.sparkdir.logs import parse_offsets

OFFSETS = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """By the names of log entries, what each says of the records of a batch."""

    entries: Mapping[str, str]
    as_digests: bool = False
    """Whether the entries are digests of what they say."""

    @classmethod
    def of(cls, told: Mapping[str, str]) -> Plan:
        """The plan in log entries. Of the offset log the offsets count: it also has when the batch was planned."""
        entries = dict(told)
        if OFFSETS in entries:
            entries[OFFSETS] = "\n".join(parse_offsets(OFFSETS, entries[OFFSETS].encode()).offsets)
        return cls(entries=entries)

    def digests(self) -> Plan:
        """The same in short."""
        if self.as_digests:
            return self
        return Plan(entries={name: xxh3_hex(said.encode()) for name, said in self.entries.items()}, as_digests=True)

    def changed(self, now: Plan) -> dict[str, tuple[str, str]]:
        """Where two plans of a batch differ: what each says. An entry that one of them lacks tells nothing."""
        before = self
        if before.as_digests or now.as_digests:
            before, now = before.digests(), now.digests()
        return {
            name: (said, now.entries[name])
            for name, said in sorted(before.entries.items())
            if name in now.entries and now.entries[name] != said
        }
