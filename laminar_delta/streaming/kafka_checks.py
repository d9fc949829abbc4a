"""What a Kafka broker still has of some topics, asked through librdkafka: no consumer group, no Spark."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from laminar_delta.errors import ErrorCode, InvalidInputError, NotInstalledError, StorageError

KafkaSettings = Mapping[str, Any]
"""In librdkafka's names, such as `bootstrap.servers`, `security.protocol`; or with `kafka.` before them, as Spark has it."""

SPARK_PREFIX = "kafka."


def broker_range(
    settings: KafkaSettings, topics: Set[str], *, timeout_s: float
) -> dict[tuple[str, int], tuple[int, int]]:
    """Per topic and partition the earliest offset there is, and the one the next record gets.

    Raises:
        InvalidInputError: librdkafka does not know a setting, or not such a value.
        NotInstalledError: Without the extra `kafka`.
        StorageError: The brokers do not answer.
    """
    try:
        from confluent_kafka import Consumer, KafkaException, TopicPartition
    except ImportError as error:
        raise NotInstalledError(
            "asking a Kafka broker needs confluent-kafka",
            next_step="Install it with `pip install 'laminar-delta[kafka]'`.",
        ) from error
    named = {name.removeprefix(SPARK_PREFIX): value for name, value in settings.items()}
    servers = named.get("bootstrap.servers")
    try:
        # As Spark reads, unless told otherwise: else records of a transaction that is open would not be there yet.
        asked = {"group.id": "laminar-delta-check", "isolation.level": "read_uncommitted", **named}
        consumer = Consumer({**asked, "enable.auto.commit": False})
    except (KafkaException, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"these settings are not Kafka's: {error}",
            expected="settings of librdkafka",
            found=sorted(named),
            next_step="Correct the setting; some of the Java client's have another name there.",
        ) from error
    found: dict[tuple[str, int], tuple[int, int]] = {}
    try:
        known = consumer.list_topics(timeout=timeout_s).topics
        for topic in sorted(topics & known.keys()):
            for partition in sorted(known[topic].partitions):
                span = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout_s)
                if span is None:
                    raise _silent(servers)
                found[topic, partition] = span
    except KafkaException as error:
        raise _silent(servers) from error
    finally:
        consumer.close()
    return found


def _silent(servers: object) -> StorageError:
    return StorageError(
        f"the Kafka brokers at {servers} do not answer",
        code=ErrorCode.UNREACHABLE,
        expected="an answer",
        found=None,
        next_step="Check the address and whether they run, then look again.",
    )
