"""Paths on a local disk: the one place where a configured path or `file://` URI becomes a path."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator

from sharegroup.config.model import Allowed, invalid_value

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def _local_path(value: str) -> str:
    """Return the path that a value means.

    Raises:
        PydanticCustomError: it is empty, or a URI of another scheme or host.
    """
    if not value:
        raise invalid_value("Value must not be empty")
    if not _SCHEME.match(value):
        return value
    uri = urlsplit(value)
    if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost") or not uri.path.startswith("/"):
        raise invalid_value(
            "Only local disks are supported; use a path such as /var/lib/sharegroup/state, or file:///var/lib/…"
        )
    return unquote(uri.path)


LocalPath = Annotated[str, AfterValidator(_local_path), Allowed("a local path or a `file://` URI")]
"""A path on a local disk, without a scheme."""
