"""A Connect server of its own, and a session to it: from pip's PySpark, in a process that is for nothing else."""

import warnings

from pyspark.sql import SparkSession

from tests.support.configurations import LOCAL, settings


def session(warehouse: str) -> SparkSession:
    """Starts the server on its first call. Connect takes over the process: nothing classic can be used in it any more."""
    builder = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars.packages", settings(LOCAL / "spark-defaults.conf")["spark.jars.packages"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "2g")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings of the server, which it has by then
        return builder.getOrCreate()
