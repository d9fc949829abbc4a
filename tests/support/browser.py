"""A real browser: Chromium without a window, which tells what the page asked for and complained about."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--force-color-profile=srgb"]


def chromium() -> str:
    """Where it is; `.ci/ensure-chromium` sees to it that there is one."""
    for name in (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise AssertionError("no Chromium was found: run .ci/ensure-chromium, or set CHROMIUM")


@contextmanager
def started() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass(slots=True)
class Visit:
    """A page that was opened, and what happened on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def visit(
    browser: Browser, file: Path, *, width: int = 1100, height: int = 900, dark: bool = False, scale: float = 1
) -> Iterator[Visit]:
    """Opens a report and waits until everything is drawn."""
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if dark else "light",
        device_scale_factor=scale,
        has_touch=width < 600,
    )
    page = context.new_page()
    seen = Visit(page)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(f"error: {error}"))

    def dismiss(dialog: Dialog) -> None:
        seen.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(file.as_uri())
    drawn(page)
    try:
        yield seen
    finally:
        context.close()


def drawn(page: Page) -> None:
    """Waits until the charts are."""
    page.wait_for_selector("body[data-drawn=all]", timeout=120_000, state="attached")
