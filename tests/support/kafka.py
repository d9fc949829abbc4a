"""A real Kafka broker for tests: one node (KRaft) on loopback, its jars fetched once into the user's cache by Spark's Ivy."""

from __future__ import annotations

import base64
import os
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from filelock import FileLock

BROKER = (("org.apache.kafka", "kafka_2.13", "4.3.1", True),)
CONNECTOR = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__, False),
    # Only used with Kafka's delegation tokens; not every mirror of Maven has the one of each release.
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", False),
    ("org.apache.kafka", "kafka-clients", "3.9.2", False),
    ("org.apache.commons", "commons-pool2", "2.13.1", False),
)
"""What Spark needs to read Kafka: organisation, name, version, and whether with all it depends on."""

UP_WITHIN_S = 120
TRIES = 3
"""At fetching jars, as mirrors refuse now and then, and at starting a broker."""


def jars(wanted: Sequence[tuple[str, str, str, bool]]) -> list[Path]:
    """The files of some artifacts, fetched on the first use by any process."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "laminar-delta" / "jars"
    home = cache / "-".join(f"{name}-{version}" for _, name, version, _ in wanted)[:150]
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{home}.lock"):
        if not home.exists():
            fetched = cache / f".{uuid.uuid4().hex}"
            _resolve(wanted, fetched)
            fetched.rename(home)
    return sorted(home.glob("*.jar"))


def _resolve(wanted: Sequence[tuple[str, str, str, bool]], to: Path) -> None:
    to.mkdir(parents=True)
    dependencies = "".join(
        f'<dependency org="{org}" name="{name}" rev="{version}" transitive="{str(deep).lower()}" '
        f'conf="default->{"default" if deep else "master"}"/>'
        for org, name, version, deep in wanted
    )
    module = to / "ivy.xml"
    module.write_text(
        '<ivy-module version="2.0"><info organisation="laminar" module="tests"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies></ivy-module>'
    )
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    command = ["java", "-jar", str(ivy), "-ivy", str(module), "-confs", "default"]
    command += ["-retrieve", f"{to}/[artifact]-[revision].[ext]"]
    for attempt in range(TRIES):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "UNRESOLVED DEPENDENCIES" not in done.stdout and done.returncode == 0:
            return
        if attempt == TRIES - 1:
            shutil.rmtree(to)
            raise RuntimeError(f"the jars {wanted} could not be fetched:\n{done.stdout[-2000:]}")


@dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    address: str
    pid: int

    def create(self, topic: str, partitions: int = 2) -> None:
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(UP_WITHIN_S)

    def send(self, topic: str, values: Iterable[str]) -> None:
        """Sends records and waits until the broker has them all."""
        producer = Producer({"bootstrap.servers": self.address, "linger.ms": 20, "enable.idempotence": True})
        for value in values:
            while True:
                try:
                    producer.produce(topic, value=value.encode(), key=value.encode())
                    break
                except BufferError:
                    producer.poll(0.5)
        left = producer.flush(UP_WITHIN_S)
        assert left == 0, f"{left} records were not taken"

    @contextmanager
    def transaction(self, topic: str, values: Iterable[str]) -> Iterator[None]:
        """Within: records the broker has, of a transaction that is not decided yet."""
        producer = Producer({"bootstrap.servers": self.address, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(UP_WITHIN_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value.encode())
        assert producer.flush(UP_WITHIN_S) == 0
        yield
        producer.abort_transaction(UP_WITHIN_S)

    def first(self, topic: str, partition: int, count: int) -> list[str]:
        """The first records of a partition, asked for without Spark."""
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "first"})
        consumer.assign([TopicPartition(topic, partition, 0)])
        found: list[str] = []
        while len(found) < count:
            record = consumer.poll(UP_WITHIN_S)
            assert record is not None
            found.append(str(record.value(), "utf-8"))  # type: ignore[arg-type]
        consumer.close()
        return found


@contextmanager
def running_broker(home: Path) -> Iterator[Broker]:
    """A broker that keeps its data below `home` and ends with the block.

    The ports that were free may be taken when it wants them: then it is tried with others, and from nothing.
    """
    for attempt in range(TRIES):
        with ExitStack() as stack:
            try:
                broker = _started(home / str(attempt), stack)
            except RuntimeError:
                if attempt == TRIES - 1:
                    raise
                continue
            yield broker
            return


def _started(home: Path, stack: ExitStack) -> Broker:
    client, controller = _free_ports(2)
    home.mkdir(parents=True)
    settings = home / "server.properties"
    settings.write_text(
        "\n".join(
            [
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{controller}",
                f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{client}",
                "controller.listener.names=CONTROLLER",
                f"log.dirs={home / 'data'}",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
            ]
        )
    )
    classpath = f"{jars(BROKER)[0].parent}/*"
    # The first byte keeps it from beginning with a dash, which the tool would take for an option.
    name = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    log = stack.enter_context((home / "broker.log").open("wb"))
    subprocess.run(
        ["java", "-cp", classpath, "kafka.tools.StorageTool", "format", "-t", name, "-c", str(settings)],
        check=True,
        stdout=log,
        stderr=log,
        timeout=UP_WITHIN_S,
    )
    broker = subprocess.Popen(
        ["java", "-Xmx512m", "-cp", classpath, "kafka.Kafka", str(settings)], stdout=log, stderr=log
    )
    stack.callback(_stop, broker)
    address = f"127.0.0.1:{client}"
    _wait_until_up(broker, address, home / "broker.log")
    return Broker(address, broker.pid)


def _wait_until_up(broker: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + UP_WITHIN_S
    while time.monotonic() < deadline:
        if broker.poll() is not None:
            break
        try:
            AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=2)
        except KafkaException:
            continue
        return
    raise RuntimeError(f"the broker did not come up:\n{log.read_text()[-2000:]}")


def _stop(broker: subprocess.Popen[bytes]) -> None:
    broker.terminate()
    try:
        broker.wait(30)
    except subprocess.TimeoutExpired:
        broker.kill()
        broker.wait()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
