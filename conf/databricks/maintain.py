"""The daily maintenance of the bundle."""

import argparse

from pyspark.sql import SparkSession

import laminar_delta as ld


def main() -> None:
    """Maintains the catalog once."""
    given = argparse.ArgumentParser()
    given.add_argument("--catalog", required=True)
    options = given.parse_args()
    catalog = ld.open_catalog(options.catalog, spark=SparkSession.builder.getOrCreate())
    report = catalog.maintain()
    print(report)


if __name__ == "__main__":
    main()
