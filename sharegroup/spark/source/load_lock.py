"""One reader at a time for what one `load()` returned: two would be two members, each with other records.

Spark starts the process of a reader for each use of a stream in the plan of a query, before any of them acquires
records. A union with itself uses it once. A join with itself uses it twice, and would find no pair; two queries of one
DataFrame would each take records that the other one never sees. In both cases the records would be accepted. The two
processes cannot learn whether they belong to one query, so both cases are refused.
"""

from __future__ import annotations

import atexit
from uuid import uuid4

from sharegroup.errors import ConfigurationError
from sharegroup.spark.source.folder import MemberFolder

_PREDECESSOR_TIMEOUT_S = 10.0
"""Longer than it takes the process of a stopped query to leave the group and end."""


def new_load_id() -> str:
    """Return the name of one `load()`."""
    return f"load-{uuid4().hex}"


def lock_load(load_id: str) -> None:
    """Make this process the one reader of a load until it ends.

    Raises:
        ConfigurationError: another process on this machine reads it.
    """
    folder = MemberFolder(load_id)
    if not folder.acquire(_PREDECESSOR_TIMEOUT_S):
        raise ConfigurationError(
            "A stream of one load() is read twice at the same time: by a join with itself, or by two queries. Each "
            "reader would be a member of the group with other records, so that a join finds no pair, and a query lacks "
            "what the other one takes.",
            "Join the batch with itself in foreachBatch; call load() for each query.",
        )
    # It keeps the lock as long as the process lives, too.
    atexit.register(folder.release, keeps_acknowledgements=False)
