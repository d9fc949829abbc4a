"""A layout's hash is of what it says in one spelling, whichever Python computes it, and as the page on the format has it."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from laminar_delta.catalog.state.layout import Layout, Origin, Store
from laminar_delta.codec import block_hash
from laminar_delta.errors import CorruptionError

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text()
FIXED = {"pipeline": "orders", "checkpoint_id": 9, "attempt_id": "a", "generation": 1, "part_id": None}
LAYOUT = Layout(
    # A letter that Unicode has since 15, after Python 3.11: `repr` escapes it there, and in later ones it does not.
    operator="agg-\U0001fae8 d'été",
    partition=3,
    length=70_000,
    checksum="xxh3:0123456789abcdef0123456789abcdef",
    block_bytes=65_536,
    names=bytes(range(32)),
    stores=(Store(table="operator_snapshots", checkpoint_id=7, attempt_id="0190", raw_bytes=70_000),),
    apply="añadir",
    upon=(Origin(table="operator_snapshots", checkpoint_id=7, attempt_id="0190"),),
)


def test_the_hash_is_of_the_text_on_the_page() -> None:
    example = re.search(r"```text\n(\(.+\))\n```", PAGE)
    assert example is not None
    assert LAYOUT.row(FIXED)["xxh3"] == Decimal(block_hash(LAYOUT.names + example[1].encode("ascii")))


@pytest.mark.parametrize("spell", [ascii, repr])
def test_rows_of_the_spelling_before_are_read(spell: object) -> None:
    assert callable(spell)
    row = LAYOUT.row(FIXED)
    stores = [tuple(store.values()) for store in row["stores"]]
    upon = [tuple(origin.values()) for origin in row["upon"]]
    said = spell(
        (LAYOUT.operator, 3, 70_000, LAYOUT.checksum, 65_536, stores, LAYOUT.apply, upon),
    )
    row["xxh3"] = Decimal(block_hash(LAYOUT.names + said.encode()))
    assert Layout.from_row(row) == LAYOUT
    with pytest.raises(CorruptionError, match="layout of operator"):
        Layout.from_row({**row, "operator": "agg-\U0001fae8 d'ete"})
