"""What the pages tell people to type into a shell, and typing it."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOW_TOS = (
    "docs/howto/save-and-recover.md",
    "docs/howto/deliver-exactly-once.md",
    "docs/howto/find-out-what-happened.md",
    "docs/howto/go-back.md",
    "docs/howto/keep-and-prune.md",
    "docs/howto/serve-positions.md",
    "docs/interop.md",
)
"""In the order someone reads them: later ones go on in the directory that earlier ones made."""
LAMINARDB = Path("tests", "data", "golden", "fs", "full")
"""What someone who comes from LaminarDB has as `./old`."""

_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shell_blocks(page: Path) -> list[str]:
    """The shell blocks of a page that can be typed as they are."""
    return _BLOCK.findall(page.read_text())


def type_page(page: Path, directory: Path, environment: Mapping[str, str]) -> str:
    """Types the blocks of a page, one after another; what was printed. A command that fails ends it."""
    printed = ""
    for block in shell_blocks(page):
        done = subprocess.run(
            ["bash", "-e", "-x", "-o", "pipefail", "-c", block],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{page}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        printed += done.stdout
    return printed
