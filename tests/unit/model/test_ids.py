import pickle
import re
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laminar_delta.errors import ErrorCode, FormatError, InvalidInputError
from laminar_delta.model import (
    CheckpointId,
    check_ordering_number,
    check_u64,
    new_attempt_id,
    validate_pipeline_name,
)
from laminar_delta.testing import strategies

TEXT = "019cd000-0001-7abc-8000-00000000000a"


class TestCheckpointId:
    @pytest.mark.parametrize(
        "text",
        [
            TEXT,
            TEXT.upper(),
            TEXT.replace("-", ""),
            TEXT.replace("-", "").upper(),
            "{" + TEXT + "}",
            "urn:uuid:" + TEXT,
            "urn:uuid:" + TEXT.upper(),
        ],
    )
    def test_form_is_read_and_normalised(self, text: str) -> None:
        assert str(CheckpointId(text)) == TEXT
        assert CheckpointId.from_json(f'"{text}"') == CheckpointId(TEXT)
        assert CheckpointId(text).to_json() == f'"{TEXT}"'.encode()

    @pytest.mark.parametrize(
        "text",
        [
            "",
            TEXT[:-1],
            TEXT + "0",
            f" {TEXT}",
            f"{TEXT}\n",
            f"({TEXT})",
            "{" + TEXT,
            TEXT + "}",
            "{" + TEXT.replace("-", "") + "}",
            "urn:uuid:" + TEXT.replace("-", ""),
            "URN:UUID:" + TEXT,
            "uuid:" + TEXT,
            TEXT.replace("-", "_"),
            "019cd0000001-7abc-8000-0000-0000000a",
            TEXT[:-1] + "g",
            TEXT[:-1] + "١",
        ],
    )
    def test_everything_else_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError):
            CheckpointId(text)
        with pytest.raises(FormatError):
            CheckpointId.from_dict(text)

    @pytest.mark.parametrize("raw", [5, None, ["x"], {"text": TEXT}, [TEXT]])
    def test_only_a_string_holds_an_id(self, raw: object) -> None:
        with pytest.raises(FormatError):
            CheckpointId.from_dict(raw)

    def test_new_ids_are_of_version_7_and_grow(self) -> None:
        ids = [CheckpointId.now() for _ in range(100)]
        assert ids == sorted(ids)
        assert len(set(ids)) == 100
        assert {one.uuid.version for one in ids} == {7}

    @settings(deadline=None)
    @given(st.uuids(), st.uuids())
    def test_order_is_that_of_the_bytes(self, left: uuid.UUID, right: uuid.UUID) -> None:
        assert (CheckpointId.from_uuid(left) < CheckpointId.from_uuid(right)) == (left.bytes < right.bytes)
        assert CheckpointId.from_uuid(left).uuid == left

    def test_id_works_as_a_key_and_pickles(self) -> None:
        assert {CheckpointId(TEXT): 1}[CheckpointId(TEXT.upper())] == 1
        assert pickle.loads(pickle.dumps(CheckpointId(TEXT))) == CheckpointId(TEXT)


def test_attempt_ids_are_uuid7_text_that_sorts() -> None:
    attempts = [new_attempt_id() for _ in range(100)]
    assert attempts == sorted(attempts)
    assert all(
        re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", one) for one in attempts
    )


class TestPipelineNames:
    @pytest.mark.parametrize(
        "name",
        [
            "a",
            "x" * 200,
            "orders/eu=1",
            "Bestellungen für München",
            "日本語",
            ".",
            "..",
            " ",
            "é" * 41,
            "😀" * 20,
            "\n",
        ],
    )
    def test_taken(self, name: str) -> None:
        assert validate_pipeline_name(name) == name

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("", "1 to 200 characters"),
            ("x" * 201, "1 to 200 characters"),
            ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"),
            ("a\0b", "NUL"),
            ("\ud800", "surrogate"),
            (" " * 83, "246 bytes"),
            ("é" * 42, "246 bytes"),
            ("😀" * 21, "246 bytes"),
        ],
    )
    def test_refused_with_the_reason(self, name: str, reason: str) -> None:
        with pytest.raises(InvalidInputError, match=reason) as caught:
            validate_pipeline_name(name)
        assert caught.value.code is ErrorCode.INVALID_INPUT
        assert caught.value.expected
        assert caught.value.found

    @pytest.mark.parametrize("name", [None, 5, b"a"])
    def test_only_text_is_a_name(self, name: str) -> None:
        with pytest.raises(InvalidInputError):
            validate_pipeline_name(name)

    def test_limit_of_the_directory_is_exact(self) -> None:
        fits = " " * 82  # 246 bytes and `pipeline=` are 255
        assert validate_pipeline_name(fits) == fits
        with pytest.raises(InvalidInputError):
            validate_pipeline_name(fits + "x")

    @settings(deadline=None)
    @given(strategies.pipeline_names())
    def test_generated_names_are_taken(self, name: str) -> None:
        assert validate_pipeline_name(name) == name


class TestNumbers:
    @settings(deadline=None)
    @given(strategies.ordering_numbers())
    def test_ordering_numbers_are_taken(self, value: int) -> None:
        assert check_ordering_number("epoch", value) == value

    @pytest.mark.parametrize("value", [-1, 2**63, 2**64, 10**5000], ids=["-1", "2^63", "2^64", "10^5000"])
    def test_ordering_number_names_field_and_limit(self, value: int) -> None:
        with pytest.raises(InvalidInputError, match=r"epoch: .* 9223372036854775807") as caught:
            check_ordering_number("epoch", value)
        assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
        assert caught.value.details["maximum"] == 2**63 - 1

    def test_u64_has_the_full_range(self) -> None:
        assert check_u64("hash", 0) == 0
        assert check_u64("hash", 2**64 - 1) == 2**64 - 1
        for value in (-1, 2**64):
            with pytest.raises(InvalidInputError, match="18446744073709551615") as caught:
                check_u64("hash", value)
            assert caught.value.code is ErrorCode.NUMBER_TOO_LARGE
            assert caught.value.found == value

    @pytest.mark.parametrize("value", [None, "1", 1.0, True])
    def test_other_types_are_wrong_rather_than_too_large(self, value: int) -> None:
        for check in (check_u64, check_ordering_number):
            with pytest.raises(InvalidInputError) as caught:
                check("epoch", value)
            assert caught.value.code is ErrorCode.INVALID_INPUT
