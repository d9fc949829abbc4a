"""Whatever the values: documents and pickles lose nothing, and no input makes a reader raise anything but FormatError."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from laminar_delta import model
from laminar_delta.errors import FormatError
from laminar_delta.model import WireModel
from laminar_delta.model.wire import layout_of
from laminar_delta.testing import strategies

STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "CheckpointId": strategies.checkpoint_ids(),
    "CheckpointManifest": strategies.manifests(),
    "CheckpointManifestV2": strategies.manifests_v2(),
    "ConnectorCheckpoint": strategies.connector_checkpoints(),
    "DeterminismWarning": strategies.determinism_warnings(),
    "Finding": strategies.findings(),
    "HealedRows": strategies.healed_rows(),
    "InFlightRecord": strategies.in_flight_records(),
    "KafkaPartitionOffset": strategies.kafka_partition_offsets(),
    "OperatorCheckpoint": strategies.operator_checkpoints(),
    "OperatorDeterminismWarning": strategies.operator_determinism_warnings(),
    "OperatorSnapshotEntry": strategies.operator_snapshot_entries(),
    "PartitionSnapshotEntry": strategies.partition_snapshot_entries(),
    "RecoveryPlan": strategies.recovery_plans(),
    "RecoveryReport": strategies.recovery_reports(),
    "SinkCommitStatus": strategies.sink_commit_statuses(),
    "SkippedCheckpoint": strategies.skipped_checkpoints(),
    "SourceCheckpoint": strategies.source_checkpoints(),
    "SourceOffset": strategies.source_offsets(),
    "SourceOffsetEntry": strategies.source_offset_entries(),
    "SourcePosition": strategies.source_positions(),
    "ValidationResult": strategies.validation_results(),
}
VARIANTS = {"FilePosition", "GenericPosition", "KafkaPosition", "MysqlCdcPosition", "PostgresCdcPosition"}
KINDS: dict[str, type[WireModel]] = {name: getattr(model, name) for name in sorted(STRATEGIES.keys() | VARIANTS)}

# Data generation for whole reports is slow on a loaded machine; that is no defect of what is tested.
QUICK = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_every_model_type_is_tested_here() -> None:
    public = {
        name
        for name in model.__all__
        if isinstance(kind := getattr(model, name), type) and issubclass(kind, WireModel) and kind is not WireModel
    }
    assert public == KINDS.keys()


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@QUICK
@given(data=st.data())
def test_value_survives_json_dict_and_pickle(name: str, data: st.DataObject) -> None:
    value = data.draw(STRATEGIES[name])
    kind = KINDS[name]
    for pretty in (None, False, True):
        document = value.to_json(pretty=pretty)
        assert kind.from_json(document) == kind.from_json(document.decode("utf-8")) == value
    assert kind.from_dict(value.to_dict()) == value
    assert json.loads(value.to_json()) == value.to_dict()
    assert type(value).from_json(value.to_json()) == value
    copy = pickle.loads(pickle.dumps(value))
    assert copy == value
    assert type(copy) is type(value)
    assert isinstance(repr(value), str)


def json_values() -> st.SearchStrategy[Any]:
    """Any JSON value, fond of the names our documents use."""
    words = sorted({field for kind in KINDS.values() for field in layout_of(kind).from_document})
    text = st.sampled_from([*words, "type", "File", "Kafka", "Pending", "Failed", "Warning"]) | st.text(max_size=4)
    scalars = st.none() | st.booleans() | st.integers() | st.floats() | text
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
        max_leaves=12,
    )


def value_or_format_error(kind: type[WireModel], document: bytes | str) -> None:
    try:
        value = kind.from_json(document)
    except FormatError as error:
        refused = error
    else:
        assert kind.from_json(value.to_json()) == value
        return
    assert refused.expected is not None
    assert refused.found is not None
    assert pickle.loads(pickle.dumps(refused)).message == refused.message


@pytest.mark.parametrize("name", sorted(KINDS))
@QUICK
@given(document=st.binary(max_size=60) | st.text(st.characters(), max_size=60))
def test_any_text_gives_a_value_or_format_error(name: str, document: bytes | str) -> None:
    value_or_format_error(KINDS[name], document)


@pytest.mark.parametrize("name", sorted(KINDS))
@QUICK
@given(value=json_values(), ascii_only=st.booleans())
def test_any_json_gives_a_value_or_format_error(name: str, value: Any, ascii_only: bool) -> None:
    value_or_format_error(KINDS[name], json.dumps(value, ensure_ascii=ascii_only))


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@QUICK
@given(data=st.data())
def test_damaged_document_gives_a_value_or_format_error(name: str, data: st.DataObject) -> None:
    document = data.draw(STRATEGIES[name]).to_json()
    start = data.draw(st.integers(0, len(document)))
    damaged = document[:start] + data.draw(st.binary(max_size=3)) + document[start + data.draw(st.integers(0, 8)) :]
    value_or_format_error(KINDS[name], damaged)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@QUICK
@given(data=st.data())
def test_document_with_one_foreign_value_gives_a_value_or_format_error(name: str, data: st.DataObject) -> None:
    document = data.draw(STRATEGIES[name]).to_dict()
    foreign = data.draw(json_values())
    if isinstance(document, dict):
        document[data.draw(st.sampled_from(sorted(document)))] = foreign
    else:
        document = foreign
    value_or_format_error(KINDS[name], json.dumps(document))
