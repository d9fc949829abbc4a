"""laminar_delta: a transactional checkpoint catalog for data pipelines, kept as Delta tables."""

from laminar_delta._version import __version__

__all__ = ["__version__"]
