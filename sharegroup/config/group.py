"""GroupConfig: the dynamic configuration of one group, and how it follows from the broker's and the group's own.

A group stores only the keys that were set, as the strings of Kafka's alter request; what is in force is computed
from them whenever it is needed. Nothing here does I/O or reads a clock.
"""

from __future__ import annotations

import re
from calendar import monthrange, timegm
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, Field

from sharegroup.config.broker import (
    ASSIGNMENT_INTERVAL,
    DELIVERY_LIMIT,
    HEARTBEAT_INTERVAL,
    LIMITED_SETTINGS,
    LOCK_DURATION,
    RECORD_LOCKS,
    SESSION_TIMEOUT,
    BrokerConfig,
)
from sharegroup.config.model import (
    NO_ORIGINS,
    Allowed,
    Bool,
    Config,
    Int,
    attribute_name,
    check_topic_name,
    from_origins,
    invalid_value,
    nearest,
    order_text,
)
from sharegroup.core.records import SharePartitionLimits
from sharegroup.errors import ConfigurationError, InvalidConfigError

_CACHED_CONFIGS = 1_000
"""Most groups have few keys of their own: thousands of groups share a few configurations."""

BY_DURATION = "by_duration:"
"""Prefix of a `share.auto.offset.reset` that goes back by a duration."""

BY_DATETIME = "by_datetime:"
"""Prefix of a `share.auto.offset.reset` to a point of time; Kafka has none."""

_DATETIME = re.compile(
    r"(?P<year>[0-9]{4})-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})"
    r"T(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:\.(?P<fraction>[0-9]{1,9}))?)?"
    r"(?:Z|(?P<sign>[+-])(?P<offset_hour>[0-9]{2}):(?P<offset_minute>[0-9]{2}))?"
)

# Ten digits a part keep the longest duration within a 64-bit count of milliseconds.
_DURATION = re.compile(
    r"P(?:(?P<days>[0-9]{1,10})D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]{1,10})H)?(?:(?P<minutes>[0-9]{1,10})M)?"
    r"(?:(?P<seconds>[0-9]{1,10})(?:\.(?P<fraction>[0-9]{1,9}))?S)?)?"
)


def _duration_ms(text: str) -> int | None:
    """Milliseconds of an ISO 8601 duration PnDTnHnMn.nS, rounded down; None when it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None or text == "P":
        return None
    days, hours, minutes, seconds = (int(match[part] or 0) for part in ("days", "hours", "minutes", "seconds"))
    whole_ms = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    return whole_ms + int((match["fraction"] or "0").ljust(3, "0")[:3])


class TimedReset(NamedTuple):
    """A `share.auto.offset.reset` by time: to the first record whose timestamp is at or after it.

    Attributes:
        duration_ms: how far it goes back; None for a point of time.
        since_ms: the point of time, epoch ms; None for a duration.
    """

    duration_ms: int | None = None
    since_ms: int | None = None

    def start_ms(self, now_ms: int) -> int:
        """Return the time, epoch ms.

        Args:
            now_ms: the present time of the log, epoch ms.
        """
        return now_ms - self.duration_ms if self.duration_ms is not None else self.since_ms or 0


def _datetime_ms(text: str) -> int | None:
    """Epoch ms of an ISO 8601 date and time, in UTC where it names no offset; None when it is not one."""
    match = _DATETIME.fullmatch(text)
    if match is None:
        return None
    parts = ("year", "month", "day", "hour", "minute", "second", "offset_hour", "offset_minute")
    year, month, day, hour, minute, second, offset_hour, offset_minute = (int(match[part] or 0) for part in parts)
    is_date = year >= 1 and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
    if not is_date or hour > 23 or max(minute, second, offset_minute) > 59 or offset_hour > 23:
        return None
    offset_s = (offset_hour * 60 + offset_minute) * 60
    whole_s = timegm((year, month, day, hour, minute, second)) - (-offset_s if match["sign"] == "-" else offset_s)
    milliseconds = whole_s * 1_000 + int((match["fraction"] or "0").ljust(3, "0")[:3])
    return milliseconds if milliseconds >= 0 else None


def _timed_reset(value: str) -> TimedReset | None:
    """Return the reset by time that a value means; None for any other value."""
    duration_ms = _duration_ms(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
    since_ms = _datetime_ms(value.removeprefix(BY_DATETIME)) if value.startswith(BY_DATETIME) else None
    return None if duration_ms is None and since_ms is None else TimedReset(duration_ms, since_ms)


def _check_offset_reset(value: str) -> str:
    if value not in ("earliest", "latest") and _timed_reset(value) is None:
        raise invalid_value(
            "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>' or "
            "'by_datetime:<YYYY-MM-DDThh:mm:ss.sssZ>'"
        )
    return value


def _check_dead_letter_topic(name: str) -> str:
    if name.startswith("__"):
        raise invalid_value("The name must not begin with '__', which marks internal topics")
    return check_topic_name(name) if name else name


OffsetReset = Annotated[
    str,
    AfterValidator(_check_offset_reset),
    Allowed("`earliest`, `latest`, `by_duration:<PnDTnHnMn.nS>` or `by_datetime:<YYYY-MM-DDThh:mm:ss.sssZ>`"),
]
DeadLetterTopic = Annotated[
    str, AfterValidator(_check_dead_letter_topic), Allowed("a topic name without leading `__`, or empty")
]


_RECORD_LOCKS_OF_TWO_DELIVERIES = 2_000
"""Default of `share.partition.max.record.locks`, where neither group nor broker sets it and
`share.delivery.count.limit` is 2; it is Kafka's."""


class GroupConfig(Config):
    """The configuration that is in force for one group.

    The bounds of the fields are those of Kafka's GroupConfig; the broker's limits come on top, see
    `validate_overrides`. The `errors.deadletterqueue` keys are of Kafka 4.4 (KIP-1191, spec 002); the
    `share.redelivery` and `share.exactly.once` keys, `share.member.silence.ms` and `share.drain.enable` are ours.
    """

    refused: ClassVar[Mapping[str, str]] = {
        "errors.deadletterqueue.group.enable": "It is a key of the dead-letter topic.",
        "group.type": "All groups are share groups, in a namespace of their own.",
        "share.assignor.offload.enable": "The actor of a group computes its assignments itself.",
    }

    share_heartbeat_interval_ms: Int = HEARTBEAT_INTERVAL.group_field
    share_session_timeout_ms: Int = SESSION_TIMEOUT.group_field
    share_record_lock_duration_ms: Int = LOCK_DURATION.group_field
    share_delivery_count_limit: Int = DELIVERY_LIMIT.group_field
    share_partition_max_record_locks: Int = RECORD_LOCKS.group_field
    share_assignment_interval_ms: Int = ASSIGNMENT_INTERVAL.group_field
    share_auto_offset_reset: OffsetReset = Field(
        default="latest",
        description="Where a share-partition without a start offset begins. `latest` passes over what was written to a "
        "new topic before the processor's first look at it; `by_datetime` with the time at which the group begins "
        "passes over nothing younger, and a topic that is created later is read from its first record on.",
    )
    share_isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_uncommitted", description="Whether records of aborted transactions are left out."
    )
    share_renew_acknowledge_enable: Bool = Field(
        default=True, description="Whether a member may renew the lock of a record (acknowledgement type 4)."
    )
    share_member_silence_ms: Annotated[Int, Field(ge=0, le=604_800_000)] = Field(
        default=5_000,
        description="Time after which a member of a Kafka log that holds records and gives no sign of life loses its "
        "locks, in ms. A helper process gives the signs, every second, so that a busy interpreter silences no member. "
        "0: only the locks' time counts, as in Kafka; so it is on the embedded log, and for members without a helper.",
    )
    share_redelivery_backoff_ms: Annotated[Int, Field(ge=0, le=604_800_000)] = Field(
        default=0,
        description="Time for which a record stays away from everybody after it was released or its lock timed out, "
        "in ms; doubled by each delivery after the first. 0 for no delay, as in Kafka.",
    )
    share_redelivery_backoff_max_ms: Annotated[Int, Field(ge=1, le=604_800_000)] = Field(
        default=60_000, description="Longest such time, in ms."
    )
    share_drain_enable: Bool = Field(
        default=False,
        description="Whether members get only records that are in flight already, so that nothing is left in flight; "
        "before the group moves to another cluster.",
    )
    share_exactly_once_enable: Bool = Field(
        default=False,
        description="Whether members write the results of records into Delta tables exactly once. All of them need a "
        "sink then, and without it none may have one; a member with a sink creates a new group with it.",
    )
    share_exactly_once_max_writes: Annotated[Int, Field(ge=1, le=100_000)] = Field(
        default=1_000,
        description="Most open writes of the group into one sink; beyond it no records are acquired for that sink.",
    )
    share_exactly_once_sinks: str = Field(
        default="",
        description="The sinks that members of the group may have, comma-separated, as their paths or URIs; empty for "
        "any. After the loss of the newest state it says where results may be.",
    )
    share_exactly_once_accepted_state_id: str = Field(
        default="",
        description="The state of the processor from which on the group knows all of its writes. After the start with "
        "`--accept-older-state` a group that writes exactly once acquires nothing until `sharegroup groups resolve "
        "--older-state` has looked into its sinks and set it.",
    )
    share_exactly_once_write_expiry_ms: Annotated[Int, Field(ge=3_600_000)] = Field(
        default=604_800_000,
        description="Time after its acquisition within which a write is looked up, in ms. A sink has to remember "
        "transactions and commits for longer; what is looked up later, an administrator has to decide.",
    )
    errors_deadletterqueue_topic_name: DeadLetterTopic = Field(
        default="",
        description="Topic for records that are given up, which the group itself cannot read; "
        "empty for no dead-letter queue.",
    )
    errors_deadletterqueue_copy_record_enable: Bool = Field(
        default=False,
        description="Whether key, value and headers of the record are copied to the dead-letter queue, "
        "not only its context.",
    )

    @property
    def timed_reset(self) -> TimedReset | None:
        """The reset by time; None for a reset to the earliest or latest offset."""
        return _timed_reset(self.share_auto_offset_reset)

    @property
    def exactly_once_sinks(self) -> frozenset[str]:
        """The addresses in `share.exactly.once.sinks`; empty for any."""
        return frozenset(sink.strip() for sink in self.share_exactly_once_sinks.split(",") if sink.strip())

    def spelled_value(self, key: str) -> str:
        """Return a value as it is written in a configuration."""
        value = self.value(key)
        return str(value).lower() if isinstance(value, bool) else str(value)

    @property
    def has_dead_letter_queue(self) -> bool:
        """True if archived records go to a dead-letter topic."""
        return self.errors_deadletterqueue_topic_name != ""

    @property
    def share_partition_limits(self) -> SharePartitionLimits:
        """The limits that the engine needs."""
        return SharePartitionLimits(
            lock_duration_ms=self.share_record_lock_duration_ms,
            delivery_count_limit=self.share_delivery_count_limit,
            max_record_locks=self.share_partition_max_record_locks,
            is_renew_enabled=self.share_renew_acknowledge_enable,
            has_dead_letter_queue=self.has_dead_letter_queue,
            redelivery_backoff_ms=self.share_redelivery_backoff_ms,
            redelivery_backoff_max_ms=self.share_redelivery_backoff_max_ms,
            is_draining=self.share_drain_enable,
        )


def effective_group_config(broker: BrokerConfig, overrides: Mapping[str, str]) -> GroupConfig:
    """Return the configuration of a group: its own values, within the broker's limits, over the broker's defaults.

    A value that lies outside of the limits is capped, not refused: it was acceptable when it was set, and the
    broker's limits have changed since (KIP-1240). As in Kafka, capping checks each key alone.

    Args:
        overrides: the keys that the group has set, dotted, and their values.

    Raises:
        InvalidConfigError: a key or a value that `validate_overrides` never accepts.
    """
    return _effective(broker, tuple(sorted(overrides.items())))


@lru_cache(maxsize=_CACHED_CONFIGS)
def _effective(broker: BrokerConfig, overrides: tuple[tuple[str, str], ...]) -> GroupConfig:
    try:
        config = _parse(broker, dict(overrides), NO_ORIGINS)
    except ConfigurationError as error:
        raise InvalidConfigError(error.message, error.remedy) from None
    capped = {
        attribute_name(setting.group_key): max(
            broker.value(setting.min_key), min(config.value(setting.group_key), broker.value(setting.max_key))
        )
        for setting in LIMITED_SETTINGS
    }
    return config.model_copy(update=capped)


def validate_overrides(broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Refuse an invalid configuration of a group, in Kafka's order and with Kafka's texts.

    Args:
        overrides: all keys that the group would have set, dotted, and their values.

    Raises:
        InvalidConfigError: an unknown key; a value of the wrong type or out of its bounds; a value outside of
            the broker's limits; a session timeout that is not greater than the heartbeat interval.
    """
    try:
        check_overrides(broker, overrides)
    except ConfigurationError as error:
        raise InvalidConfigError(error.message, error.remedy) from None


def check_overrides(
    broker: BrokerConfig, overrides: Mapping[str, str], origins: Mapping[str, str] = NO_ORIGINS
) -> None:
    """Refuse an invalid configuration of a group from a file: errors name the origins.

    Raises:
        ConfigurationError: as `validate_overrides` raises InvalidConfigError.
    """
    config = _parse(broker, overrides, origins)
    for setting in LIMITED_SETTINGS:
        key, value = setting.group_key, config.value(setting.group_key)
        if value < (lowest := broker.value(setting.min_key)):
            raise _out_of_order(origins, key, value, "greater than or equal to", setting.min_key, lowest)
        if value > (highest := broker.value(setting.max_key)):
            raise _out_of_order(origins, key, value, "less than or equal to", setting.max_key, highest)
    session, heartbeat = SESSION_TIMEOUT.group_key, HEARTBEAT_INTERVAL.group_key
    if config.value(session) <= config.value(heartbeat):
        raise _out_of_order(origins, session, config.value(session), "greater than", heartbeat, config.value(heartbeat))


def _out_of_order(
    origins: Mapping[str, str], key: str, value: int, relation: str, bound_key: str, bound: int
) -> ConfigurationError:
    text = order_text(key, value, relation, bound_key, bound)
    return ConfigurationError(f"{text}{from_origins([key, bound_key], origins)}.")


def _parse(broker: BrokerConfig, overrides: Mapping[str, str], origins: Mapping[str, str]) -> GroupConfig:
    for key in overrides:
        if key not in GroupConfig.key_names():
            message = f"Unknown group config name: {key}{from_origins([key], origins)}."
            raise ConfigurationError(message, GroupConfig.refused.get(key) or nearest(key, GroupConfig.key_names()))
    defaults = {setting.group_key: broker.value(setting.default_key) for setting in LIMITED_SETTINGS}
    defaults["share.member.silence.ms"] = broker.group_share_member_silence_ms
    config = GroupConfig.from_mapping({**defaults, **overrides}, origins)
    is_set = RECORD_LOCKS.group_key in overrides or attribute_name(RECORD_LOCKS.default_key) in broker.model_fields_set
    if config.share_delivery_count_limit > 2 or is_set:
        return config
    # After a crash each record of such a group is suspected alone: there is no delivery left to divide them by.
    record_locks = max(_RECORD_LOCKS_OF_TWO_DELIVERIES, broker.value(RECORD_LOCKS.min_key))
    return config.model_copy(update={attribute_name(RECORD_LOCKS.group_key): record_locks})
