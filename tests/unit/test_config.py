"""Configuration: Kafka's names, defaults, bounds and error texts, and where values come from."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharegroup.config.broker import LIMITED_SETTINGS, BrokerConfig, LimitedSetting
from sharegroup.config.group import GroupConfig, TimedReset, effective_group_config, validate_overrides
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import FLAT_KEYS, SECTIONS, Settings, environment_variable, load_settings
from sharegroup.config.members import ShareConsumerConfig, WorkerConfig
from sharegroup.config.model import Config
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.config.table_location import location_of
from sharegroup.errors import ConfigurationError, InvalidConfigError
from tools.configuration_reference import configuration_reference

ROOT = Path(__file__).parents[2]
MODELS: tuple[type[Config], ...] = (*SECTIONS.values(), GroupConfig)
REQUIRED = {"log.path": "log.db", "state.table.path": "state", "checkpoint.path": "checkpoint"}
FLAGS = tuple(f"{key}={value}" for key, value in REQUIRED.items())

# The broker of the recordings: Kafka 4.3.1 with lower limits than the defaults.
RECORDED_BROKER = BrokerConfig(
    group_share_min_record_lock_duration_ms=1000,
    group_share_min_session_timeout_ms=1000,
    group_share_min_heartbeat_interval_ms=1000,
    group_share_heartbeat_interval_ms=1000,
)


def yaml_file(folder: Path, text: str) -> Path:
    path = folder / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# --- Kafka's defaults and bounds ---


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("group.share.assignment.interval.ms", 1000),
        ("group.share.assignors", "simple"),
        ("group.share.delivery.count.limit", 5),
        ("group.share.heartbeat.interval.ms", 5000),
        ("group.share.max.assignment.interval.ms", 15000),
        ("group.share.max.delivery.count.limit", 10),
        ("group.share.max.heartbeat.interval.ms", 15000),
        ("group.share.max.record.lock.duration.ms", 60000),
        ("group.share.max.session.timeout.ms", 60000),
        ("group.share.max.share.sessions", 2000),
        ("group.share.max.size", 200),
        ("group.share.min.assignment.interval.ms", 0),
        ("group.share.min.delivery.count.limit", 2),
        ("group.share.min.heartbeat.interval.ms", 5000),
        ("group.share.min.partition.max.record.locks", 100),
        ("group.share.min.record.lock.duration.ms", 15000),
        ("group.share.min.session.timeout.ms", 45000),
        ("group.share.record.lock.duration.ms", 30000),
        ("group.share.session.timeout.ms", 45000),
        ("share.coordinator.cold.partition.snapshot.interval.ms", 300000),
        ("share.coordinator.snapshot.update.records.per.snapshot", 500),
        ("errors.deadletterqueue.auto.create.topics.enable", False),
    ],
)
def test_broker_default_is_kafkas(key: str, default: object) -> None:
    assert BrokerConfig().value(key) == default


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("share.assignment.interval.ms", 1000),
        ("share.auto.offset.reset", "latest"),
        ("share.delivery.count.limit", 5),
        ("share.heartbeat.interval.ms", 5000),
        ("share.isolation.level", "read_uncommitted"),
        ("share.record.lock.duration.ms", 30000),
        ("share.renew.acknowledge.enable", True),
        ("share.session.timeout.ms", 45000),
        ("errors.deadletterqueue.topic.name", ""),
        ("errors.deadletterqueue.copy.record.enable", False),
    ],
)
def test_group_default_is_kafkas(key: str, default: object) -> None:
    assert GroupConfig().value(key) == default
    assert effective_group_config(BrokerConfig(), {}).value(key) == default


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("client.id", ""),
        ("client.rack", ""),
        ("default.api.timeout.ms", 60000),
        ("fetch.max.bytes", 52428800),
        ("max.poll.interval.ms", 300000),
        ("max.poll.records", 500),
        ("request.timeout.ms", 30000),
        ("share.acknowledgement.mode", "implicit"),
        ("share.acquire.mode", "batch_optimized"),
    ],
)
def test_consumer_default_is_kafkas(key: str, default: object) -> None:
    assert ShareConsumerConfig(group_id="g").value(key) == default


@pytest.mark.parametrize(
    ("key", "lowest", "highest"),
    [
        ("group.share.heartbeat.interval.ms", 1, None),
        ("group.share.session.timeout.ms", 1, None),
        ("group.share.record.lock.duration.ms", 1_000, 3_600_000),
        ("group.share.min.record.lock.duration.ms", 1_000, 30_000),
        ("group.share.max.record.lock.duration.ms", 30_000, 3_600_000),
        ("group.share.delivery.count.limit", 2, 10),
        ("group.share.min.delivery.count.limit", 2, 5),
        ("group.share.max.delivery.count.limit", 5, 25),
        ("group.share.partition.max.record.locks", 100, 10_000_000),
        ("group.share.min.partition.max.record.locks", 100, 1_000_000),
        ("group.share.max.partition.max.record.locks", 2_000, 10_000_000),
        ("group.share.assignment.interval.ms", 0, None),
        ("group.share.max.size", 1, 1_000),
        ("group.share.max.share.sessions", 1, None),
        ("share.coordinator.snapshot.update.records.per.snapshot", 0, 500),
        ("share.coordinator.cold.partition.snapshot.interval.ms", 1, None),
    ],
)
def test_broker_bounds(key: str, lowest: int, highest: int | None) -> None:
    def error_for(value: int) -> str:
        try:
            BrokerConfig.from_mapping({key: value})
        except ConfigurationError as error:
            return str(error)
        return ""

    too_low = f"Invalid value {lowest - 1} for configuration {key}: Value must be at least {lowest}."
    assert error_for(lowest - 1) == too_low
    assert "Invalid value" not in error_for(lowest)
    if highest is not None:
        too_high = f"Invalid value {highest + 1} for configuration {key}: Value must be no more than {highest}."
        assert error_for(highest + 1) == too_high
        assert "Invalid value" not in error_for(highest)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (
            {"group.share.delivery.count.limit": 2, "group.share.min.delivery.count.limit": 3},
            "group.share.delivery.count.limit must be greater than or equal to"
            " group.share.min.delivery.count.limit (3), not 2.",
        ),
        (
            {"group.share.max.record.lock.duration.ms": 30000, "group.share.record.lock.duration.ms": 40000},
            "group.share.max.record.lock.duration.ms must be greater than or equal to"
            " group.share.record.lock.duration.ms (40000), not 30000.",
        ),
        (
            {
                "group.share.min.session.timeout.ms": 5000,
                "group.share.session.timeout.ms": 5000,
                "group.share.heartbeat.interval.ms": 5000,
            },
            "group.share.session.timeout.ms must be greater than group.share.heartbeat.interval.ms (5000), not 5000.",
        ),
        (
            {"group.share.max.share.sessions": 100, "group.share.max.size": 101},
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size (101), not 100.",
        ),
    ],
)
def test_broker_values_must_agree(values: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_mapping(values)
    assert str(caught.value) == text


@pytest.mark.parametrize("setting", LIMITED_SETTINGS, ids=lambda setting: setting.group_key)
def test_each_broker_default_lies_within_its_limits(setting: LimitedSetting) -> None:
    broker = BrokerConfig()
    with pytest.raises(ConfigurationError, match=re.escape(setting.default_key)):
        BrokerConfig.from_mapping({setting.default_key: broker.value(setting.max_key) + 1})
    if broker.value(setting.min_key) > 0:
        with pytest.raises(ConfigurationError, match=re.escape(setting.default_key)):
            BrokerConfig.from_mapping({setting.default_key: broker.value(setting.min_key) - 1})


def test_one_group_may_have_a_window_of_ten_million_records() -> None:
    broker = BrokerConfig(group_share_max_partition_max_record_locks=10_000_000)
    config = effective_group_config(broker, {"share.partition.max.record.locks": "10000000"})
    assert config.share_partition_max_record_locks == 10_000_000


# --- Groups ---


@pytest.mark.parametrize(
    ("overrides", "recorded"),
    [
        (
            {"share.delivery.count.limit": "1"},
            "Invalid value 1 for configuration share.delivery.count.limit: Value must be at least 2",
        ),
        (
            {"share.delivery.count.limit": "100"},
            "share.delivery.count.limit must be less than or equal to group.share.max.delivery.count.limit",
        ),
        (
            {"share.record.lock.duration.ms": "100"},
            "Invalid value 100 for configuration share.record.lock.duration.ms: Value must be at least 1000",
        ),
        (
            {"share.record.lock.duration.ms": "10000000"},
            "share.record.lock.duration.ms must be less than or equal to group.share.max.record.lock.duration.ms",
        ),
        (
            {"share.partition.max.record.locks": "10"},
            "Invalid value 10 for configuration share.partition.max.record.locks: Value must be at least 100",
        ),
        (
            {"share.session.timeout.ms": "1"},
            "share.session.timeout.ms must be greater than or equal to group.share.min.session.timeout.ms",
        ),
        (
            {"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "6000"},
            "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
        ),
        (
            {"share.session.timeout.ms": "5000", "share.heartbeat.interval.ms": "5000"},
            "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
        ),
        (
            {"share.isolation.level": "serializable"},
            "Invalid value serializable for configuration share.isolation.level:"
            " String must be one of: read_committed, read_uncommitted",
        ),
        ({"share.nonsense": "1"}, "Unknown group config name: share.nonsense"),
    ],
)
def test_group_error_begins_as_kafkas_recorded_one(overrides: dict[str, str], recorded: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        validate_overrides(RECORDED_BROKER, overrides)
    assert str(caught.value).startswith(recorded)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"share.delivery.count.limit": "100"}, "group.share.max.delivery.count.limit (10), not 100."),
        ({"share.session.timeout.ms": "44999"}, "group.share.min.session.timeout.ms (45000), not 44999."),
        ({"share.delivery.count.limits": "3"}, "Did you mean share.delivery.count.limit?"),
        ({"share.renew.acknowledge.enable": "1"}, "Invalid value 1 for configuration share.renew.acknowledge.enable"),
        ({"share.heartbeat.interval.ms": "1.5"}, "Not a number of type INT."),
    ],
)
def test_group_error_names_value_bound_and_remedy(overrides: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfigError, match=re.escape(text)):
        validate_overrides(BrokerConfig(), overrides)


@pytest.mark.parametrize(
    ("broker", "group", "record_locks"),
    [
        ({}, {}, 1_000_000),
        ({}, {"share.delivery.count.limit": "2"}, 2_000),
        ({}, {"share.delivery.count.limit": "2", "share.partition.max.record.locks": "5000"}, 5_000),
        ({"group.share.delivery.count.limit": 2}, {}, 2_000),
        ({"group.share.delivery.count.limit": 2}, {"share.delivery.count.limit": "3"}, 1_000_000),
        ({"group.share.partition.max.record.locks": 7_000}, {"share.delivery.count.limit": "2"}, 7_000),
        ({"group.share.min.partition.max.record.locks": 3_000}, {"share.delivery.count.limit": "2"}, 3_000),
        ({}, {"share.partition.max.record.locks": "2000000"}, 2_000_000),
    ],
)
def test_default_window(broker: dict[str, int], group: dict[str, str], record_locks: int) -> None:
    limits = BrokerConfig.from_mapping(broker)
    validate_overrides(limits, group)
    assert effective_group_config(limits, group).share_partition_max_record_locks == record_locks


def test_recorded_alterations_are_accepted() -> None:
    overrides = {"share.record.lock.duration.ms": "20000", "share.auto.offset.reset": "earliest"}
    validate_overrides(RECORDED_BROKER, overrides)
    config = effective_group_config(RECORDED_BROKER, overrides)
    assert (config.share_record_lock_duration_ms, config.share_auto_offset_reset) == (20000, "earliest")
    assert config.share_heartbeat_interval_ms == 1000, "what the group does not set is the broker's"


@pytest.mark.parametrize(
    ("value", "duration_ms"),
    [
        ("earliest", None),
        ("latest", None),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT0.0019S", 1),
        ("by_duration:P0D", 0),
        ("by_duration:P9999999999DT9999999999H9999999999M9999999999.999999999S", 900_609_999_909_939_999),
    ],
)
def test_offset_reset(value: str, duration_ms: int | None) -> None:
    validate_overrides(BrokerConfig(), {"share.auto.offset.reset": value})
    config = effective_group_config(BrokerConfig(), {"share.auto.offset.reset": value})
    assert config.timed_reset == (None if duration_ms is None else TimedReset(duration_ms))


@pytest.mark.parametrize(
    ("text", "since_ms"),
    [
        ("2026-11-27T09:00:00.000Z", 1_795_770_000_000),
        ("2026-11-27T09:00:00", 1_795_770_000_000),
        ("2026-11-27T10:00:00.5+01:00", 1_795_770_000_500),
        ("1970-01-01T00:00", 0),
    ],
)
def test_offset_reset_to_a_point_of_time(text: str, since_ms: int) -> None:
    value = f"by_datetime:{text}"
    validate_overrides(BrokerConfig(), {"share.auto.offset.reset": value})
    reset = effective_group_config(BrokerConfig(), {"share.auto.offset.reset": value}).timed_reset
    assert reset is not None
    assert reset.start_ms(now_ms=5) == since_ms


@pytest.mark.parametrize(
    "value",
    [
        *("sometimes", "", "by_duration", "by_duration:", "by_duration:-PT1H", "by_duration:PT-1H", "by_duration:P"),
        *("by_duration:PT", "by_duration:P1DT", "by_duration:P1H", "by_duration:PT1H ago", "by_duration:PT1M1H"),
        *("by_duration:PT.5S", "by_duration:P99999999999D", "PT1H", "by_datetime:", "by_datetime:yesterday"),
        *("by_datetime:2026-11-27", "by_datetime:1969-12-31T00:00:00Z", "2026-11-27T09:00:00.000Z"),
    ],
)
def test_offset_reset_that_is_refused(value: str) -> None:
    text = (
        f"Invalid value {value} for configuration share.auto.offset.reset: The value must be either 'earliest',"
        " 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>' or 'by_datetime:<YYYY-MM-DDThh:mm:ss.sssZ>'."
    )
    with pytest.raises(InvalidConfigError) as caught:
        validate_overrides(BrokerConfig(), {"share.auto.offset.reset": value})
    assert str(caught.value) == text


@pytest.mark.parametrize(("name", "has_queue"), [("", False), ("orders-dlq", True), ("_dlq", True)])
def test_dead_letter_topic(name: str, has_queue: bool) -> None:
    overrides = {"errors.deadletterqueue.topic.name": name}
    validate_overrides(BrokerConfig(), overrides)
    config = effective_group_config(BrokerConfig(), overrides)
    assert (config.has_dead_letter_queue, config.share_partition_limits.has_dead_letter_queue) == (has_queue, has_queue)


@pytest.mark.parametrize("name", ["__dlq", "__", "a b", ".", "..", "ä", "x" * 250])
def test_dead_letter_topic_that_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"Invalid value .* errors\.deadletterqueue\.topic\.name"):
        validate_overrides(BrokerConfig(), {"errors.deadletterqueue.topic.name": name})


numbers = st.integers(min_value=0, max_value=20_000_000)


@given(st.dictionaries(st.sampled_from([setting.group_key for setting in LIMITED_SETTINGS]), numbers))
def test_a_configuration_in_force_lies_within_the_brokers_limits(numbers_by_key: dict[str, int]) -> None:
    broker = BrokerConfig()
    overrides = {key: str(number) for key, number in numbers_by_key.items()}
    try:
        config = effective_group_config(broker, overrides)
    except InvalidConfigError:
        with pytest.raises(InvalidConfigError):
            validate_overrides(broker, overrides)
        return
    for setting in LIMITED_SETTINGS:
        in_force = config.value(setting.group_key)
        wanted = numbers_by_key.get(setting.group_key, broker.value(setting.default_key))
        lowest, highest = broker.value(setting.min_key), broker.value(setting.max_key)
        assert in_force == sorted((lowest, wanted, highest))[1]


@st.composite
def acceptable_overrides(draw: st.DrawFn) -> dict[str, str]:
    broker = BrokerConfig()
    settings = draw(st.lists(st.sampled_from(LIMITED_SETTINGS), unique=True))
    return {
        setting.group_key: str(draw(st.integers(broker.value(setting.min_key), broker.value(setting.max_key))))
        for setting in settings
    }


@given(acceptable_overrides())
def test_an_accepted_configuration_is_in_force_unchanged(overrides: dict[str, str]) -> None:
    broker = BrokerConfig()
    validate_overrides(broker, overrides)
    config = effective_group_config(broker, overrides)
    assert {key: str(config.value(key)) for key in overrides} == overrides


def test_stored_value_is_capped_when_the_brokers_limits_change() -> None:
    overrides = {"share.delivery.count.limit": "10"}
    validate_overrides(BrokerConfig(), overrides)
    narrower = BrokerConfig(group_share_max_delivery_count_limit=6)
    assert effective_group_config(narrower, overrides).share_delivery_count_limit == 6


# --- Consumers, workers, processor ---


@pytest.mark.parametrize("config", [ShareConsumerConfig, WorkerConfig])
@pytest.mark.parametrize(
    "key",
    [
        *("auto.offset.reset", "enable.auto.commit", "group.instance.id", "isolation.level", "session.timeout.ms"),
        *("partition.assignment.strategy", "interceptor.classes", "heartbeat.interval.ms", "group.protocol"),
        *("group.remote.assignor", "allow.auto.create.topics"),
    ],
)
def test_key_that_share_groups_refuse(config: type[Config], key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.from_mapping({key: "x"})
    assert caught.value.message == f"{key} cannot be set when using a share group."
    assert caught.value.remedy


@pytest.mark.parametrize("key", sorted(GroupConfig.refused))
def test_group_key_without_meaning_here(key: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        validate_overrides(BrokerConfig(), {key: "1"})
    assert caught.value.message == f"Unknown group config name: {key}."
    assert caught.value.remedy == GroupConfig.refused[key]


@pytest.mark.parametrize("key", sorted(BrokerConfig.refused))
def test_broker_key_without_meaning_here(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        BrokerConfig.from_mapping({key: "1"})
    assert caught.value.message == f"{key} has no meaning here."
    assert caught.value.remedy == BrokerConfig.refused[key]


@pytest.mark.parametrize(
    ("config", "values", "text"),
    [
        (ShareConsumerConfig, {}, "Missing required configuration group.id which has no default value."),
        (ShareConsumerConfig, {"group.id": " "}, "configuration group.id: Value must not be empty."),
        (ShareConsumerConfig, {"group.id": 7}, "Invalid value 7 for configuration group.id"),
        (ShareConsumerConfig, {"group_id": "g"}, "Unknown configuration group_id. Did you mean group.id?"),
        (
            ShareConsumerConfig,
            {"group.id": "g", "share.acknowledgement.mode": "maybe"},
            "value maybe for configuration share.acknowledgement.mode: String must be one of: implicit, explicit.",
        ),
        (
            ShareConsumerConfig,
            {"group.id": "g", "request.timeout.ms": 15000},
            "request.timeout.ms must be greater than fetch.max.wait.ms (15000), not 15000.",
        ),
        (WorkerConfig, {"group.id": "g"}, "Missing required configuration topics which has no default value."),
        (WorkerConfig, {"group.id": "g", "topics": " , "}, "configuration topics: Value must not be empty."),
        (WorkerConfig, {"group.id": "g", "topics": ["a", "b c"]}, "Invalid value b c for configuration topics"),
        (ProcessorConfig, {**REQUIRED, "log.path": ""}, "configuration log.path: Value must not be empty."),
        (
            ProcessorConfig,
            {**REQUIRED, "request.topic.name": "t", "response.topic.name": "t"},
            "request.topic.name must differ from response.topic.name, but both are t.",
        ),
    ],
)
def test_wrong_configuration(config: type[Config], values: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        config.from_mapping(values)


def test_constructor_translates_errors_too() -> None:
    with pytest.raises(ConfigurationError, match=r"group\.share\.max\.size: Value must be at least 1\."):
        BrokerConfig(group_share_max_size=0)
    values: dict[str, Any] = {"nonsense": 1}
    with pytest.raises(ConfigurationError, match="Unknown configuration nonsense"):
        BrokerConfig(**values)


@pytest.mark.parametrize(("value", "expected"), [("7", 7), (" +7 ", 7), (7, 7), ("2147483647", 2**31 - 1)])
def test_syntax_of_numbers(value: object, expected: int) -> None:
    assert ShareConsumerConfig.from_mapping({"group.id": "g", "max.poll.records": value}).max_poll_records == expected


@pytest.mark.parametrize(
    "value", ["", "1.0", "1_000", "0x10", "seven", "\u0667", 1.0, True, None, "2147483648", "9" * 5000]
)
def test_values_that_are_not_numbers(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"max\.poll\.records: Not a number of type INT\."):
        ShareConsumerConfig.from_mapping({"group.id": "g", "max.poll.records": value})


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("FALSE", False), (True, True)])
def test_syntax_of_booleans(value: object, expected: bool) -> None:
    key = "share.renew.acknowledge.enable"
    assert GroupConfig.from_mapping({key: value}).share_renew_acknowledge_enable is expected


@pytest.mark.parametrize("value", ["yes", "1", "", 1, None])
def test_values_that_are_not_booleans(value: object) -> None:
    with pytest.raises(ConfigurationError, match="Expected value to be either true or false"):
        GroupConfig.from_mapping({"share.renew.acknowledge.enable": value})


def test_topics_are_a_list_or_text_with_commas() -> None:
    for topics in ("a,b", "a , b,", ["a", "b"]):
        assert WorkerConfig.from_mapping({"group.id": "g", "topics": topics}).topics == ("a", "b")


@pytest.mark.parametrize("config", MODELS)
def test_every_field_has_a_description(config: type[Config]) -> None:
    for field in config.model_fields.values():
        assert (field.description or "").endswith("."), field.alias


def test_configurations_and_their_errors_can_be_sent_to_other_processes() -> None:
    config = ShareConsumerConfig(group_id="g")
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(ConfigurationError) as caught:
        ShareConsumerConfig(group_id="")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# --- Sources of values ---


def test_precedence_is_flag_environment_file_default(tmp_path: Path) -> None:
    keys = ("max.requests.per.cut", "request.topic.partitions", "response.topic.partitions", "metrics.port")
    path = yaml_file(tmp_path, "processor: {" + ", ".join(f"{key}: 11" for key in keys[:3]) + "}")
    environ = {environment_variable(key): "22" for key in keys[:2]}
    processor = load_settings(path, environ, (*FLAGS, f"{keys[0]}=33")).processor
    assert [processor.value(key) for key in keys] == [33, 22, 11, 0]


def test_last_of_repeated_flags_counts() -> None:
    settings = load_settings(None, {}, (*FLAGS, "batch.duration.ms=2", "batch.duration.ms = 3 "))
    assert settings.processor.batch_duration_ms == 3


# Values that differ from the default and are acceptable beside the defaults of all other keys.
SAMPLES: dict[str, str] = {
    "topics": "a,b",
    "share.acknowledgement.mode": "explicit",
    "sink": "/x",
    "share.acquire.mode": "record_limit",
    "group.share.assignors": "simple",
    "group.share.min.heartbeat.interval.ms": "4999",
    "group.share.min.session.timeout.ms": "44999",
    "share.coordinator.snapshot.update.records.per.snapshot": "499",
    "bootstrap.servers": "broker:9092",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "ssl.endpoint.identification.algorithm": "none",
    "sink.mode": "merge",
    "sink.writers": "atomic",
}
MERGE = ("sink=/x", "sink.mode=merge", "sink.merge.keys=id")
# One of these alone is refused.
PATHS = ("log.path", "state.table.path", "checkpoint.path")
LOGIN = ("security.protocol=SASL_SSL", "sasl.mechanism=PLAIN", "sasl.username=user", "sasl.password=password")


def sample(key: str) -> str:
    field = SECTIONS[FLAT_KEYS[key].section].model_fields[FLAT_KEYS[key].key.replace(".", "_")]
    if isinstance(field.default, bool):
        return str(not field.default).lower()
    if key in PATHS:
        return "/x"
    return SAMPLES.get(FLAT_KEYS[key].key, str(field.default + 1) if isinstance(field.default, int) else "x")


def text_of(settings: Settings, flat_key: str) -> str:
    section, key = FLAT_KEYS[flat_key]
    if section == "kafka":
        return settings.kafka.client_properties()[key]
    configs: dict[str, Config] = {
        "processor": settings.processor,
        "broker": settings.broker,
        "consumer": ShareConsumerConfig.from_mapping({"group.id": "g", **settings.consumer}),
        "worker": WorkerConfig.from_mapping({"group.id": "g", "topics": "t", **settings.worker}),
    }
    value = configs[section].value(key)
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)


OF_STORES = ("state.table.storage.", "sink.storage.")


@pytest.mark.parametrize("key", sorted(key for key in FLAT_KEYS if not key.startswith(OF_STORES)))
def test_every_key_can_come_from_every_source(key: str, tmp_path: Path) -> None:
    key_path, value = FLAT_KEYS[key], sample(key)
    merge = MERGE if key.startswith("sink.") else ()
    replaced = (f"{key}=", "log.path=") if key == "bootstrap.servers" else (f"{key}=",)
    flags = [flag for flag in (*FLAGS, *LOGIN, *merge) if not flag.startswith(replaced)]
    nested = yaml_file(tmp_path, f"{key_path.section}:\n  {key_path.key}: {value}\n")
    assert text_of(load_settings(nested, {}, flags), key) == value
    flat = yaml_file(tmp_path, f"{key}: {value}\n")
    assert text_of(load_settings(flat, {}, flags), key) == value
    assert text_of(load_settings(None, {environment_variable(key): value}, flags), key) == value
    assert text_of(load_settings(None, {}, [*flags, f"{key}={value}"]), key) == value
    assert text_of(load_settings(None, {}, [*flags, f"{key_path.section}.{key_path.key}={value}"]), key) == value


@pytest.mark.parametrize(
    ("file", "flags", "log"),
    [
        ("log.path: a.db", (), "a.db"),
        ("log.path: a.db", ("bootstrap.servers=b:1",), "b:1"),
        ("kafka: {bootstrap.servers: b:1}", ("log.path=a.db",), "a.db"),
        ("{log.path: a.db, bootstrap.servers: ''}", (), "a.db"),
        ("log.path: a.db", ("log.path=c.db",), "c.db"),
    ],
)
def test_the_log_that_a_later_source_names_counts(file: str, flags: tuple[str, ...], log: str, tmp_path: Path) -> None:
    others = [flag for flag in FLAGS if not flag.startswith("log.path=")]
    settings = load_settings(yaml_file(tmp_path, file), {}, (*others, *flags))
    assert settings.log == (KafkaConfig(bootstrap_servers=log) if log == "b:1" else str(Path(log).absolute()))
    assert (log if log == "b:1" else settings.log) in settings.channel_properties.values()


@pytest.mark.parametrize(
    ("file", "complaint"),
    [
        ("{}", "Missing required configuration log.path or bootstrap.servers, which have no default value.*Set boot"),
        ("bootstrap.servers: ''", "Missing required configuration log.path or bootstrap.servers"),
        ("{log.path: a.db, bootstrap.servers: b:1}", r"both set \(from .* line 1, .* line 1\)\. All programs have one"),
    ],
)
def test_there_is_one_log(file: str, complaint: str, tmp_path: Path) -> None:
    others = [flag for flag in FLAGS if not flag.startswith("log.path=")]
    with pytest.raises(ConfigurationError, match=complaint):
        load_settings(yaml_file(tmp_path, file), {}, others)


def test_keys_that_workers_share_with_consumers_have_a_prefix() -> None:
    settings = load_settings(None, {}, (*FLAGS, "max.poll.records=5", "worker.max.poll.records=6"))
    assert settings.consumer_config({"group.id": "g"}).max_poll_records == 5
    assert settings.worker_config({"group.id": "g", "topics": "t"}).max_poll_records == 6


def test_program_properties_stand_over_the_settings() -> None:
    settings = load_settings(None, {}, (*FLAGS, "group.id=from-flags", "max.poll.records=5"))
    assert settings.consumer_config().group_id == "from-flags"
    config = settings.consumer_config({"group.id": "own"})
    assert (config.group_id, config.max_poll_records) == ("own", 5)


def test_groups_come_from_the_file(tmp_path: Path) -> None:
    text = """
        groups:
          orders:
            share.auto.offset.reset: earliest
            share.renew.acknowledge.enable: false
            share.delivery.count.limit: 3
          2024.returns:
    """
    settings = load_settings(yaml_file(tmp_path, text), {}, FLAGS)
    assert settings.groups == {
        "orders": {
            "share.auto.offset.reset": "earliest",
            "share.renew.acknowledge.enable": "false",
            "share.delivery.count.limit": "3",
        },
        "2024.returns": {},
    }


def test_groups_are_held_against_the_broker_of_the_same_settings(tmp_path: Path) -> None:
    path = yaml_file(tmp_path, "groups: {orders: {share.delivery.count.limit: 15}}")
    load_settings(path, {}, (*FLAGS, "group.share.max.delivery.count.limit=15"))
    with pytest.raises(ConfigurationError, match=r"must be less than or equal to .* line 1, group orders\)"):
        load_settings(path, {}, FLAGS)


def test_sections_may_be_empty(tmp_path: Path) -> None:
    for text in ("", "# nothing\n", "broker:\n", "groups:\nconsumer: {}\n"):
        assert load_settings(yaml_file(tmp_path, text), {}, FLAGS).broker == BrokerConfig()


def test_other_environment_variables_are_not_read() -> None:
    assert load_settings(None, {"PATH": "/bin", "GROUP_ID": "g"}, FLAGS).consumer == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "broker:\n  group.share.max.size: 0",
            ("group.share.max.size", "value 0", "at least 1", "settings.yaml line 2"),
        ),
        (
            "broker:\n  group.share.max.sise: 5",
            ("group.share.max.sise", "line 2", "Did you mean group.share.max.size?"),
        ),
        ("brokr:\n  group.share.max.size: 5", ("Unknown configuration brokr", "line 1")),
        ("consumer:\n  max.poll.records: 1.5", ("max.poll.records", "value 1.5", "type INT", "settings.yaml line 2")),
        ("consumer:\n  isolation.level: x", ("isolation.level cannot be set when using a share group", "line 2")),
        ("consumer:\n  request.timeout.ms: 9", ("request.timeout.ms", "not 9", "(15000)", "settings.yaml line 2")),
        ("isolation.level: x", ("isolation.level cannot be set when using a share group", "line 1")),
        ("share.delivery.count.limit: 3", ("share.delivery.count.limit belongs to one group", "under groups")),
        ("groups:\n  g:\n    share.delivery.count.limit: 1", ("value 1", "at least 2", "line 3, group g")),
        (
            "groups:\n  g:\n    share.delivery.limit: 1",
            ("Unknown group config name", "line 3, group g", "Did you mean"),
        ),
        ("groups:\n  '':\n    share.delivery.count.limit: 3", ("A key must be a name", "line 2")),
        ("groups:\n- a", ("Keys and values are expected", "line 2")),
        ("broker: 5", ("Keys and values are expected", "line 1")),
        ("[1, 2]", ("Keys and values are expected", "line 1")),
        ("worker:\n  topics: [a, [b]]", ("topics must be one value or a list of values", "line 2")),
        ("? [a]\n: b", ("A key must be a name", "line 1")),
        ("broker:\n  group.share.max.size: 5\n  group.share.max.size: 6", ("is set twice", "line 2", "line 3")),
        ("broker:\n  group.share.max.size: 5\ngroup.share.max.size: 6", ("is set twice", "line 2", "line 3")),
        ("groups:\n  g:\n  g:", ("g is set twice", "line 2", "line 3")),
        ("consumer:\nbroker:\nconsumer:", ("consumer is set twice", "line 1", "line 3")),
        ("broker: {", ("settings.yaml is not YAML",)),
    ],
)
def test_wrong_file(text: str, expected: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(yaml_file(tmp_path, text), {}, FLAGS)
    for part in expected:
        assert part in str(caught.value)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"group.id: caf\xe9")
    for path in (tmp_path / "missing.yaml", tmp_path, latin):
        with pytest.raises(ConfigurationError, match=re.escape(f"{path} cannot be read")):
            load_settings(path, {}, FLAGS)


@pytest.mark.parametrize(
    ("environ", "flags", "expected"),
    [
        ({"SHAREGROUP_MAX_POLL_RECORDS": "0"}, (), ("value 0", "environment variable SHAREGROUP_MAX_POLL_RECORDS")),
        ({"SHAREGROUP_MAX_POLL_RECORD": "5"}, (), ("Unknown", "Did you mean SHAREGROUP_MAX_POLL_RECORDS?")),
        ({"SHAREGROUP_ISOLATION_LEVEL": "x"}, (), ("isolation.level cannot be set", "SHAREGROUP_ISOLATION_LEVEL")),
        ({"SHAREGROUP_SHARE_ISOLATION_LEVEL": "x"}, (), ("share.isolation.level belongs to one group",)),
        ({}, ("max.poll.records=none",), ("value none", "type INT", "flag --set max.poll.records=none")),
        ({}, ("max.pol.records=5",), ("Unknown", "flag --set max.pol.records=5", "Did you mean max.poll.records?")),
        ({}, ("max.poll.records",), ("key=value", "flag --set max.poll.records")),
        ({}, ("share.coordinator.threads=4",), ("share.coordinator.threads has no meaning here", "flag --set")),
        (
            {"SHAREGROUP_REQUEST_TIMEOUT_MS": "9000"},
            ("fetch.max.wait.ms=9000",),
            (
                "request.timeout.ms must be greater",
                "SHAREGROUP_REQUEST_TIMEOUT_MS",
                "flag --set fetch.max.wait.ms=9000",
            ),
        ),
    ],
)
def test_wrong_environment_or_flag(environ: dict[str, str], flags: tuple[str, ...], expected: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(None, environ, (*FLAGS, *flags))
    for part in expected:
        assert part in str(caught.value)


def test_missing_path_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"Missing required configuration checkpoint\.path"):
        load_settings(None, {}, [flag for flag in FLAGS if not flag.startswith("checkpoint.path")])


@given(st.sampled_from(sorted(FLAT_KEYS)), st.text(max_size=20) | st.integers().map(str))
def test_any_value_is_taken_or_refused_by_name(key: str, value: str) -> None:
    refusal = ""
    try:
        load_settings(None, {}, (*FLAGS, f"{key}={value}"))
    except ConfigurationError as error:
        refusal = error.message
    assert not refusal or (FLAT_KEYS[key].key in refusal and f"flag --set {key}=" in refusal)


# --- The folder of the checkpoint ---


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("build/checkpoint", str(Path("build/checkpoint").absolute())),
        ("/data/a:b", "/data/a:b"),
        ("file:///data/checkpoint", "/data/checkpoint"),
        ("file:/data/checkpoint", "/data/checkpoint"),
        ("file://localhost/data/checkpoint", "/data/checkpoint"),
        ("FILE:///data/a%20b", "/data/a b"),
    ],
)
def test_the_checkpoint_is_a_path(value: str, path: str) -> None:
    assert ProcessorConfig.from_mapping({**REQUIRED, "checkpoint.path": value}).checkpoint_path == path


@pytest.mark.parametrize("value", ["s3a://bucket/checkpoint", "hdfs://name/c", "file:c", "file://host/c", "dbfs:/c"])
def test_a_checkpoint_that_is_no_path_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Invalid value {value} for configuration checkpoint.path: .*path"):
        ProcessorConfig.from_mapping({**REQUIRED, "checkpoint.path": value})


# --- The groups of a domain ---


@pytest.mark.parametrize(
    ("pattern", "served", "not_served"),
    [
        (".*", ["orders", "a b", "a\nb", "Ö" * 1_024], []),
        (
            "alice-.*",
            ["alice-", "alice-orders", "alice-\n"],
            ["alice", "bob-orders", "my-alice-orders", "Alice-orders"],
        ),
        ("(alice|carol)-.*|shared", ["alice-a", "carol-a", "shared"], ["shared-a", "bob-a", ""]),
        ("^orders$", ["orders"], ["orders\n", "orders2"]),
        ("(?i)orders", ["ORDERS"], ["ORDER"]),
    ],
)
def test_a_pattern_matches_whole_group_ids(pattern: str, served: list[str], not_served: list[str]) -> None:
    config = ProcessorConfig.from_mapping({**REQUIRED, "processor.group.pattern": pattern})
    assert [group_id for group_id in (*served, *not_served) if config.serves(group_id)] == served


@pytest.mark.parametrize("pattern", ["", "(", "*", "a{99999999999}", "(?P<a>b)(?P<a>c)", "[z-a]"])
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    text = f"Invalid value {pattern} for configuration processor.group.pattern: "
    with pytest.raises(ConfigurationError, match=re.escape(text)):
        ProcessorConfig.from_mapping({**REQUIRED, "processor.group.pattern": pattern})


def test_the_configuration_of_a_domain_in_the_document_is_accepted(tmp_path: Path) -> None:
    document = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(.*?)```", document, re.DOTALL)
    user = {"SHAREGROUP_SASL_USERNAME": "alice-processor", "SHAREGROUP_SASL_PASSWORD": "secret"}
    settings = load_settings(yaml_file(tmp_path, text), user)
    assert [settings.processor.serves(group_id) for group_id in ("alice.a", "alice-a", "bob.a")] == [True, False, False]


def test_a_group_that_is_configured_must_be_served(tmp_path: Path) -> None:
    text = "".join(f"{key}: {value}\n" for key, value in REQUIRED.items())
    file = yaml_file(tmp_path, f"{text}processor.group.pattern: alice-.*\ngroups: {{alice-a: {{}}, bob-a: {{}}}}")
    with pytest.raises(ConfigurationError) as caught:
        load_settings(file, {})
    assert "Group bob-a is configured under groups, but processor.group.pattern alice-.* does not" in str(caught.value)
    assert f"{file} line 4" in str(caught.value)
    settings = load_settings(file, {}, ["processor.group.pattern=(alice|bob)-.*"])
    assert set(settings.groups) == {"alice-a", "bob-a"}


# --- Files of the project ---


def test_local_configuration_keeps_everything_in_one_folder() -> None:
    settings = load_settings(ROOT / "conf" / "local.yaml", {})
    folder = str(Path("build/local").absolute())
    assert settings.processor.log_path == Path(folder, "log.db")
    assert settings.processor.state_table_path.startswith(folder)
    assert settings.processor.checkpoint_path.startswith(folder)
    assert effective_group_config(settings.broker, settings.groups["orders"]).share_delivery_count_limit == 3


def test_reference_is_up_to_date() -> None:
    committed = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert committed == configuration_reference(), "run make docs"


def test_reference_has_every_key() -> None:
    reference = configuration_reference()
    for config in MODELS:
        of_one = [key for key in config.key_names() if not key.startswith(OF_STORES)]
        for key in (*of_one, *config.families, *config.refused):
            assert f"| `{key}` |" in reference


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("build/state", str(Path("build/state").absolute())),
        ("/var/lib/state", "/var/lib/state"),
        ("file:///var/lib/my%20state", "/var/lib/my state"),
        ("file:/var/lib/state", "/var/lib/state"),
        ("file://localhost/var/lib/state", "/var/lib/state"),
    ],
)
@pytest.mark.parametrize("key", ["state.table.path", "checkpoint.path"])
def test_a_local_path_may_be_a_file_uri(key: str, value: str, path: str) -> None:
    config = ProcessorConfig.from_mapping({"state.table.path": "state", "checkpoint.path": "checkpoint", key: value})
    assert config.value(key) == path
    assert location_of(config.state_table_path).folder == Path(config.state_table_path)


ON_STORES = ["s3://bucket/state", "az://container/state", "abfss://x@y.dfs.core.windows.net/state", "gs://b/a/state"]


@pytest.mark.parametrize("value", ON_STORES)
def test_the_state_table_may_be_on_an_object_store(value: str) -> None:
    options = {"state.table.storage.AWS_REGION": "eu-1", "state.table.storage.timeout": "4s"}
    config = ProcessorConfig.from_mapping({"state.table.path": f"{value}/", "checkpoint.path": "c", **options})
    sent = pickle.loads(pickle.dumps(config.state_table_path))
    assert (sent, location_of(sent).options) == (value, {"aws_region": "eu-1", "timeout": "4s"})
    assert location_of(sent).folder is None


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        ({"state.table.path": "s3://bucket"}, "has the form s3://bucket/path"),
        ({"state.table.path": "abfss://container/state"}, "must name the account"),
        ({"state.table.path": "ftp://host/state"}, "The scheme must be one of file, s3, az, abfss or gs"),
        ({"state.table.path": "state", "state.table.storage.timeout": "4s"}, "is on a local disk: /.*/state"),
        ({"state.table.storage.AWS_REGOIN": "eu-1"}, r"Did you mean state\.table\.storage\.aws_region\?"),
    ],
)
def test_a_wrong_address_or_option_of_a_store_is_refused(settings: dict[str, str], refusal: str) -> None:
    with pytest.raises(ConfigurationError, match=refusal):
        ProcessorConfig.from_mapping({"state.table.path": "s3://bucket/state", "checkpoint.path": "c", **settings})


def test_options_of_a_store_come_from_flags_and_the_environment_and_are_not_shown() -> None:
    key = "state.table.storage.aws_secret_access_key"
    flags = [flag for flag in FLAGS if not flag.startswith("state.table.path=")] + ["state.table.path=s3://b/t"]
    for environ, more in (({environment_variable(key): "hush"}, []), ({}, [f"{key}=hush"])):
        settings = load_settings(None, environ, [*flags, *more])
        assert location_of(settings.processor.state_table_path).options == {"aws_secret_access_key": "hush"}
        assert "hush" not in repr(settings)
    for wrong in (f"{key}x=hush", f"processor.{key}x=hush"):
        with pytest.raises(ConfigurationError) as refused:
            load_settings(None, {}, [*flags, wrong])
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, value)
            for key in ("state.table.path", "checkpoint.path")
            for value in ("dbfs:/state", "file://x/s", "")
        ),
        ("checkpoint.path", "s3://bucket/state"),
    ],
)
def test_a_path_that_is_not_local_is_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ProcessorConfig.from_mapping({"state.table.path": "state", "checkpoint.path": "checkpoint", key: value})
    assert key in str(refused.value)
    assert value in str(refused.value)
    assert not value or "use a path such as /var/lib/sharegroup/state" in str(refused.value)
