"""Batches that are run in another process: Spark Connect hands the function to one of the server's, catalog and all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laminar_delta.catalog.opening import open_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from laminar_delta.catalog.catalog import Catalog


@dataclass(frozen=True, slots=True)
class CatalogElsewhere:
    """A catalog that the process where batches are run opens, with the session they come with."""

    location: str
    engine: str
    options: Mapping[str, Any] = field(repr=False)
    """Credentials among them: for the other process, never for a log."""

    @classmethod
    def of(cls, catalog: Catalog | CatalogElsewhere) -> CatalogElsewhere:
        """The same catalog, for another process."""
        if isinstance(catalog, CatalogElsewhere):
            return catalog
        given = catalog.engine.storage_options
        return cls(catalog.engine.location, catalog.engine.name, {"storage_options": given} if given else {})

    def open(self, spark: SparkSession | None) -> Catalog:
        """Opens it here."""
        return open_catalog(self.location, engine=self.engine, create=False, spark=spark, **self.options)
