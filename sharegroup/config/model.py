"""The base of all configurations: dotted keys, Kafka's value syntax, and errors that name key, value and bound.

A value may be the string that Kafka's tools, an environment variable or a properties file carry, or a Python
value of the right type. The texts of errors follow Kafka's `ConfigDef`, so that they can be looked up.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from sharegroup.errors import ConfigurationError, ContradictionError, MissingConfigurationError

_logger = logging.getLogger(__name__)

INT_MAX = 2**31 - 1
"""Largest value of Kafka's configuration type INT."""

LONG_MAX = 2**63 - 1
"""Largest value of Kafka's configuration type LONG."""

NO_ORIGINS: Mapping[str, str] = {}

HIDDEN = "[hidden]"
"""The text in place of a secret in errors."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Metadata of a field: its acceptable values in words, where the type alone does not say them."""

    text: str


def attribute_name(key: str) -> str:
    """Return the Python attribute of a dotted key."""
    return key.replace(".", "_")


def invalid_value(reason: str) -> PydanticCustomError:
    """Return the error of a validator of one value."""
    return PydanticCustomError("value", "{reason}", {"reason": reason})


def invalid_relation(reason: str, *keys: str) -> PydanticCustomError:
    """Return the error of a validator for values of several keys that contradict each other."""
    return PydanticCustomError("relation", "{reason}", {"reason": reason, "keys": keys})


def order_text(key: str, value: int, relation: str, bound_key: str, bound: int) -> str:
    """Return the text for a value on the wrong side of another key's value; `relation` is like "greater than"."""
    return f"{key} must be {relation} {bound_key} ({bound}), not {value}"


def _parse_int(value: object) -> int:
    return _parse_number(value, INT_MAX, "INT")


def _parse_long(value: object) -> int:
    return _parse_number(value, LONG_MAX, "LONG")


def _parse_number(value: object, highest: int, name: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,19}", value):
        value = int(value)
    if type(value) is not int or not -highest - 1 <= value <= highest:
        raise invalid_value(f"Not a number of type {name}")
    return value


def _parse_bool(value: object) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower())
    if not isinstance(value, bool):
        raise invalid_value("Expected value to be either true or false")
    return value


def parse_list(value: object) -> object:
    """Return the items of a comma-separated text; other values as they are."""
    return tuple(item.strip() for item in value.split(",") if item.strip()) if isinstance(value, str) else value


def is_topic_name(name: str) -> bool:
    """Return True if Kafka accepts the name for a topic."""
    return name not in (".", "..") and re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) is not None


def check_topic_name(name: str) -> str:
    """Return the name if Kafka accepts it for a topic, else raise an error."""
    if not is_topic_name(name):
        raise invalid_value("A topic name has 1 to 249 letters, digits, '.', '_' or '-', and is neither '.' nor '..'")
    return name


Int = Annotated[int, BeforeValidator(_parse_int)]
Long = Annotated[int, BeforeValidator(_parse_long)]
Bool = Annotated[bool, BeforeValidator(_parse_bool)]
NonEmpty = Annotated[str, Field(min_length=1), Allowed("not empty")]
TopicName = Annotated[str, AfterValidator(check_topic_name), Allowed("a topic name")]
TopicNames = Annotated[
    tuple[TopicName, ...], BeforeValidator(parse_list), Field(min_length=1), Allowed("topic names, comma-separated")
]


def nearest(key: str, candidates: Iterable[str]) -> str:
    """Return a remedy for an unknown key: the known key that is most like it."""
    matches = difflib.get_close_matches(key, list(candidates), n=1)
    return f"Did you mean {matches[0]}?" if matches else "All keys are in docs/configuration.md."


def from_origins(keys: Iterable[str], origins: Mapping[str, str]) -> str:
    """Return the origins of the values of these keys, in brackets; empty when none is known."""
    known = [origins[key] for key in keys if key in origins]
    return f" (from {', '.join(known)})" if known else ""


class Config(BaseModel):
    """Base of all configurations: frozen; each attribute is a dotted key with underscores for dots.

    Both ways to make one raise `ConfigurationError`, never an error of pydantic's: by attribute names, for
    programs (`BrokerConfig(group_share_max_size=10)`), and by keys, for everything that comes from outside
    (`from_mapping`).
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=lambda name: name.replace("_", "."),
        populate_by_name=True,
    )

    refused: ClassVar[Mapping[str, str]] = {}
    """Keys that Kafka knows and this configuration refuses → the reason, or the key to set instead."""
    refusal: ClassVar[str] = "has no meaning here"
    """The text after a refused key in the error, without the full stop."""

    without_effect: ClassVar[Mapping[str, str]] = {}
    """Keys that Kafka knows and this configuration accepts without an effect → the reason."""

    families: ClassVar[Mapping[str, Collection[str]]] = {}
    """Keys that stand for several, each of which is written with its own name after it, in any case → those names."""

    def __init__(self, /, **values: object) -> None:
        """Make a configuration of attributes, with defaults for the rest."""
        self._fill(values, NO_ORIGINS)

    @classmethod
    def from_mapping(cls, values: Mapping[str, object], origins: Mapping[str, str] = NO_ORIGINS) -> Self:
        """Make a configuration of values by key, with defaults for the rest.

        Args:
            values: dotted key → value; strings may have blanks around them.
            origins: dotted key → origin of the value, for error messages.

        Raises:
            ConfigurationError: a key is unknown, refused or missing, or a value is not acceptable.
        """
        for key in values:
            if not cls.accepts(key):
                raise cls.unknown_key(key, origins)
            if key in cls.without_effect:
                _logger.warning("%s has no effect. %s", key, cls.without_effect[key])
        known = {k: v.strip() if isinstance(v, str) else v for k, v in values.items() if k not in cls.without_effect}
        for family in cls.families:
            members = {key: known.pop(key) for key in list(known) if key.startswith(f"{family}.")}
            if members:
                known[family] = {key[len(family) + 1 :].lower(): value for key, value in members.items()}
        config = cls.__new__(cls)
        config._fill(known, origins)
        return config

    @classmethod
    @cache
    def key_names(cls) -> tuple[str, ...]:
        """Return all keys, dotted; those of families with each name that may follow."""
        single = [str(field.alias) for field in cls.model_fields.values()]
        members = [f"{family}.{name}" for family, names in cls.families.items() for name in names]
        return (*(key for key in single if key not in cls.families), *members)

    @classmethod
    def normalized(cls, key: str) -> str:
        """Return a key as `key_names()` has it: the name in a family may be written in any case."""
        return next(
            (f"{family}.{key[len(family) + 1 :].lower()}" for family in cls.families if key.startswith(f"{family}.")),
            key,
        )

    @classmethod
    def accepts(cls, key: str) -> bool:
        """Return True for one of `key_names()`, and for a key that is accepted without an effect."""
        return cls.normalized(key) in cls.key_names() or key in cls.without_effect

    @classmethod
    def required_key_names(cls) -> tuple[str, ...]:
        """Return the keys without a default, dotted."""
        return tuple(str(field.alias) for field in cls.model_fields.values() if field.is_required())

    @classmethod
    def unknown_key(cls, key: str, origins: Mapping[str, str] = NO_ORIGINS) -> ConfigurationError:
        """Return the error for a key that is not one of `key_names()`."""
        origin = from_origins([key], origins)
        if key in cls.refused:
            return ConfigurationError(f"{key} {cls.refusal}{origin}.", cls.refused[key])
        return ConfigurationError(
            f"Unknown configuration {key}{origin}.", nearest(cls.normalized(key), cls.key_names())
        )

    def value(self, key: str) -> Any:
        """Return the value of a dotted key."""
        return getattr(self, attribute_name(key))

    def _fill(self, values: Mapping[str, object], origins: Mapping[str, str]) -> None:
        try:
            BaseModel.__init__(self, **values)
        except ValidationError as error:
            # Without the cause: pydantic's error would show the same again, and does not always pickle.
            raise self._explain(error.errors(include_url=False)[0], origins) from None

    @classmethod
    def _explain(cls, error: ErrorDetails, origins: Mapping[str, str]) -> ConfigurationError:
        context = error.get("ctx", {})
        if error["type"] == "relation":
            return ContradictionError(f"{error['msg']}{from_origins(context['keys'], origins)}.")
        attribute = attribute_name(str(error["loc"][0]))
        key = attribute.replace("_", ".")
        match error["type"]:
            case "extra_forbidden":
                return cls.unknown_key(key, origins)
            case "missing":
                message = f"Missing required configuration {key} which has no default value."
                return MissingConfigurationError(message, f"Set {key}: {cls.model_fields[attribute].description}", key)
            case "greater_than_equal":
                reason = f"Value must be at least {context['ge']}"
            case "less_than_equal":
                reason = f"Value must be no more than {context['le']}"
            case "literal_error":
                allowed = filter(None, get_args(cls.model_fields[attribute].annotation))
                reason = f"String must be one of: {', '.join(allowed)}"
            case "string_too_short" | "too_short":
                reason = "Value must not be empty"
            case _:
                reason = error["msg"]
        is_secret = attribute in cls.model_fields and cls.model_fields[attribute].annotation is SecretStr
        shown = HIDDEN if is_secret else error["input"]
        message = f"Invalid value {shown} for configuration {key}: {reason}"
        return ConfigurationError(f"{message}{from_origins([key], origins)}.")
