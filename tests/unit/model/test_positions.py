import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from laminar_delta.model import (
    ConnectorCheckpoint,
    FilePosition,
    GenericPosition,
    KafkaPosition,
    MysqlCdcPosition,
    RecoveryPlan,
    SourceOffsetEntry,
    SourcePosition,
)
from laminar_delta.testing import strategies

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "data" / "golden" / "vectors" / "source_positions.json").read_text("utf-8")
)


def plain(position: SourcePosition | None) -> Any:
    return None if position is None else position.to_dict()


@pytest.mark.parametrize("case", VECTORS["from_connector_checkpoint"])
def test_position_from_a_connector_checkpoint(case: dict[str, Any]) -> None:
    checkpoint = ConnectorCheckpoint.from_dict(case["checkpoint"])
    assert plain(SourcePosition.from_connector_checkpoint(checkpoint, case["type_hint"])) == case["position"]


@pytest.mark.parametrize("case", VECTORS["from_offset_entry"])
def test_position_from_a_v2_entry(case: dict[str, Any]) -> None:
    assert plain(SourcePosition.from_offset_entry(SourceOffsetEntry.from_dict(case["entry"]))) == case["position"]


@pytest.mark.parametrize("case", VECTORS["round_trips"])
def test_position_there_and_back(case: dict[str, Any]) -> None:
    position = SourcePosition.from_dict(case["position"])
    checkpoint, entry = position.to_connector_checkpoint(9), position.to_offset_entry(9)
    assert checkpoint.to_dict() == case["to_connector_checkpoint_epoch9"]
    assert entry.to_dict() == case["to_offset_entry_epoch9"]
    assert plain(SourcePosition.from_connector_checkpoint(checkpoint)) == case["from_connector_checkpoint"]
    assert plain(SourcePosition.from_offset_entry(entry)) == case["from_offset_entry"]


def test_recovery_plan() -> None:
    case = VECTORS["recovery_plan"]
    offsets = {name: ConnectorCheckpoint.from_dict(entry) for name, entry in case["source_offsets"].items()}
    assert RecoveryPlan.from_manifest(offsets, case["epoch"]).to_dict() == {
        name: case[name] for name in ("source_positions", "resume_epoch", "warnings")
    }


def test_recovery_plan_v2() -> None:
    case = VECTORS["recovery_plan_v2"]
    offsets = {name: SourceOffsetEntry.from_dict(entry) for name, entry in case["source_offsets"].items()}
    assert RecoveryPlan.from_manifest_v2(offsets, case["epoch"]).to_dict() == case["plan"]


def test_every_group_of_vectors_is_used() -> None:
    assert VECTORS.keys() - {"note"} == {
        "from_connector_checkpoint",
        "from_offset_entry",
        "recovery_plan",
        "recovery_plan_v2",
        "round_trips",
    }


def test_hint_wins_over_metadata() -> None:
    checkpoint = ConnectorCheckpoint(offsets={"path": "p"}, epoch=1, metadata={"connector_type": "kafka"})
    assert SourcePosition.from_connector_checkpoint(checkpoint, "file") == FilePosition(path="p", byte_offset=0)
    assert SourcePosition.from_connector_checkpoint(checkpoint, "") == GenericPosition(
        connector_type="", offsets={"path": "p"}
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("18446744073709551615", 2**64 - 1),
        ("+007", 7),
        ("0" * 50 + "5", 5),
        ("000", 0),
        ("18446744073709551616", None),
        ("9" * 6000, None),
        ("-1", None),
        ("-0", None),
        ("+", None),
        ("++1", None),
        ("1_0", None),
        (" 1", None),
        ("1\n", None),
        ("٣", None),
        ("", None),
    ],
)
def test_numbers_in_offsets_are_read_as_rust_reads_them(text: str, number: int | None) -> None:
    checkpoint = ConnectorCheckpoint(
        offsets={"binlog_position": text}, epoch=1, metadata={"connector_type": "mysql_cdc"}
    )
    assert SourcePosition.from_connector_checkpoint(checkpoint) == MysqlCdcPosition(binlog_position=number)


@settings(deadline=None)
@given(strategies.source_positions(), strategies.u64())
def test_positions_survive_offsets_except_where_text_cannot_tell(position: SourcePosition, epoch: int) -> None:
    for rebuilt in (
        SourcePosition.from_connector_checkpoint(position.to_connector_checkpoint(epoch)),
        SourcePosition.from_offset_entry(position.to_offset_entry(epoch)),
    ):
        if isinstance(position, KafkaPosition):
            assert isinstance(rebuilt, KafkaPosition)
            kept = {(entry.topic, entry.partition): entry for entry in position.partitions}
            if all(entry.partition >= 0 for entry in position.partitions):
                assert {(entry.topic, entry.partition): entry for entry in rebuilt.partitions} == kept
        else:
            assert rebuilt == position
