"""API keys, and which actor of a group receives each kind of message (spec 003; keys from 10000 on are ours)."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class ActorRole(StrEnum):
    """The two deterministic actors of a group."""

    COORDINATOR = "coordinator"
    LEADER = "leader"


class ApiKey(IntEnum):
    """What a message of the request log or the response log is."""

    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    DELETE_SHARE_GROUP_STATE = 86
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


RECIPIENTS: dict[ApiKey, tuple[ActorRole, ...]] = {
    ApiKey.DELETE_GROUPS: (ActorRole.COORDINATOR,),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (ActorRole.COORDINATOR,),
    ApiKey.SHARE_GROUP_HEARTBEAT: (ActorRole.COORDINATOR,),
    ApiKey.SHARE_FETCH: (ActorRole.LEADER,),
    ApiKey.SHARE_ACKNOWLEDGE: (ActorRole.LEADER,),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (ActorRole.LEADER,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (ActorRole.LEADER,),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (ActorRole.COORDINATOR,),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (ActorRole.COORDINATOR,),
    ApiKey.LOG_OFFSETS: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.TICK: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.SHARE_GROUP_STATE_INITIALIZED: (ActorRole.COORDINATOR,),
    ApiKey.RESUME_SHARE_GROUP: (ActorRole.COORDINATOR, ActorRole.LEADER),
    ApiKey.SHARE_GROUP_CONFIG_CHANGED: (ActorRole.LEADER,),
    ApiKey.DLQ_WRITTEN: (ActorRole.LEADER,),
    ApiKey.DLQ_STATUS_CHANGED: (ActorRole.LEADER,),
    ApiKey.SHARE_GROUP_STATE_DELETED: (ActorRole.COORDINATOR,),
    ApiKey.PROCESSOR_STARTED: (),
}
"""Message kind → the actors that receive it; the one that answers comes first."""

INTERNAL_KEYS = frozenset(
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
    }
)
"""Kinds of internal messages: the processor sends them to itself; they are never answered."""

LATEST_VERSION: dict[ApiKey, int] = dict.fromkeys(ApiKey, 1)
"""The api_version this release speaks; any other is answered UNSUPPORTED_VERSION."""
