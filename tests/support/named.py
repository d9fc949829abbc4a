"""Catalogs of programs that end and start again, given by path or by name: a metastore on the disk remembers the names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import laminar_delta as ld

if TYPE_CHECKING:
    import pytest

NAME = "spark_catalog.checkpoints"


def location(home: Path, *, by_name: bool) -> str:
    """What a program below `home` calls its catalog."""
    return NAME if by_name else str(home / "catalog")


def metastore(home: Path) -> dict[str, str]:
    """Settings of a session whose schemas and tables outlive it; one JVM at a time can have it."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={home / 'metastore'};create=true",
        # Not the "extra" ones, which the configurations have a use for.
        "spark.driver.defaultJavaOptions": f"-Dderby.stream.error.file={home / 'derby.log'}",
    }


def open_kept(home: Path, *, by_name: bool, request: pytest.FixtureRequest) -> ld.Catalog:
    """The catalog a program left, from outside: the tests' session does not know the name, and finds the tables by place."""
    if not by_name:
        return ld.open_catalog(str(home / "catalog"), create=False)
    place = home / "warehouse" / f"{NAME.rpartition('.')[2]}.db"
    return ld.open_catalog(str(place), engine="spark", create=False, spark=request.getfixturevalue("spark"))
