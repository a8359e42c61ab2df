"""The partition of a key; computed here and sent explicitly, because client partitioners disagree."""

from __future__ import annotations

import zlib

from sharegroup.errors import ConfigurationError


def partition_for(key: bytes | str | None, partition_count: int) -> int:
    """Return the CRC-32 of the key modulo the partition count.

    A group id gives the request partition, a member id the response partition, a record key the partition that
    producers use by default. Text counts as its UTF-8 bytes, no key as the empty key.

    Raises:
        ConfigurationError: the partition count is below 1.
    """
    if partition_count < 1:
        raise ConfigurationError(f"The partition count is {partition_count}.", "It must be at least 1.")
    encoded = key.encode() if isinstance(key, str) else key or b""
    return zlib.crc32(encoded) % partition_count
