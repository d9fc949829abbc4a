"""What must hold of any table at any time, as functions: used by the suite, the soak runs and the demo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laminar_delta.engine.request import FENCES_KEY

if TYPE_CHECKING:
    from laminar_delta.engine.base import Engine


def assert_fences_rise(engine: Engine, table: str) -> None:
    """Along the log, each application's fence goes up strictly: no zombie ever committed."""
    standing: dict[str, int] = {}
    for entry in reversed(engine.history(table)):
        carried = entry.metadata.get(FENCES_KEY)
        for name, version in carried.items() if isinstance(carried, dict) else ():
            before = standing.get(name, -1)
            assert version > before, (
                f"version {entry.version} of {table} lowered the fence of {name}: {before} to {version}"
            )
            standing[name] = version
