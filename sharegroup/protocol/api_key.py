"""API keys, and the actor of a group that receives each kind of message (spec 003; keys from 10000 on are ours)."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ActorRole(StrEnum):
    """The two deterministic actors of a group."""

    COORDINATOR = "coordinator"
    LEADER = "leader"


class ApiKey(IntEnum):
    """Kind of a message of the request log or the response log."""

    LIST_GROUPS = 16
    DESCRIBE_CONFIGS = 32
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    DELETE_SHARE_GROUP_STATE = 86
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    LOG_OFFSETS = 10000
    TICK = 10001
    SHARE_GROUP_STATE_INITIALIZED = 10002
    RESUME_SHARE_GROUP = 10003
    SHARE_GROUP_CONFIG_CHANGED = 10004
    DLQ_WRITTEN = 10005
    DLQ_STATUS_CHANGED = 10006
    SHARE_GROUP_STATE_DELETED = 10007
    PROCESSOR_STARTED = 10008
    PAUSE_SHARE_GROUP = 10009
    MEMBER_ALIVE = 10010
    MEMBER_ENDED = 10011
    REDRIVE_SHARE_GROUP_RECORDS = 10012
    STANDBY_PROBE = 10013
    RESOLVE_WRITE = 10014


RECIPIENTS: dict[int, tuple[ActorRole, ...]] = {
    ApiKey.LIST_GROUPS: (),
    ApiKey.DESCRIBE_CONFIGS: (ActorRole.COORDINATOR,),
    ApiKey.DELETE_GROUPS: (ActorRole.LEADER, ActorRole.COORDINATOR),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ActorRole.COORDINATOR,),
    ApiKey.SHARE_GROUP_HEARTBEAT: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.SHARE_GROUP_DESCRIBE: (ActorRole.COORDINATOR,),
    ApiKey.SHARE_FETCH: (ActorRole.LEADER,),
    ApiKey.SHARE_ACKNOWLEDGE: (ActorRole.LEADER,),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (ActorRole.LEADER,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (ActorRole.LEADER,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (ActorRole.LEADER,),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (ActorRole.LEADER, ActorRole.COORDINATOR),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (ActorRole.LEADER, ActorRole.COORDINATOR),
    ApiKey.LOG_OFFSETS: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.TICK: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.SHARE_GROUP_STATE_INITIALIZED: (ActorRole.COORDINATOR,),
    ApiKey.RESUME_SHARE_GROUP: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.SHARE_GROUP_CONFIG_CHANGED: (ActorRole.LEADER,),
    ApiKey.DLQ_WRITTEN: (ActorRole.LEADER,),
    ApiKey.DLQ_STATUS_CHANGED: (ActorRole.LEADER,),
    ApiKey.SHARE_GROUP_STATE_DELETED: (ActorRole.COORDINATOR,),
    ApiKey.PROCESSOR_STARTED: (),
    ApiKey.MEMBER_ALIVE: (ActorRole.LEADER,),
    ApiKey.MEMBER_ENDED: (ActorRole.LEADER, ActorRole.COORDINATOR),
    ApiKey.PAUSE_SHARE_GROUP: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.REDRIVE_SHARE_GROUP_RECORDS: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.STANDBY_PROBE: (),
    ApiKey.RESOLVE_WRITE: (ActorRole.LEADER,),
}
"""Message kind → the actors that receive it; the first one refuses it for all of them."""

INTERNAL_KEYS: frozenset[int] = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.LOG_OFFSETS,
        ApiKey.TICK,
        ApiKey.SHARE_GROUP_STATE_INITIALIZED,
        ApiKey.SHARE_GROUP_CONFIG_CHANGED,
        ApiKey.DLQ_WRITTEN,
        ApiKey.DLQ_STATUS_CHANGED,
        ApiKey.SHARE_GROUP_STATE_DELETED,
        ApiKey.PROCESSOR_STARTED,
        ApiKey.MEMBER_ENDED,
    }
)
"""Kinds of internal messages: the processor sends them to itself; they never get a response."""

DESCRIBING_KEYS: frozenset[int] = frozenset(
    {ApiKey.DESCRIBE_CONFIGS, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS}
)
"""Kinds of requests that read one group: they change nothing, and a quarantined group responds to them, too."""

LATEST_VERSION: dict[int, int] = dict.fromkeys(ApiKey, 1)
"""The api_version this release speaks; any other gets UNSUPPORTED_VERSION."""
