"""Classes that JVMs share: in a run of hundreds, each of which lives for seconds, every one loads and parses the same classes.

A first JVM does what most of them do and leaves an archive at its end, which the others map into memory: half a minute of
processor time becomes twenty seconds.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from laminar_delta.testing.crashes import SHORT_LIVED_JVM


@contextmanager
def shared_classes(place: Path) -> Iterator[None]:
    """Within: JVMs of the crash matrix start from an archive in `place`. Without one where the Java there is makes none."""
    archive = place / "classes.jsa"
    options = {"SPARK_SUBMIT_OPTS": f"{SHORT_LIVED_JVM} -XX:ArchiveClassesAtExit={archive}"}
    subprocess.run([sys.executable, "-m", __name__], env={**os.environ, **options}, check=True, capture_output=True)
    # Also where the archive does not fit after all: then classes are loaded as ever.
    with patch.dict(os.environ, SPARK_SUBMIT_OPTS=f"{SHORT_LIVED_JVM} -Xshare:auto -XX:SharedArchiveFile={archive}"):
        yield


def _live() -> None:
    from pyspark import SparkContext

    import laminar_delta as ld

    with tempfile.TemporaryDirectory() as place:
        catalog = ld.open_catalog(f"{place}/catalog", engine="spark")
        with catalog.writer("p") as writer:
            with writer.checkpoint() as cp:
                cp.source("kafka", offsets={"0": "1"})
                cp.state("window", bytes(20_000))
                cp.sink("warehouse")
            writer.sink_committed(cp.id, "warehouse")
            writer.rewind(cp.id, reason="its classes")
        catalog.pipeline("p").prune(ld.RetentionPolicy(keep_last=1))
        gateway = SparkContext._gateway
        assert gateway is not None
        # The JVM ends when nobody can say anything to it any more, and writes the archive then.
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


if __name__ == "__main__":
    _live()
