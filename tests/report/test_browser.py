"""The report in a real browser: it draws, filters, loads nothing, complains about nothing, and no name does any harm."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import laminar_delta as ld
from laminar_delta.report import CHARTS, write_report
from tests.support.browser import Visit, drawn, started, visit
from tests.support.reported import ATTACKS

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ARTEFACTS = Path(__file__).parents[2] / "artefacts"
"""Pictures of the last run, for people."""


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with started() as found:
        yield found


@pytest.fixture
def seen(browser: "Browser", report: Path) -> Iterator[Visit]:
    with visit(browser, report) as opened:
        yield opened
        assert opened.complaints == []
        assert opened.requests == [report.as_uri()]


def choose(seen: Visit, name: str) -> None:
    seen.page.locator("#pipeline").select_option(label=name)
    drawn(seen.page)


def test_everything_is_drawn(seen: Visit, catalog: ld.Catalog) -> None:
    page = seen.page
    choose(seen, "orders")
    for name in CHARTS:
        marks = page.locator(f"#chart-{name} svg [aria-roledescription]").count()
        assert marks > 0, name
    assert page.locator("#overview tbody tr").count() == len(catalog.pipelines())
    assert page.locator("#checkpoints tbody tr").count() == 3
    assert page.locator("#recoveries tbody tr").count() == 2
    assert "passed over" in page.locator("#recoveries thead").inner_text()
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / "report-light.png", full_page=True)


def test_filters_narrow_what_is_shown(seen: Visit, catalog: ld.Catalog) -> None:
    page = seen.page
    choose(seen, "orders")
    page.locator("#from").fill("3")
    drawn(page)
    assert page.locator("#shown").inner_text() == "2 of 3 checkpoints"
    assert page.locator("#checkpoints tbody tr td:first-child").all_inner_texts() == ["5", "3"]
    page.locator("#to").fill("4")
    drawn(page)
    assert page.locator("#checkpoints tbody tr td:first-child").all_inner_texts() == ["3"]
    page.locator("#outcome").select_option("failed")
    drawn(page)
    assert page.locator("#shown").inner_text() == "0 of 3 checkpoints"
    assert page.locator("#figure-sizes .empty").is_visible()
    page.locator("#find").fill("DROP")
    assert page.locator("#found").inner_text() == f"1 of {len(catalog.pipelines())} pipelines"
    page.locator("#find-audit").fill("takeover")
    operations = page.locator("#audit tbody tr td:nth-child(4)")
    assert set(operations.all_inner_texts()) == {"takeover"}
    own = operations.count()
    page.locator("#audit-all").check()
    assert operations.count() > own > 0


def test_the_keyboard_and_a_screen_reader_are_enough(seen: Visit) -> None:
    page = seen.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the pipeline"
    page.locator("#overview a").last.focus()
    page.keyboard.press("Enter")
    drawn(page)
    assert page.evaluate("document.activeElement.id") == "detail"
    last = page.locator("#overview tbody tr").last
    assert last.get_attribute("aria-current") == "true"
    assert page.locator("#detail-title bdi").text_content() == last.locator("th").text_content()
    for label in ("Find a pipeline", "From checkpoint", "Find in the audit"):
        assert page.get_by_label(label).count() == 1
    page.locator("#table-timeline summary").focus()
    page.keyboard.press("Enter")
    page.locator("#table-timeline tbody tr").first.wait_for()
    unnamed = page.evaluate("""() => [...document.querySelectorAll("button, input, select, a, .scroll[role]")].filter(
        (e) => !(e.textContent.trim() || e.labels?.length || e.getAttribute("aria-label"))).map((e) => e.outerHTML)""")
    assert unnamed == []
    assert page.locator("th:not([scope])").count() == 0


@pytest.mark.parametrize("name", ATTACKS)
def test_names_do_no_harm(seen: Visit, name: str) -> None:
    page = seen.page
    number = page.locator("#pipeline option").all_text_contents().index(name)
    page.locator("#pipeline").select_option(value=str(number))
    drawn(page)
    assert page.locator("#detail-title bdi").text_content() == name
    for chart in ("sinks", "offsets", "timeline"):
        # Tooltips are markup made by a library.
        page.locator(f"#chart-{chart} svg .mark-symbol path, #chart-{chart} svg .mark-rect path").first.hover(
            force=True
        )
        page.wait_for_selector("#vg-tooltip-element.visible")
    page.locator("#table-sinks summary").click()
    page.locator("#table-sinks tbody tr").nth(1).wait_for()
    assert page.evaluate("window.hurt") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_dark_by_preference_and_by_button(browser: "Browser", report: Path) -> None:
    with visit(browser, report, dark=True) as seen:
        page = seen.page
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.evaluate(paper) == "rgb(18, 22, 28)"
        choose(seen, "orders")
        ARTEFACTS.mkdir(exist_ok=True)
        page.screenshot(path=ARTEFACTS / "report-dark.png")
        page.get_by_role("button", name="Light").click()
        drawn(page)
        assert page.evaluate(paper) == "rgb(255, 255, 255)"
        assert page.get_by_role("button", name="Dark").count() == 1
        assert seen.complaints == []


def test_it_fits_a_phone(browser: "Browser", report: Path) -> None:
    with visit(browser, report, width=390, height=800) as seen:
        choose(seen, "orders")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
        widths = seen.page.evaluate(
            "[...document.querySelectorAll('.chart svg')].map((e) => e.getBoundingClientRect().width)"
        )
        assert widths
        assert all(100 < width <= 390 for width in widths)
        # Nothing of a legend is cut off at the edge of its chart.
        cut = seen.page.evaluate("""() => [...document.querySelectorAll(".chart svg")].flatMap((svg) =>
            [...svg.querySelectorAll(".role-legend text")].filter((text) =>
                text.getBoundingClientRect().right > svg.getBoundingClientRect().right + 1).map((text) => text.textContent))""")
        assert cut == []
        ARTEFACTS.mkdir(exist_ok=True)
        seen.page.screenshot(path=ARTEFACTS / "report-phone.png")
        assert seen.complaints == []


def test_a_single_recovery_is_drawn_beside_whole_seconds(browser: "Browser", tmp_path: Path) -> None:
    catalog = ld.open_catalog(str(tmp_path / "catalog"))
    with catalog.writer("once") as writer:
        writer.recover()
        with writer.checkpoint():
            pass
    write_report(catalog, tmp_path / "report.html")
    with visit(browser, tmp_path / "report.html") as seen:
        drawn(seen.page)
        ticks = seen.page.locator("#chart-recoveries svg .role-axis-label text").all_text_contents()
        assert [tick for tick in ticks if ":" in tick]
        assert not [tick for tick in ticks if tick.startswith(".")]
