"""What `commit_sync` returns: what became of the acknowledgements of each partition."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sharegroup.client.acknowledge_arguments import APPLICATION_TYPES
from sharegroup.client.acknowledgements import Acknowledgement, PartitionKey
from sharegroup.client.kafka_exceptions import exception_of
from sharegroup.client.kafka_types import KafkaError, KafkaException, TopicPartition
from sharegroup.client.session_events import Acknowledged


def commit_outcome(
    sent: Iterable[Acknowledgement], results: Iterable[Acknowledged], unanswered: Collection[PartitionKey]
) -> dict[TopicPartition, KafkaException | None]:
    """The outcome for each partition of which the application said something; None is success.

    Args:
        sent: what this commit sent.
        results: what was answered meanwhile, to earlier acknowledgements too.
        unanswered: partitions whose answer did not come in time.
    """
    outcome: dict[TopicPartition, KafkaException | None] = {}
    for acknowledgement in sent:
        if acknowledgement.acknowledge_type in APPLICATION_TYPES:
            late = KafkaException(KafkaError(KafkaError._TIMED_OUT)) if acknowledgement.key in unanswered else None
            outcome[TopicPartition(acknowledgement.topic, acknowledgement.partition)] = late
    for result in results:
        partition = TopicPartition(result.topic, result.partition)
        if partition in outcome and result.error is not None:
            outcome[partition] = exception_of(result.error)
    return outcome
