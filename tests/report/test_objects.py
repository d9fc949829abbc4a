"""In a notebook, objects are tables; whatever they are called."""

from html.parser import HTMLParser

import pytest

import laminar_delta as ld
from laminar_delta.model.display import Displayed
from tests.support.reported import ATTACKS

ALLOWED = {"div", "strong", "bdi", "table", "thead", "tbody", "tr", "th", "td"}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert {name for name, _ in attrs} <= {"style", "scope", "class", "colspan"}

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(value: Displayed) -> str:
    parser = _Tags()
    parser.feed(value._repr_html_())
    parser.close()
    assert parser.found <= ALLOWED
    return parser.text


@pytest.mark.parametrize("name", [*ATTACKS, "orders"])
def test_everything_is_shown_and_nothing_is_markup(catalog: ld.Catalog, name: str) -> None:
    pipeline = catalog.pipeline(name)
    last = pipeline.list()[-1].checkpoint_id
    assert name in shown(catalog)
    assert name in shown(pipeline)
    assert name in shown(pipeline.recover(dry_run=True))
    assert f"Checkpoint {last}" in shown(pipeline.get(last))
    assert "is intact" in shown(pipeline.validate(last))
    assert "the newest" in shown(pipeline.prune(ld.RetentionPolicy(keep_last=1), dry_run=True))
    assert name in shown(pipeline.diff(pipeline.list()[0].checkpoint_id, last))


def test_a_recovery_says_why(catalog: ld.Catalog) -> None:
    text = shown(catalog.pipeline(ATTACKS[0]).recover(dry_run=True))
    assert "nothing was valid" in text
    assert "abandoned" in text


def test_long_lists_are_cut(catalog: ld.Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laminar_delta.report.objects.SHOWN", 1)
    assert "1 of 3" in shown(catalog.pipeline("orders"))
