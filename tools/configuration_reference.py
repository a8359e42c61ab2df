"""The configuration reference in docs/configuration.md, generated from the models.

`make docs` writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from sharegroup.config.broker import LIMITED_SETTINGS, BrokerConfig
from sharegroup.config.connections import ALIASES, CALLBACKS, PASSED
from sharegroup.config.group import GroupConfig
from sharegroup.config.kafka import KafkaConfig
from sharegroup.config.loader import environment_variable
from sharegroup.config.members import AdminConfig, ShareConsumerConfig, WorkerConfig
from sharegroup.config.model import Allowed, Config
from sharegroup.config.processor_config import ProcessorConfig
from tools.markdown import table

_INTRODUCTION = f"""# Configuration

Keys have Kafka's names, defaults and bounds where Kafka has the key; [differences](differences.md) says where they
differ. A wrong key or value is an error that names the key, the value, its bound and where it came from.

A value is taken from the first of these that has it:

1. a flag: `--set max.poll.records=100`;
2. an environment variable: `SHAREGROUP_` and the key in capitals with underscores for dots,
   like `{environment_variable("max.poll.records")}`; an unknown variable with this prefix is an error;
3. the YAML file, in which keys may be nested under `processor`, `kafka`, `broker`, `consumer` or `worker`
   (`sharegroup init` writes one, `conf/kafka.yaml` is another example);
4. the default.

In flags, and at the top of the YAML file, a key may be written with its section before it, like
`kafka.bootstrap.servers`. Of `log.path` and `bootstrap.servers` one is set: that which the first of these sources has.

Keys that workers share with consumers are the consumer's in flags, in the environment and at the top of the YAML
file; the worker's are written there with `worker.` before them, like `worker.max.poll.records`. Under `worker` in the
YAML file the prefix is left out, except in `worker.ranges.in.flight`, which begins with it.
"""

_GROUPS = """The keys of one group. The YAML file has under `groups` and the group id what a group starts with:
it is applied when a processor starts whose state table does not know the group. From then on `sharegroup groups
configure` changes it, and as in Kafka what was changed persists: a start logs a warning that names the keys of the file
which are not in force, and the command that applies them. A key that is not set has the value of the broker's key.
Values outside of the broker's limits are refused when they are set; when the limits change later, stored values are
capped to them.
"""


def configuration_reference() -> str:
    """Return the text of docs/configuration.md."""
    sections = (
        (_INTRODUCTION,),
        _section("Processor", _description(ProcessorConfig), ProcessorConfig),
        _section("Kafka", _description(KafkaConfig), KafkaConfig),
        _section("Broker", _description(BrokerConfig), BrokerConfig),
        _section("Groups", _GROUPS, GroupConfig),
        _section("Consumer", _description(ShareConsumerConfig), ShareConsumerConfig),
        _section("Worker", _description(WorkerConfig), WorkerConfig),
        _section("Admin client", _description(AdminConfig), AdminConfig),
        _passed(),
        _keys("Keys of Kafka's Java clients that are written otherwise here", KafkaConfig.refused),
        _keys("Broker keys of Kafka, and of its drafts, that have no meaning here", BrokerConfig.refused),
        _keys("Group keys of Kafka that have no meaning here", GroupConfig.refused),
        _keys("Consumer keys of Kafka that members of a share group cannot set", ShareConsumerConfig.refused),
        _keys("Consumer keys of Kafka that are accepted without effect", ShareConsumerConfig.without_effect),
    )
    return "\n".join(line for section in sections for line in section)


def _description(config: type[Config]) -> str:
    lines = (config.__doc__ or "").strip().split("\n")
    return "\n".join(line.strip() for line in lines) + "\n"


def _section(title: str, text: str, config: type[Config]) -> Iterator[str]:
    yield f"## {title}\n\n{text}"
    rows = (
        (
            f"`{field.alias}`",
            _default(str(field.alias), field),
            _bounds(str(field.alias), field),
            str(field.description),
        )
        for field in config.model_fields.values()
    )
    yield from table(("Key", "Default", "Bounds", "Meaning"), rows)


def _keys(title: str, keys: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield from table(("Key", "Why, or what to set instead"), ((f"`{key}`", why) for key, why in keys.items()))


def _passed() -> Iterator[str]:
    yield "## Keys of librdkafka that connections of clients take\n"
    yield (
        "`ShareConsumer` and `AdminClient` pass these keys to each client of librdkafka that they have for Kafka, as "
        "they are;\nlibrdkafka checks the values. With the embedded log they have no effect.\n"
    )
    yield from table(("Key",), ((f"`{key}`",) for key in sorted(PASSED)))
    yield "These keys have another name here:\n"
    yield from table(("librdkafka's key", "Key"), ((f"`{key}`", f"`{own}`") for key, own in ALIASES.items()))
    yield "The values of these keys are Python objects:\n"
    yield from table(("Key", "What it gets"), ((f"`{key}`", what) for key, what in CALLBACKS.items()))


def _default(key: str, field: FieldInfo) -> str:
    for setting in LIMITED_SETTINGS:
        if key == setting.group_key:
            return f"`{setting.default_key}`"
    if field.is_required():
        return "required"
    if field.default in ("", (), None, SecretStr("")):
        return "empty"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _bounds(key: str, field: FieldInfo) -> str:
    for setting in LIMITED_SETTINGS:
        if key == setting.group_key:
            return f"`{setting.min_key}` to `{setting.max_key}`"
    for metadata in field.metadata:
        if isinstance(metadata, Allowed):
            return metadata.text
    if get_origin(field.annotation) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(field.annotation))
    if field.annotation is bool:
        return "`true` or `false`"
    lowest = next((metadata.ge for metadata in field.metadata if hasattr(metadata, "ge")), None)
    highest = next((metadata.le for metadata in field.metadata if hasattr(metadata, "le")), None)
    if lowest is None:
        return "any text"
    return f"at least {lowest}" if highest is None else f"{lowest} to {highest}"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(configuration_reference(), encoding="utf-8")
