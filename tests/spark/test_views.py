"""Views of a catalog given by name: there for everyone, made with the catalog, and without anything of its settings."""

from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pytest

import laminar_delta as ld
from laminar_delta.catalog.later import ensure
from laminar_delta.catalog.tables import QUERY_PROGRESS
from laminar_delta.catalog.views import VIEWS
from laminar_delta.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_a_catalog_by_name_has_views_for_everyone(spark: "SparkSession") -> None:
    schema = f"spark_catalog.ckpt_{uuid4().hex}"
    secret = "not-for-views"
    catalog = ld.open_catalog(schema, spark=spark, storage_options={"fs.s3a.secret.key": secret})
    try:
        with catalog.writer("it's", owner="job") as writer, writer.checkpoint() as cp:
            cp.source("kafka", {"0": "1500"})
            cp.state("agg", b"x")
        found = {row.viewName for row in spark.sql(f"SHOW VIEWS IN {schema}").collect()}
        assert found == set(VIEWS)
        query = "SELECT pipeline, checkpoint_id, name, offset_number FROM {}offsets_history"
        # From the user's session, at Spark's own settings, where a name in double quotes is a text.
        (row,) = spark.sql(query.format(f"{schema}.")).collect()
        assert tuple(row) == ("it's", 1, "kafka", 1500)
        assert [tuple(row) for row in spark.sql(f"SELECT operator, raw_bytes FROM {schema}.state_usage").collect()] == [
            ("agg", 1)
        ]
        assert catalog.sql(query.format("")).to_pylist() == [row.asDict()]
        spark.sql(f"DROP VIEW {schema}.latest_checkpoints")
        catalog.create_views()
        assert spark.sql(f"SELECT * FROM {schema}.latest_checkpoints").count() == 1
        told = str(spark.sql(f"DESCRIBE EXTENDED {schema}.checkpoints").collect())
        assert "manifests" in told
        assert secret not in told + str(spark.sql(f"SHOW TBLPROPERTIES {schema}.checkpoints").collect())
        with pytest.raises(InvalidInputError):
            catalog.sql(f"DROP VIEW {schema}.checkpoints")
        # Without its table a view has no rows; with the table it is made anew over it.
        assert spark.sql(f"SELECT * FROM {schema}.progress_history").count() == 0
        assert ensure(catalog.engine, QUERY_PROGRESS)
        rows = pa.Table.from_pylist([{"attempt_id": "a", "event": "progress"}], schema=QUERY_PROGRESS.schema)
        catalog.engine.append(QUERY_PROGRESS.name, rows)
        assert [row.event for row in spark.sql(f"SELECT * FROM {schema}.progress_history").collect()] == ["progress"]
    finally:
        spark.sql(f"DROP SCHEMA {schema} CASCADE")
