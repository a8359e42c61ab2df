"""What an application may say of a record, and how arguments that make no sense are refused."""

from __future__ import annotations

import operator

from sharegroup.client.delivered import Said
from sharegroup.client.kafka_types import INVALID_ARGUMENT
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.share_fetch import MAX_REDELIVERY_DELAY_MS

APPLICATION_TYPES = frozenset(
    {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW}
)
"""What an application may say of a record."""

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def checked_place(what: str, topic: str | None, partition: int | None, offset: int | None) -> Place:
    """The place of a record.

    Raises:
        ValueError: a part is missing or negative.
    """
    if topic is None or partition is None or offset is None or partition < 0 or offset < 0:
        raise ValueError(f"Failed to acknowledge {what}: {INVALID_ARGUMENT}")
    return topic, partition, offset


def checked_said(what: str, ack_type: int, redelivery_delay_ms: int | None) -> Said:
    """What is said of a record.

    Raises:
        TypeError: the type is no integer.
        ValueError: the type is not for applications, or the delay is out of its bounds or of a record that is not
            released.
    """
    code = operator.index(ack_type)
    if code not in APPLICATION_TYPES:
        raise ValueError(f"Failed to acknowledge {what}: {INVALID_ARGUMENT}")
    if redelivery_delay_ms is not None:
        _check_delay(what, code, redelivery_delay_ms)
    return Said(AcknowledgeType(code), redelivery_delay_ms)


def _check_delay(what: str, code: int, redelivery_delay_ms: int) -> None:
    if code != AcknowledgeType.RELEASE or not 0 <= redelivery_delay_ms <= MAX_REDELIVERY_DELAY_MS:
        raise ValueError(
            f"Failed to acknowledge {what}: redelivery_delay_ms is {redelivery_delay_ms}; it must be from 0 to "
            f"{MAX_REDELIVERY_DELAY_MS}, and the acknowledgement a RELEASE"
        )
