"""A Spark cluster of two hosts on this machine, a loopback address each: one more executor on the same host never gets a
speculative task, so `local-cluster` has none.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

_HOME = Path(pyspark.__file__).parent
_HOSTS = ("127.0.0.1", "127.0.0.2")


@contextmanager
def two_hosts(place: Path) -> Iterator[str]:
    """Starts a master and a worker of one core on each host, and ends them; gives the master's address."""
    with socket.socket() as free:
        free.bind((_HOSTS[0], 0))
        port = free.getsockname()[1]
    master = f"spark://{_HOSTS[0]}:{port}"
    with ExitStack() as running:
        deploy = "org.apache.spark.deploy"
        _start(running, place, "master", f"{deploy}.master.Master", "--host", _HOSTS[0], "--port", str(port))
        for host in _HOSTS:
            work = ("--work-dir", str(place / f"work-{host}"))
            # They go on asking until the master answers, and so does the driver.
            _start(
                running, place, host, f"{deploy}.worker.Worker", "--host", host, "-c", "1", "-m", "1g", *work, master
            )
        yield master


def _start(running: ExitStack, place: Path, name: str, *command: str) -> None:
    log = running.enter_context((place / f"{name}.log").open("wb"))
    own = {"SPARK_HOME": str(_HOME), "SPARK_DAEMON_MEMORY": "256m"}
    process = subprocess.Popen(
        [str(_HOME / "bin" / "spark-class"), *command, "--webui-port", "0"],
        env={**os.environ, **own},
        stdout=log,
        stderr=log,
    )

    def end() -> None:
        # Asked, not killed: a worker then ends its executors too.
        process.terminate()
        process.wait()

    running.callback(end)
