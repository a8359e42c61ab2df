"""Properties as Kafka's tools take them: `key=value` flags, and files of such lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from sharegroup.errors import ConfigurationError


def parse_pairs(pairs: Iterable[str]) -> dict[str, str]:
    """Key → value of `key=value` texts; of a repeated key the last one counts.

    Raises:
        ConfigurationError: a text has no `=`.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigurationError(f"{pair!r} is no property.", "Write it as key=value.")
        found[key.strip()] = value
    return found


def read_properties(path: Path | None, pairs: Iterable[str]) -> dict[str, str]:
    """The properties of a file, and over them those of flags.

    Args:
        path: lines of `key=value`; empty ones and those that begin with `#` or `!` are passed over. None for no file.
        pairs: the arguments of the flags.

    Raises:
        ConfigurationError: the file cannot be read, or a line or an argument has no `=`.
    """
    lines: list[str] = []
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"The file {path} cannot be read: {error}.") from error
    from_file = parse_pairs(line for line in lines if line and not line.startswith(("#", "!")))
    return {**from_file, **parse_pairs(pairs)}


def check_known(properties: Mapping[str, str], known: Iterable[str], what: str) -> None:
    """Refuse a property that nobody would look at.

    Raises:
        ConfigurationError: a key is none of the known ones.
    """
    names = list(known)
    for key in properties:
        if key not in names:
            raise ConfigurationError(f"Unknown {what} property {key}.", f"Known are: {', '.join(names)}.")


def as_bool(properties: Mapping[str, str], key: str, default: bool) -> bool:
    """A property that is `true` or `false`.

    Raises:
        ConfigurationError: it is neither.
    """
    text = properties.get(key, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"The property {key} is {text!r}.", "It must be true or false.")
    return text == "true"
