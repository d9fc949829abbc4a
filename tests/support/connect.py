"""A Connect server of its own, and a session to it: from pip's PySpark, in a process that is for nothing else."""

import warnings

from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.session import SparkSession as Classic

from tests.support.configurations import LOCAL, settings


def session(warehouse: str) -> SparkSession:
    """Starts the server on its first call. Connect takes over the process: nothing classic can be used in it any more."""
    DefaultChannelBuilder.default_port = staticmethod(_port)  # type: ignore[method-assign]  # else always the same one
    builder = (
        SparkSession.builder.remote("local[2]")
        .config("spark.jars.packages", settings(LOCAL / "spark-defaults.conf")["spark.jars.packages"])
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", warehouse)
        .config("spark.ui.enabled", "false")
        .config("spark.connect.grpc.binding.port", "0")
        .config("spark.driver.memory", "2g")
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings of the server, which it has by then
        return builder.getOrCreate()


def _port() -> int:
    """Where the server of this process listens: any port that was free, so that others of the machine are not in the way."""
    started = Classic._instantiatedSession
    assert started is not None, "a client finds its server's port when that is up"
    service = getattr(started._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    return int(getattr(service, "MODULE$").localPort())
