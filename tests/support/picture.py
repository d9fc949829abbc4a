"""Makes the picture of the report for the README: `make picture`."""

import base64
import sys
import tempfile
from pathlib import Path

import laminar_delta as ld
from laminar_delta.report import write_report
from tests.support.browser import started, visit
from tests.support.reported import fill_plausible


def make(target: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        catalog = ld.open_catalog(str(place / "checkpoints"))
        fill_plausible(catalog)
        write_report(catalog, place / "report.html")
        with started() as browser, visit(browser, place / "report.html", width=1160, height=1180) as seen:
            # Not where this machine happened to keep it.
            seen.page.evaluate("document.querySelector('header bdi').textContent = './checkpoints'")
            png = seen.page.screenshot()
            webp = seen.page.evaluate(
                """async (data) => {
                  const image = new Image();
                  image.src = "data:image/png;base64," + data;
                  await image.decode();
                  const canvas = Object.assign(document.createElement("canvas"), {width: image.width, height: image.height});
                  canvas.getContext("2d").drawImage(image, 0, 0);
                  return canvas.toDataURL("image/webp", 0.85).split(",")[1];
                }""",
                base64.b64encode(png).decode(),
            )
        target.write_bytes(base64.b64decode(webp))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
