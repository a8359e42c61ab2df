"""From an address to a log."""

from __future__ import annotations

import re

from sharegroup.errors import ConfigurationError
from sharegroup.logs.local import LocalLog
from sharegroup.logs.port import Log

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_LOCAL_PREFIX = "local://"


def open_log(url_or_path: str, must_exist: bool = False) -> Log:
    """Open the log at an address: a path, or `local:///absolute/path`, is a local log.

    Args:
        url_or_path: the address.
        must_exist: whether a local log that is missing is an error; else it is created.

    Raises:
        ConfigurationError: the address is of no supported kind.
        LogError: there is no local log at that path, but it must exist.
        LogUnavailableError, LogCorruptedError, UnsupportedFormatVersionError: as `LocalLog`.
    """
    path = url_or_path.removeprefix(_LOCAL_PREFIX)
    is_local_url = path != url_or_path
    if (is_local_url and not path.startswith("/")) or not path or (not is_local_url and _SCHEME.match(path)):
        raise ConfigurationError(
            f"The log address {url_or_path!r} is of no supported kind.",
            "Give a path such as ./events.log, or local:///absolute/path.",
        )
    return LocalLog(path, must_exist=must_exist)
