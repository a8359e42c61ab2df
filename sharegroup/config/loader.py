"""Settings of a program, from a YAML file, the environment and flags; the later one wins.

All keys are in one flat space, and each belongs to one section by its name. A key that a worker shares with
consumers is the consumer's; the worker's is written with `worker.` before it, and every other key may be written with
its section's name before it, too. A YAML file may nest keys under the names of their sections, where that prefix is not
needed; it alone has the section `groups`.

All values are read as text, like those of Kafka's tools, so that every source has the same syntax.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.consumer import ShareConsumerConfig
from sharegroup.config.group import GroupConfig, check_overrides
from sharegroup.config.kafka import KafkaConfig, is_secret_key
from sharegroup.config.model import HIDDEN, Config, nearest
from sharegroup.config.processor import ProcessorConfig
from sharegroup.config.worker import WorkerConfig
from sharegroup.errors import ConfigurationError

ENVIRONMENT_PREFIX = "SHAREGROUP_"
GROUPS = "groups"
SECTIONS: Mapping[str, type[Config]] = {
    "processor": ProcessorConfig,
    "kafka": KafkaConfig,
    "broker": BrokerConfig,
    "consumer": ShareConsumerConfig,
    "worker": WorkerConfig,
}
"""Section → its configuration."""

AnyConfig = TypeVar("AnyConfig", bound=Config)


class Place(NamedTuple):
    """Where a flat key belongs."""

    section: str
    key: str


class Setting(NamedTuple):
    """A value that was set, and where it came from."""

    value: str
    origin: str


def _flat_keys() -> dict[str, Place]:
    places: dict[str, Place] = {}
    for section, config in SECTIONS.items():
        for key in config.key_names():
            places[f"{section}.{key}" if key in places else key] = Place(section, key)
    return places


FLAT_KEYS: Mapping[str, Place] = _flat_keys()
"""Every key that the environment and flags can set → where it belongs."""

_LOGS = (Place("processor", "log.path"), Place("kafka", "bootstrap.servers"))
"""The keys that say where the log is: one of them is set."""


def environment_variable(flat_key: str) -> str:
    """The environment variable that sets a flat key."""
    return ENVIRONMENT_PREFIX + flat_key.upper().replace(".", "_")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one program.

    Attributes:
        processor: where logs and state are.
        broker: defaults and limits of all groups.
        groups: group id → the group's own keys and values.
        consumer: keys and values that consumers start from.
        worker: keys and values that workers start from.
        kafka: the Kafka cluster of the logs, if they are in one.
    """

    processor: ProcessorConfig
    broker: BrokerConfig
    groups: Mapping[str, Mapping[str, str]]
    consumer: Mapping[str, str]
    worker: Mapping[str, str]
    kafka: KafkaConfig = field(default_factory=KafkaConfig)

    @property
    def log(self) -> str | KafkaConfig:
        """Where the log is, as `open_log` takes it."""
        return self.kafka if self.kafka.bootstrap_servers else str(self.processor.log_path)

    @property
    def link_properties(self) -> dict[str, str]:
        """Configuration of the log, and of the topics between a member and the processor; may hold secrets."""
        log = {"log.path": str(self.log)} if isinstance(self.log, str) else self.kafka.client_properties()
        names = ("request.topic.name", "response.topic.name")
        return {**log, **{key: self.processor.value(key) for key in names}}

    def consumer_config(self, properties: Mapping[str, object] | None = None) -> ShareConsumerConfig:
        """The configuration of one consumer: its own properties over the settings.

        Raises:
            ConfigurationError: a property is wrong, or group.id is set nowhere.
        """
        return ShareConsumerConfig.from_mapping({**self.consumer, **(properties or {})})

    def worker_config(self, properties: Mapping[str, object] | None = None) -> WorkerConfig:
        """The configuration of one worker: its own properties over the settings.

        Raises:
            ConfigurationError: a property is wrong, or group.id or topics is set nowhere.
        """
        return WorkerConfig.from_mapping({**self.worker, **(properties or {})})


def load_settings(path: Path | None, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Settings:
    """Settings by precedence: flags, then environment, then YAML file, then defaults.

    Args:
        path: the YAML file; None for none.
        environ: environment variables; those without the prefix `SHAREGROUP_` are not looked at.
        overrides: the arguments of `--set` flags, each `key=value`; of a repeated key the last one counts.

    Raises:
        ConfigurationError: the file cannot be read, or a key or value is wrong; names key, value, bound and origin.
    """
    found: dict[str, dict[str, Setting]] = {section: {} for section in SECTIONS}
    groups: dict[str, dict[str, Setting]] = {}
    if path is not None:
        _read_yaml(path, found, groups)
    for source in (_read_environment(environ), _read_flags(overrides)):
        given = list(source)
        _forget_other_log(found, {place for place, _ in given})
        for place, setting in given:
            found[place.section][place.key] = setting
    _check_one_log(found)
    broker = _build(BrokerConfig, found["broker"])
    for settings in groups.values():
        check_overrides(broker, _values(settings), _origins(settings))
    return Settings(
        processor=_build(ProcessorConfig, found["processor"]),
        broker=broker,
        groups={group_id: _values(settings) for group_id, settings in groups.items()},
        consumer=_defaults(ShareConsumerConfig, found["consumer"]),
        worker=_defaults(WorkerConfig, found["worker"]),
        kafka=_build(KafkaConfig, found["kafka"]),
    )


def _forget_other_log(found: Mapping[str, dict[str, Setting]], given: Collection[Place]) -> None:
    """A log that a later source names stands in the place of one that an earlier source has named."""
    if any(place in given for place in _LOGS):
        for place in _LOGS:
            found[place.section].pop(place.key, None)


def _check_one_log(found: Mapping[str, Mapping[str, Setting]]) -> None:
    path, servers = (place.key for place in _LOGS)
    given = [(place.key, found[place.section].get(place.key)) for place in _LOGS]
    # No brokers is no Kafka; no path is a mistake, which the section finds.
    named = [setting for key, setting in given if setting is not None and (setting.value or key == path)]
    if not named:
        raise ConfigurationError(
            f"Missing required configuration {path} or {servers}, which have no default value.",
            f"Set {servers} for Kafka, or {path} for the embedded log.",
        )
    if len(named) > 1:
        origins = ", ".join(setting.origin for setting in named)
        raise ConfigurationError(f"{path} and {servers} are both set (from {origins}).", "All programs have one log.")


def _values(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


def _origins(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.origin for key, setting in settings.items()}


def _build(config: type[AnyConfig], settings: Mapping[str, Setting]) -> AnyConfig:
    return config.from_mapping(_values(settings), _origins(settings))


def _defaults(config: type[Config], settings: Mapping[str, Setting]) -> dict[str, str]:
    # What each program sets for itself is not known yet: any name stands in for it, so that the rest is checked now.
    stand_ins = dict.fromkeys(config.required_key_names(), "unset")
    config.from_mapping({**stand_ins, **_values(settings)}, _origins(settings))
    return _values(settings)


def _read_environment(environ: Mapping[str, str]) -> Iterator[tuple[Place, Setting]]:
    refused = (key for config in SECTIONS.values() for key in config.refused)
    keys = {environment_variable(key): key for key in (*FLAT_KEYS, *GroupConfig.key_names(), *refused)}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in keys:
            raise ConfigurationError(f"Unknown environment variable {variable}.", nearest(variable, keys))
        origin = f"environment variable {variable}"
        yield _place(keys[variable], origin), Setting(value.strip(), origin)


def _read_flags(overrides: Sequence[str]) -> Iterator[tuple[Place, Setting]]:
    for override in overrides:
        key, equals, value = override.partition("=")
        shown = f"{key}={HIDDEN}" if is_secret_key(key.strip()) else override
        origin = f"flag --set {shown}"
        if not equals:
            raise ConfigurationError(f"A setting has the form key=value (from {origin}).")
        yield _place(key.strip(), origin), Setting(value.strip(), origin)


def _place(key: str, origin: str) -> Place:
    if key in FLAT_KEYS:
        return FLAT_KEYS[key]
    section, _, rest = key.partition(".")
    if section in SECTIONS and rest in SECTIONS[section].key_names():
        return Place(section, rest)
    for config in SECTIONS.values():
        if key in config.refused:
            raise config.unknown_key(key, {key: origin})
    if key in GroupConfig.key_names():
        remedy = f"Set it under {GROUPS}, then the group id, in the YAML file."
        raise ConfigurationError(f"{key} belongs to one group (from {origin}).", remedy)
    raise ConfigurationError(f"Unknown configuration {key} (from {origin}).", nearest(key, FLAT_KEYS))


def _read_yaml(path: Path, found: dict[str, dict[str, Setting]], groups: dict[str, dict[str, Setting]]) -> None:
    file = str(path)
    for key, node, origin in _entries(_yaml_root(path), file):
        if key == GROUPS:
            for group_id, group_node, _ in _entries(node, file):
                groups[group_id] = {
                    name: _setting(name, value, f"{where}, group {group_id}")
                    for name, value, where in _entries(group_node, file)
                }
        elif key in SECTIONS:
            for name, value, where in _entries(node, file):
                if name not in SECTIONS[key].key_names():
                    raise SECTIONS[key].unknown_key(name, {name: where})
                _add(found[key], name, _setting(name, value, where))
        else:
            place = _place(key, origin)
            _add(found[place.section], place.key, _setting(key, node, origin))


def _add(settings: dict[str, Setting], key: str, setting: Setting) -> None:
    if key in settings:
        raise ConfigurationError(f"{key} is set twice (from {settings[key].origin}, {setting.origin}).")
    settings[key] = setting


def _yaml_root(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"The configuration file {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"The configuration file {path} is not YAML: {error}.") from None


def _entries(node: yaml.Node | None, file: str) -> Iterator[tuple[str, yaml.Node, str]]:
    """Key, value and origin of each entry of a mapping; of none for a section in which nothing is set."""
    if node is None or node.tag == "tag:yaml.org,2002:null":
        return
    if not isinstance(node, yaml.MappingNode):
        raise ConfigurationError(f"Keys and values are expected (from {file} line {node.start_mark.line + 1}).")
    seen: dict[str, str] = {}
    for key_node, value in node.value:
        origin = f"{file} line {key_node.start_mark.line + 1}"
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode) or not key:
            raise ConfigurationError(f"A key must be a name (from {origin}).")
        if key in seen:
            raise ConfigurationError(f"{key} is set twice (from {seen[key]}, {origin}).")
        seen[key] = origin
        yield key, value, origin


def _setting(key: str, node: yaml.Node, origin: str) -> Setting:
    """The text of a scalar as written, or of a list of scalars with commas between them."""
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(item, yaml.ScalarNode) for item in items):
        raise ConfigurationError(f"{key} must be one value or a list of values (from {origin}).")
    return Setting(",".join(item.value for item in items), origin)
