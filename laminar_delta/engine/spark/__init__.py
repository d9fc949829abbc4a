"""The `spark` engine: Delta through Spark SQL, classic or Connect. The only engine package that imports pyspark."""

from laminar_delta.errors import NotInstalledError

try:
    import delta  # noqa: F401  # makes Delta's conflicts arrive as Python classes
    import pyspark  # noqa: F401
except ImportError as error:
    raise NotInstalledError(
        f"the spark engine needs pyspark and delta-spark: {error}",
        expected="laminar-delta[spark]",
        found=error.name,
        next_step="Install the extra: pip install 'laminar-delta[spark]'.",
    ) from error

from laminar_delta.engine.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
