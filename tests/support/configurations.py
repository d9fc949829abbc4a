"""The ready configurations of `conf/`, for tests that use them."""

from pathlib import Path

CONF = Path(__file__).parents[2] / "conf"
LOCAL = CONF / "local"


def settings(path: Path) -> dict[str, str]:
    """A file of Spark settings: a name, white space, the value."""
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, value = line.partition(" ")
            assert name not in found, name
            found[name] = value.strip()
    return found
