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
from sharegroup.config.group import GroupConfig, check_overrides
from sharegroup.config.kafka import KafkaConfig, is_secret_key
from sharegroup.config.members import ShareConsumerConfig, WorkerConfig
from sharegroup.config.model import HIDDEN, Config, from_origins, nearest
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import ConfigurationError, MissingConfigurationError

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


class SectionKey(NamedTuple):
    """A key of a section."""

    section: str
    key: str


class Setting(NamedTuple):
    """A value that was set, and its origin."""

    value: str
    origin: str


def _flat_keys() -> dict[str, SectionKey]:
    keys: dict[str, SectionKey] = {}
    for section, config in SECTIONS.items():
        for key in config.key_names():
            keys[f"{section}.{key}" if key in keys else key] = SectionKey(section, key)
    return keys


FLAT_KEYS: Mapping[str, SectionKey] = _flat_keys()
"""Every key that the environment and flags can set → its section and key there."""

_LOGS = (SectionKey("processor", "log.path"), SectionKey("kafka", "bootstrap.servers"))
"""The keys that name the log: one of them is set."""


def environment_variable(flat_key: str) -> str:
    """Return the environment variable that sets a flat key."""
    return ENVIRONMENT_PREFIX + flat_key.upper().replace(".", "_")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one program.

    Attributes:
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
        """The address of the log, as `open_log` takes it."""
        return self.kafka if self.kafka.bootstrap_servers else str(self.processor.log_path)

    @property
    def channel_properties(self) -> dict[str, str]:
        """Configuration of the log, and of the topics between a member and the processor; may hold secrets."""
        log = {"log.path": str(self.log)} if isinstance(self.log, str) else self.kafka.client_properties()
        names = ("request.topic.name", "response.topic.name")
        return {**log, **{key: self.processor.value(key) for key in names}}

    def consumer_config(self, properties: Mapping[str, object] | None = None) -> ShareConsumerConfig:
        """Return the configuration of one consumer: its own properties over the settings.

        Raises:
            ConfigurationError: a property is wrong, or group.id is set nowhere.
        """
        return ShareConsumerConfig.from_mapping({**self.consumer, **(properties or {})})

    def worker_config(self, properties: Mapping[str, object] | None = None) -> WorkerConfig:
        """Return the configuration of one worker: its own properties over the settings.

        Raises:
            ConfigurationError: a property is wrong, or group.id or topics is set nowhere.
        """
        return WorkerConfig.from_mapping({**self.worker, **(properties or {})})


def load_settings(path: Path | None, environ: Mapping[str, str], overrides: Sequence[str] = ()) -> Settings:
    """Load the settings: flags before environment variables before the YAML file before defaults.

    Args:
        path: the YAML file; None for none.
        environ: environment variables; those without the prefix `SHAREGROUP_` are ignored.
        overrides: the arguments of `--set` flags, each `key=value`; of a repeated key the last one counts.

    Raises:
        ConfigurationError: the file cannot be read, or a key or value is wrong; names key, value, bound and origin.
    """
    sections: dict[str, dict[str, Setting]] = {section: {} for section in SECTIONS}
    groups: dict[str, dict[str, Setting]] = {}
    if path is not None:
        _read_yaml(path, sections, groups)
    for source in (_read_environment(environ), _read_flags(overrides)):
        entries = list(source)
        _forget_other_log(sections, {key for key, _ in entries})
        for key, setting in entries:
            sections[key.section][key.key] = setting
    _check_one_log(sections)
    broker = _build(BrokerConfig, sections["broker"])
    for settings in groups.values():
        check_overrides(broker, _values(settings), _origins(settings))
    processor = _build(ProcessorConfig, sections["processor"])
    for group_id in groups:
        _check_served(processor, sections["processor"], group_id)
    return Settings(
        processor=processor,
        broker=broker,
        groups={group_id: _values(settings) for group_id, settings in groups.items()},
        consumer=_defaults(ShareConsumerConfig, sections["consumer"]),
        worker=_defaults(WorkerConfig, sections["worker"]),
        kafka=_build(KafkaConfig, sections["kafka"]),
    )


def _forget_other_log(sections: Mapping[str, dict[str, Setting]], keys: Collection[SectionKey]) -> None:
    """Remove the log of earlier sources if a later source names one."""
    if any(log in keys for log in _LOGS):
        for log in _LOGS:
            sections[log.section].pop(log.key, None)


def _check_one_log(sections: Mapping[str, Mapping[str, Setting]]) -> None:
    path, servers = (log.key for log in _LOGS)
    logs = [(log.key, sections[log.section].get(log.key)) for log in _LOGS]
    # No brokers is no Kafka; no path is a mistake, which the section finds.
    named = [setting for key, setting in logs if setting is not None and (setting.value or key == path)]
    if not named:
        raise MissingConfigurationError(
            f"Missing required configuration {path} or {servers}, which have no default value.",
            f"Set {servers} for Kafka, or {path} for the embedded log.",
            path,
        )
    if len(named) > 1:
        origins = ", ".join(setting.origin for setting in named)
        raise ConfigurationError(f"{path} and {servers} are both set (from {origins}).", "All programs have one log.")


def _check_served(processor: ProcessorConfig, settings: Mapping[str, Setting], group_id: str) -> None:
    key = "processor.group.pattern"
    if not processor.serves(group_id):
        raise ConfigurationError(
            f"Group {group_id} is configured under {GROUPS}, but {key} {processor.processor_group_pattern} does not "
            f"match it{from_origins([key], _origins(settings))}.",
            f"Configure the group where it is served, or let {key} match it.",
        )


def _values(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


def _origins(settings: Mapping[str, Setting]) -> dict[str, str]:
    return {key: setting.origin for key, setting in settings.items()}


def _build(config: type[AnyConfig], settings: Mapping[str, Setting]) -> AnyConfig:
    return config.from_mapping(_values(settings), _origins(settings))


def _defaults(config: type[Config], settings: Mapping[str, Setting]) -> dict[str, str]:
    # Required keys that each program sets itself get any value, so that the rest is checked now.
    stand_ins = dict.fromkeys(config.required_key_names(), "unset")
    config.from_mapping({**stand_ins, **_values(settings)}, _origins(settings))
    return _values(settings)


def _read_environment(environ: Mapping[str, str]) -> Iterator[tuple[SectionKey, Setting]]:
    refused = (key for config in SECTIONS.values() for key in config.refused)
    keys = {environment_variable(key): key for key in (*FLAT_KEYS, *GroupConfig.key_names(), *refused)}
    for variable, value in sorted(environ.items()):
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in keys:
            raise ConfigurationError(f"Unknown environment variable {variable}.", nearest(variable, keys))
        origin = f"environment variable {variable}"
        yield _section_key(keys[variable], origin), Setting(value.strip(), origin)


def _read_flags(overrides: Sequence[str]) -> Iterator[tuple[SectionKey, Setting]]:
    for override in overrides:
        key, equals, value = override.partition("=")
        shown = f"{key}={HIDDEN}" if is_secret_key(key.strip()) else override
        origin = f"flag --set {shown}"
        if not equals:
            raise ConfigurationError(f"A setting has the form key=value (from {origin}).")
        yield _section_key(key.strip(), origin), Setting(value.strip(), origin)


def _section_key(key: str, origin: str) -> SectionKey:
    for config in SECTIONS.values():
        key = config.normalized(key)
    if key in FLAT_KEYS:
        return FLAT_KEYS[key]
    section, _, rest = key.partition(".")
    if section in SECTIONS and SECTIONS[section].accepts(rest):
        return SectionKey(section, SECTIONS[section].normalized(rest))
    for config in SECTIONS.values():
        if key in config.refused:
            raise config.unknown_key(key, {key: origin})
    if key in GroupConfig.key_names():
        remedy = f"Set it under {GROUPS}, then the group id, in the YAML file."
        raise ConfigurationError(f"{key} belongs to one group (from {origin}).", remedy)
    raise ConfigurationError(f"Unknown configuration {key} (from {origin}).", nearest(key, FLAT_KEYS))


def _read_yaml(path: Path, sections: dict[str, dict[str, Setting]], groups: dict[str, dict[str, Setting]]) -> None:
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
                if not SECTIONS[key].accepts(name):
                    raise SECTIONS[key].unknown_key(name, {name: where})
                _add(sections[key], SECTIONS[key].normalized(name), _setting(name, value, where))
        else:
            target = _section_key(key, origin)
            _add(sections[target.section], target.key, _setting(key, node, origin))


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
    """Yield key, value and origin of each entry of a mapping; nothing for an empty section."""
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
    """Return the text of a scalar as written, or of a list of scalars with commas between them."""
    items = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(item, yaml.ScalarNode) for item in items):
        raise ConfigurationError(f"{key} must be one value or a list of values (from {origin}).")
    return Setting(",".join(item.value for item in items), origin)
