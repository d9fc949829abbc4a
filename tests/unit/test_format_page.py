"""`docs/format.md` says what the code does: tables, columns, types, layout, properties, and the LCB1 example."""

import re
from pathlib import Path

import pytest

from laminar_delta.catalog.tables import LATER, TABLES
from laminar_delta.codec import decode_batch, encode_batch
from laminar_delta.engine.request import TableSpec
from tests.support.sqltypes import sql_name

ALL = (*TABLES, *LATER)
PAGE = (Path(__file__).parents[2] / "docs" / "format.md").read_text()


def _section(table: str) -> str:
    return PAGE.split(f"\n### {table}\n", 1)[1].split("\n#", 1)[0]


def test_all_tables_are_described() -> None:
    assert re.findall(r"^### (\w+)$", PAGE, re.MULTILINE) == [spec.name for spec in ALL]


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_a_table_is_described_as_it_is(spec: TableSpec) -> None:
    text = _section(spec.name)
    rows = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| \S", text, re.MULTILINE)
    assert rows == [(field.name, sql_name(field.type)) for field in spec.schema]
    partitions = re.search(r"Partitioned by ([^.]+)\.", text)
    assert tuple(re.findall(r"`(\w+)`", partitions[1] if partitions else "")) == spec.partition_by
    stats = re.search(r"Statistics on: ([^.]+)\.", text)
    assert stats is not None
    assert stats[1].replace(" ", "") == spec.properties["delta.dataSkippingStatsColumns"]


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.name)
def test_no_decimal_and_no_payload_is_in_the_statistics(spec: TableSpec) -> None:
    counted = set(spec.properties["delta.dataSkippingStatsColumns"].split(","))
    assert counted <= {f.name for f in spec.schema if sql_name(f.type) in ("STRING", "BIGINT")}
    assert not counted & set(spec.partition_by)


def test_properties_are_described_as_they_are() -> None:
    rows = dict(re.findall(r"^\| `((?:delta|laminar)\.\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    for spec in ALL:
        assert {k: v for k, v in spec.properties.items() if k != "delta.dataSkippingStatsColumns"} == rows


def test_the_example_batch_is_one() -> None:
    example = re.search(r"```text\n([0-9a-f]+)\n```", PAGE)
    assert example is not None
    assert [tuple(entry) for entry in decode_batch(bytes.fromhex(example[1]))] == [("k", b"v")]
    assert encode_batch([("k", b"v")]).hex() == example[1]
