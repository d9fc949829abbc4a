"""Secrets do not get into texts."""

import pytest

from laminar_delta.masking import MaskedOptions, is_secret, masked

OPTIONS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG",
    "azure_storage_sas_token": "wJalrXUtnFEMI",
    "AWS_REGION": "eu-central-1",
    "empty_key": "",
}


def test_values_of_secret_options_are_taken_out_and_others_stay() -> None:
    text = "eu-central-1: wJalrXUtnFEMI/K7MDENG, wJalrXUtnFEMI and 'wJalrXUtnFEMI'"
    assert masked(text, OPTIONS) == "eu-central-1: ***, *** and '***'"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://user:pass@bucket/x", "s3://***@bucket/x"),
        ("at https://host/c?sv=1&sig=abc%2B&x=1 now", "at https://host/c?sv=1&sig=***&x=1 now"),
        (
            "https://host/c?X-Amz-Signature=abc&X-Amz-Credential=def",
            "https://host/c?X-Amz-Signature=***&X-Amz-Credential=***",
        ),
        ("/data/a@b/c and mail@example", "/data/a@b/c and mail@example"),
        ("abfss://container@account.dfs.core.windows.net/x", "abfss://***@account.dfs.core.windows.net/x"),
    ],
)
def test_credentials_in_locations_are_taken_out(text: str, shown: str) -> None:
    assert masked(text) == shown


def test_options_show_their_names_only() -> None:
    options = MaskedOptions(OPTIONS)
    assert options["AWS_REGION"] == "eu-central-1"
    for text in (repr(options), str(options), f"{options}", "%s" % options):  # noqa: UP031  # as logging does it
        assert "AWS_REGION" in text
        assert not any(value and value in text for value in OPTIONS.values())


def test_what_is_a_secret_by_its_name() -> None:
    names = [
        "aws_access_key_id",
        "AWS_SESSION_TOKEN",
        "password",
        "client_secret",
        "google_application_credentials",
        "sas",
    ]
    assert all(map(is_secret, names))
    assert not any(map(is_secret, ["region", "endpoint", "allow_http", "timeout", "account_name"]))
