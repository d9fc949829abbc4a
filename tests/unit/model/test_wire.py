"""The rules common to all documents, where the vectors do not reach."""

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any

import pytest

from laminar_delta.errors import ErrorCode, FormatError, InvalidInputError
from laminar_delta.model import (
    CheckpointManifest,
    ConnectorCheckpoint,
    DeterminismWarning,
    KafkaPosition,
    MysqlCdcPosition,
    OperatorCheckpoint,
    PartitionSnapshotEntry,
    SinkCommitStatus,
    SourceOffset,
    SourcePosition,
    WarningSeverity,
    WireModel,
)

HEAD = '"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1'


def manifest(rest: str = "") -> CheckpointManifest:
    return CheckpointManifest.from_json("{" + HEAD + rest + "}")


def refused(rest: str) -> FormatError:
    with pytest.raises(FormatError) as caught:
        manifest(rest)
    return caught.value


class TestJsonText:
    @pytest.mark.parametrize(
        "document",
        [
            b"",
            b"\xef\xbb\xbf{" + HEAD.encode() + b"}",
            "\ufeff{" + HEAD + "}",
            ("{" + HEAD + "}").encode("utf-16"),
            ("{" + HEAD + "}").encode("utf-32"),
            b"{" + HEAD.encode() + b',"unknown":"\xff"}',
            "{" + HEAD + ',"unknown":"\ud800"}',
            "{" + HEAD + "}{}",
            "{" + HEAD + "}\x00",
            "{" + HEAD + ',"unknown":NaN}',
            "{" + HEAD + ',"unknown":Infinity}',
            "{" + HEAD + ',"unknown":-Infinity}',
            "{" + HEAD + ',"unknown":01}',
            "{" + HEAD + ',"unknown":+1}',
            "{" + HEAD + ',"unknown":.5}',
            "{" + HEAD + ',"unknown":1.}',
            "{" + HEAD + ',"unknown":-}',
            "{" + HEAD + ',"unknown":"\\x"}',
            "{" + HEAD + ',"unknown":"\\u12"}',
            "{" + HEAD + ',"unknown":"a\nb"}',
            "{" + HEAD + ",'unknown':1}",
            "{" + HEAD + ",}",
            "\xa0{" + HEAD + "}",
        ],
    )
    def test_anything_but_one_plain_json_value_is_refused(self, document: bytes | str) -> None:
        with pytest.raises(FormatError) as caught:
            CheckpointManifest.from_json(document)
        assert caught.value.expected is not None
        assert caught.value.found is not None

    def test_whitespace_around_the_value_is_fine(self) -> None:
        assert CheckpointManifest.from_json(" \t\r\n{" + HEAD + "}\r\n ") == manifest()

    @pytest.mark.parametrize("opening", ["[", '{"a":'])
    def test_nesting_beyond_the_parser_is_a_format_error(self, opening: str) -> None:
        with pytest.raises(FormatError):
            CheckpointManifest.from_json(opening * 200_000)

    def test_bytearray_and_memoryview_are_bytes(self) -> None:
        documents: list[Any] = [bytearray(manifest().to_json()), memoryview(manifest().to_json())]
        for document in documents:
            assert CheckpointManifest.from_json(document) == manifest()

    @pytest.mark.parametrize("document", [None, 5, {"version": 1}, ["x"]])
    def test_what_is_no_text_is_the_callers_mistake(self, document: Any) -> None:
        with pytest.raises(InvalidInputError):
            CheckpointManifest.from_json(document)


class TestNumbers:
    @pytest.mark.parametrize(
        "text",
        ["1.0", "1e3", "1E0", "-0", "-0.0", "-1", '"1"', "true", "[]", "{}", "18446744073709551616", "9" * 5000],
    )
    def test_unsigned_field_refuses(self, text: str) -> None:
        error = refused(f',"wal_position":{text}')
        assert error.details["field"] == "wal_position"
        assert error.expected == "an integer from 0 to 18446744073709551615"

    @pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "-0", "0.0"])
    def test_signed_field_refuses(self, text: str) -> None:
        refused(f',"watermark":{text}')

    def test_limits_themselves_are_taken(self) -> None:
        read = manifest(',"wal_position":18446744073709551615,"watermark":-9223372036854775808')
        assert (read.wal_position, read.watermark) == (2**64 - 1, -(2**63))

    @pytest.mark.parametrize("text", ["1e999", "-0", "9" * 5000, "0.1", "-1e-999"])
    def test_ignored_field_holds_any_number(self, text: str) -> None:
        assert manifest(f',"unknown":{text}') == manifest()

    def test_narrow_fields_have_their_own_limit(self) -> None:
        with pytest.raises(FormatError, match="4294967295"):
            PartitionSnapshotEntry.from_json('{"partition_id":4294967296,"is_delta":false,"path":"","size_bytes":0}')
        with pytest.raises(FormatError, match="2147483647"):
            SourcePosition.from_json('["Kafka","g",[["t",2147483648,0]]]')


class TestFields:
    def test_repeated_field_is_refused_wherever_it_is(self) -> None:
        assert refused(',"epoch":1').details["field"] == "epoch"
        error = refused(',"operator_states":{"a":{"external":true,"external":true}}')
        assert error.details["field"] == 'operator_states["a"].external'

    def test_repeated_unknown_field_is_ignored(self) -> None:
        assert manifest(',"x":1,"x":2') == manifest()

    def test_every_value_of_a_repeated_key_has_to_be_good(self) -> None:
        assert manifest(',"sink_epochs":{"a":1,"a":2}').sink_epochs == {"a": 2}
        assert refused(',"sink_epochs":{"a":-1,"a":2}').details["field"] == 'sink_epochs["a"]'

    @pytest.mark.parametrize("name", ["wal_position", "source_offsets", "source_names", "is_incremental", "version"])
    def test_null_is_refused_where_there_is_no_option(self, name: str) -> None:
        document = {"version": 1, "checkpoint_id": 1, "epoch": 1, "timestamp_ms": 1, name: None}
        with pytest.raises(FormatError, match="found null"):
            CheckpointManifest.from_dict(document)

    def test_lone_surrogate_matters_only_in_what_is_used(self) -> None:
        assert manifest(',"unknown":{"\\ud800":"\\udfff"}') == manifest()
        assert manifest(',"state_checksum":"\\ud83d\\ude00"').state_checksum == "😀"
        for used in (
            ',"state_checksum":"\\ud800"',
            ',"sink_epochs":{"\\ud800":1}',
            ',"source_names":["\\udc00a"]',
            ',"\\ud800":1',
        ):
            refused(used)

    def test_error_names_the_place(self) -> None:
        error = refused(',"source_offsets":{"a":{"offsets":{},"epoch":-3}}')
        assert 'CheckpointManifest.source_offsets["a"].epoch' in str(error)
        assert error.details["field"] == 'source_offsets["a"].epoch'
        assert error.expected == "an integer from 0 to 18446744073709551615"
        assert error.found == -3
        assert error.code is ErrorCode.FORMAT
        error = refused(',"inflight_data":{"ü\\"":[{"input_id":0,"data_b64":""},{"input_id":0,"data_b64":7}]}')
        assert error.details["field"] == 'inflight_data["ü\\""][1].data_b64'

    def test_error_quotes_only_the_beginning_of_long_text(self) -> None:
        error = refused(f',"wal_position":"{"x" * 100_000}"')
        assert len(str(error)) < 500
        assert len(str(refused(',"sink_epochs":{"' + "k" * 100_000 + '":-1}'))) < 500

    def test_error_pickles_with_its_fields(self) -> None:
        error = refused(',"wal_position":-1')
        copy = pickle.loads(pickle.dumps(error))
        assert (copy.expected, copy.found, copy.details) == (error.expected, error.found, error.details)

    @pytest.mark.parametrize(
        ("document", "accepted"),
        [
            ('[{"a":"1"},5]', True),
            ('[{"a":"1"},5,{}]', True),
            ('[{"a":"1"}]', False),
            ('[{"a":"1"},5,{},0]', False),
            ('[{"a":"1"},5,null]', False),
        ],
    )
    def test_record_as_array(self, document: str, accepted: bool) -> None:
        if accepted:
            assert ConnectorCheckpoint.from_json(document) == ConnectorCheckpoint(offsets={"a": "1"}, epoch=5)
        else:
            with pytest.raises(FormatError):
                ConnectorCheckpoint.from_json(document)

    @pytest.mark.parametrize(
        ("text", "accepted"),
        [
            ('"Warning"', True),
            ('{"Warning":null}', True),
            ('{"Warning":{}}', False),
            ('{"Warning":null,"Warning":null}', False),
            ("{}", False),
            ('["Warning"]', False),
            ("null", False),
            ("1", False),
        ],
    )
    def test_variant_by_name_or_as_key_of_null(self, text: str, accepted: bool) -> None:
        document = f'{{"source_name":"a","message":"m","severity":{text}}}'
        if accepted:
            assert DeterminismWarning.from_json(document).severity is WarningSeverity.WARNING
        else:
            with pytest.raises(FormatError):
                DeterminismWarning.from_json(document)


class TestTagged:
    @pytest.mark.parametrize(
        "document",
        [
            '["MysqlCdc"]',
            '["File","p"]',
            '["File","p",5,6]',
            "[]",
            '[{"type":"File"},"p",5]',
            '{"type":null,"path":"p","byte_offset":5}',
            '{"type":{"File":null},"path":"p","byte_offset":5}',
            '{"type":"file","path":"p","byte_offset":5}',
            '{"type":"File","path":"p","path":"p","byte_offset":5}',
            '{"type":"File","path":"p","byte_offset":5,"unknown":1e999}',
            '{"type":"File","path":"p","byte_offset":5,"unknown":["\\ud800"]}',
            '{"type":"File","path":"p","byte_offset":5,"unknown":{"\\ud800":0,"\\ud800":1}}',
            '"File"',
            "null",
        ],
    )
    def test_refused(self, document: str) -> None:
        with pytest.raises(FormatError):
            SourcePosition.from_json(document)

    def test_missing_options_and_unknown_fields_are_fine_in_an_object(self) -> None:
        assert SourcePosition.from_json('{"x":[1.5,-0,{}],"type":"MysqlCdc"}') == MysqlCdcPosition()

    def test_variant_reads_only_itself(self) -> None:
        document = '{"type":"File","path":"p","byte_offset":5}'
        with pytest.raises(FormatError, match="a type of Kafka, found"):
            KafkaPosition.from_json(document)

    def test_common_class_is_no_position(self) -> None:
        with pytest.raises(InvalidInputError):
            SourcePosition()


class TestConstruction:
    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"epoch": "1"}, "epoch"),
            ({"epoch": 1.0}, "epoch"),
            ({"epoch": True}, "epoch"),
            ({"epoch": None}, "epoch"),
            ({"is_incremental": 1}, "is_incremental"),
            ({"source_names": "abc"}, "source_names"),
            ({"source_names": ["a", 1]}, "source_names[1]"),
            ({"source_names": {"a"}}, "source_names"),
            ({"state_checksum": b"x"}, "state_checksum"),
            ({"state_checksum": "\ud800"}, "state_checksum"),
            ({"sink_epochs": [("a", 1)]}, "sink_epochs"),
            ({"sink_epochs": {1: 1}}, "sink_epochs[int]"),
            ({"source_offsets": {"a": {"offsets": {}, "epoch": 1}}}, 'source_offsets["a"]'),
            ({"sink_commit_statuses": {"a": "Pending"}}, 'sink_commit_statuses["a"]'),
            ({"operator_states": {"a": SinkCommitStatus.pending()}}, 'operator_states["a"]'),
        ],
    )
    def test_wrong_type_names_the_field(self, changes: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidInputError) as caught:
            replace(manifest(), **changes)
        assert caught.value.code is ErrorCode.INVALID_INPUT
        assert caught.value.details["field"] == field
        assert f"CheckpointManifest.{field}: expected" in str(caught.value)

    @pytest.mark.parametrize(
        ("changes", "limit"),
        [
            ({"epoch": 2**64}, 2**64 - 1),
            ({"epoch": -1}, 2**64 - 1),
            ({"epoch": 10**9999}, 2**64 - 1),
            ({"version": 2**32}, 2**32 - 1),
            ({"watermark": 2**63}, 2**63 - 1),
            ({"per_core_wal_positions": (0, 2**64)}, 2**64 - 1),
            ({"source_watermarks": {"a": -(2**63) - 1}}, 2**63 - 1),
        ],
        ids=lambda value: None if isinstance(value, int) else next(iter(value)),
    )
    def test_number_out_of_range_names_the_limit(self, changes: dict[str, Any], limit: int) -> None:
        with pytest.raises(InvalidInputError) as caught:
            replace(manifest(), **changes)
        assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
        assert caught.value.details["maximum"] == limit
        assert str(limit) in str(caught.value)

    def test_instance_is_frozen_and_owns_its_collections(self) -> None:
        offsets = {"a": "1"}
        checkpoint = ConnectorCheckpoint(offsets=MappingProxyType(offsets), epoch=1)
        offsets["b"] = "2"
        assert checkpoint.offsets == {"a": "1"}
        assert type(checkpoint.offsets) is dict
        assert manifest(',"source_names":["a"]').source_names == ("a",)
        with pytest.raises(FrozenInstanceError):
            checkpoint.epoch = 2  # type: ignore[misc]  # what is tested
        assert not hasattr(checkpoint, "__dict__")

    def test_integers_of_other_types_become_plain(self) -> None:
        class Epoch(IntEnum):
            FIRST = 1

        epoch = ConnectorCheckpoint.new(Epoch.FIRST).epoch
        assert type(epoch) is int

    def test_fields_go_by_name_only(self) -> None:
        with pytest.raises(TypeError):
            OperatorCheckpoint("eA==")  # type: ignore[call-arg]  # what is tested

    def test_from_dict_takes_any_mapping_and_tuples(self) -> None:
        document: Mapping[str, object] = MappingProxyType({"offsets": MappingProxyType({}), "epoch": 1, 5: "x"})  # type: ignore[dict-item]  # a foreign key is an unknown field
        assert ConnectorCheckpoint.from_dict(document) == ConnectorCheckpoint.new(1)
        assert ConnectorCheckpoint.from_dict(({}, 1)) == ConnectorCheckpoint.new(1)
        with pytest.raises(FormatError):
            ConnectorCheckpoint.from_dict({"offsets": {"a": 1.5}, "epoch": 1})

    def test_to_dict_is_a_copy(self) -> None:
        checkpoint = ConnectorCheckpoint.with_offsets(1, {"a": "1"})
        checkpoint.to_dict()["offsets"]["a"] = "2"
        assert checkpoint.offsets == {"a": "1"}

    def test_annotation_that_no_document_can_hold_is_noticed(self) -> None:
        @dataclass(frozen=True, slots=True, kw_only=True)
        class Bad(WireModel):
            value: set[str]

        with pytest.raises(TypeError, match=r"set\[str\]"):
            Bad(value=set())

    def test_position_is_checked_inside_others(self) -> None:
        with pytest.raises(InvalidInputError):
            SourceOffset(source_id="s", position={"type": "File"})  # type: ignore[arg-type]  # what is tested
