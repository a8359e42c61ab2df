"""Errors of object stores, and what to do about them; known without the library for stores, which may be missing."""

from __future__ import annotations

import re
from collections.abc import Mapping

_COLOURS = re.compile(r"\x1b\[[0-9;]*m|↳")
_LONGEST_REASON = 600

_REMEDIES: Mapping[tuple[str, ...], str] = {
    ("NoSuchBucket", "ContainerNotFound", "bucket does not exist"): "Create the bucket, or correct state.table.path.",
    (
        *("InvalidAccessKeyId", "SignatureDoesNotMatch", "AuthenticationFailed", "AuthorizationFailure"),
        *("AccessDenied", "403 Forbidden", "401 Unauthorized", "169.254.169.254", "CredentialsNotLoaded"),
    ): "Check the credentials in state.table.storage.* or in the environment, and that they may read, write, list and "
    "delete below the table's prefix.",
    ("500 ", "502 ", "503 ", "SlowDown", "ServerBusy"): "The store fails or is overloaded: start the processor again "
    "when it has recovered; a greater processor.commit.interval.ms needs fewer requests.",
    (
        *("error sending request", "timed out", "deadline", "connect", "HTTP error", "error decoding response"),
    ): "Check that the store can be reached from here (endpoint, network, proxy), then start the processor again; "
    "state.table.storage.timeout bounds one request.",
}


class StoreError(OSError):
    """A request to an object store failed; after a put, the object may nevertheless be there."""


def reason_of(error: Exception) -> str:
    """Return the text of a store's error in one line, without the colours and structures of the library."""
    text = _COLOURS.sub("", str(error)).partition("\n\nDebug source")[0]
    return " ".join(text.split())[:_LONGEST_REASON].rstrip(".")


def store_explanation(error: Exception) -> tuple[str, str]:
    """Return the reason of an error of a table on an object store, in one line, and the remedy."""
    return reason_of(error), _remedy(str(error))


def _remedy(text: str) -> str:
    for fragments, remedy in _REMEDIES.items():
        if any(fragment in text for fragment in fragments):
            return remedy
    return (
        "Check the store and the table's prefix with the store's own tools; restore the table if objects are missing."
    )
