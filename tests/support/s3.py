"""A real S3 server on this machine, over a directory: S3Proxy. Its conditional PUT is what commits depend on."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyarrow.fs import S3FileSystem

from tests.support.jars import whole_jar

KEY, SECRET, REGION = "local-identity", "local-credential", "us-east-1"
_UP_WITHIN_S = 60


@dataclass(frozen=True)
class S3Server:
    """A server that runs."""

    port: int
    root: Path
    """Where it keeps its buckets, a directory each."""

    @property
    def storage_options(self) -> dict[str, str]:
        """What `open_catalog` needs to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "aws_conditional_put": "etag",
        }

    def filesystem(self) -> S3FileSystem:
        """What Arrow needs."""
        return S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region=REGION,
            scheme="http",
            endpoint_override=f"127.0.0.1:{self.port}",
            allow_bucket_creation=True,
        )

    def uri(self, path: str) -> str:
        """A location that says it all by itself."""
        return f"s3://{KEY}:{SECRET}@{path}?scheme=http&region={REGION}&endpoint_override=127.0.0.1:{self.port}"


@contextmanager
def s3_server(place: Path) -> Iterator[S3Server]:
    """Starts one that keeps everything below a directory, and ends it."""
    jar = whole_jar("org.gaul", "s3proxy", "4.1.0", "jar-with-dependencies")
    root = place / "buckets"
    root.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.identity": KEY,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.filesystem.basedir": str(root),
    }
    (place / "s3proxy.properties").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = ["java", "-Xmx256m", "-jar", str(jar), "--properties", str(place / "s3proxy.properties")]
    with (place / "s3proxy.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _await_port(port, process, place / "s3proxy.log")
            yield S3Server(port, root)
        finally:
            process.kill()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _UP_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the S3 server did not come up: {log.read_text()[-2000:]}")
