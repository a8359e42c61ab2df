"""How the local log stores record headers: one JSON text of [key, base64 or null] pairs, NULL when there are none."""

from __future__ import annotations

import base64
import json

from sharegroup.logs.port import Headers


def encode_headers(headers: Headers) -> bytes | None:
    """The stored form of headers."""
    if not headers:
        return None
    pairs = [(key, None if value is None else base64.b64encode(value).decode("ascii")) for key, value in headers]
    return json.dumps(pairs, separators=(",", ":")).encode()


def decode_headers(stored: bytes | None) -> Headers:
    """The headers that `encode_headers` stored."""
    if stored is None:
        return ()
    return tuple((key, None if value is None else base64.b64decode(value)) for key, value in json.loads(stored))
