import pytest

from laminar_delta.errors import FormatError, InvalidInputError
from laminar_delta.model import SinkCommitKind, SinkCommitStatus


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (SinkCommitStatus.pending(), b'"Pending"'),
        (SinkCommitStatus.committed(), b'"Committed"'),
        (SinkCommitStatus.failed("boom"), b'{"Failed":"boom"}'),
        (SinkCommitStatus.failed(""), b'{"Failed":""}'),
    ],
)
def test_each_kind_has_its_form(status: SinkCommitStatus, text: bytes) -> None:
    assert status.to_json() == text
    assert SinkCommitStatus.from_json(text) == status


def test_unit_kinds_may_hold_null() -> None:
    assert SinkCommitStatus.from_json('{"Pending":null}') == SinkCommitStatus.pending()
    assert SinkCommitStatus.from_json('{"Committed":null}') == SinkCommitStatus.committed()


@pytest.mark.parametrize(
    "text",
    [
        '"Failed"',
        '{"Failed":null}',
        '{"Failed":["x"]}',
        '{"Failed":"\\ud800"}',
        "{}",
        '{"Pending":null,"Committed":null}',
        '{"Pending":null,"Pending":null}',
        '{"Pending":""}',
        '{"Pending":{}}',
        '["Pending"]',
        '"PENDING"',
        "null",
        "0",
        "true",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        SinkCommitStatus.from_json(text)


def test_equality_includes_the_message() -> None:
    assert SinkCommitStatus.failed("a") != SinkCommitStatus.failed("b")
    assert {SinkCommitStatus.pending(), SinkCommitStatus.pending()} == {SinkCommitStatus.pending()}


def test_only_failures_have_a_message() -> None:
    for kind, message in ((SinkCommitKind.FAILED, None), (SinkCommitKind.PENDING, "x"), (SinkCommitKind.COMMITTED, "")):
        with pytest.raises(InvalidInputError):
            SinkCommitStatus(kind=kind, message=message)


def test_status_reads_well() -> None:
    assert str(SinkCommitStatus.failed("boom")) == "Failed: boom"
    assert str(SinkCommitStatus.pending()) == "Pending"
    assert SinkCommitStatus.committed().is_committed
    assert not SinkCommitStatus.failed("x").is_committed
