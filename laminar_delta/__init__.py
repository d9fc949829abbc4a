"""laminar_delta: a transactional checkpoint catalog for data pipelines, kept as Delta tables.

    import laminar_delta as ld
    catalog = ld.open_catalog("./checkpoints")

Names are loaded when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from laminar_delta._version import __version__

if TYPE_CHECKING:
    from laminar_delta.catalog.catalog import Catalog
    from laminar_delta.catalog.opening import open_catalog
    from laminar_delta.model import CheckpointManifest

_HOME = {
    "Catalog": "laminar_delta.catalog.catalog",
    "CheckpointManifest": "laminar_delta.model",
    "open_catalog": "laminar_delta.catalog.opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'laminar_delta' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


__all__ = ["Catalog", "CheckpointManifest", "__version__", "open_catalog"]
