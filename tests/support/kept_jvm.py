"""One JVM for many processes that are killed: to start one takes half a minute of processor time, and most scenarios a second.

What a killed process had asked of the JVM is done to its end, as by a JVM that outlives its process; `settle` waits for that,
where the catalog's lock would wait for the JVM itself to end. A process attaches to the JVM of the tests as one does that
`spark-submit` started.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from laminar_delta.testing import crashes
from laminar_delta.testing.forks import run_forked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOSE_WAIT = "08"
"""How the kernel calls a connection whose other side is gone, and which this side has not closed yet."""


class KeptJvm:
    """The JVM of a session, for processes of the crash matrix."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        self._parameters = gateway.gateway_parameters
        self._tables: Any = spark._jvm.org.apache.spark.sql.delta.DeltaLog  # type: ignore[union-attr]

    def live(self, order: str) -> int:
        """Runs one child of the crash matrix beside this JVM; how it ended."""
        return run_forked(
            _attach_and_live,
            json.dumps({"port": self._parameters.port, "secret": self._parameters.auth_token, "order": order}),
        )

    def settle(self) -> None:
        """Returns when the JVM does nothing any more of what killed processes asked of it."""
        while self._left_open():
            time.sleep(0.01)
        # Of hundreds of catalogs, none of which is met again.
        self._tables.clearCache()

    def _left_open(self) -> bool:
        """A connection is closed by the thread that serves it, behind its last command."""
        here = f":{self._parameters.port:04X}"
        lines = [
            line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()
        ]
        return any(line[1].endswith(here) and line[3] == _CLOSE_WAIT for line in lines)


def _attach_and_live(argument: str) -> None:
    told = json.loads(argument)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(told["port"])
    os.environ["PYSPARK_GATEWAY_SECRET"] = told["secret"]
    from pyspark import SparkConf, SparkContext, java_gateway
    from pyspark.sql import SparkSession

    gateway: Any = java_gateway.launch_gateway()  # type: ignore[no-untyped-call]
    running = gateway.jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    # The engine finds this session as the active one.
    SparkSession(SparkContext(conf=SparkConf(_jconf=running.getConf()), gateway=gateway, jsc=running))
    crashes.main(told["order"])
