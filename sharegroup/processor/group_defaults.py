"""What the YAML file says of groups: the configuration that a new group starts with.

As in Kafka, what was altered at runtime persists: a group that the state table knows keeps its configuration, and a
warning at start names the keys whose value in the file is not in force.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.event_log import Event
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import AlterGroupConfigRequest
from sharegroup.protocol.messages import RequestEnvelope, request
from sharegroup.state.fold import FoldedState

logger = logging.getLogger("sharegroup.processor")

GroupOverrides = Mapping[str, Mapping[str, str]]
"""Group id → key → value, as the section `groups` of the YAML file has them."""


def initial_configuration(folded: FoldedState, groups: GroupOverrides) -> list[RequestEnvelope]:
    """Return the messages that configure the groups which the state table does not know."""
    return [
        request(ApiKey.INCREMENTAL_ALTER_CONFIGS, group_id, AlterGroupConfigRequest(set=dict(overrides)))
        for group_id, overrides in sorted(groups.items())
        if overrides and _own_configuration(folded, group_id) is None
    ]


def log_configuration_not_in_force(folded: FoldedState, groups: GroupOverrides, broker: BrokerConfig) -> None:
    """Log a warning for each known group with other values in force than the file has."""
    for group_id, overrides in sorted(groups.items()):
        present = _own_configuration(folded, group_id)
        if present is None:
            continue
        in_force, wanted = effective_group_config(broker, present), effective_group_config(broker, overrides)
        keys = sorted(key for key in overrides if in_force.value(key) != wanted.value(key))
        if keys:
            pairs = ",".join(f"{key}={overrides[key]}" for key in keys)
            logger.warning(
                Event(
                    "group_configuration_not_in_force",
                    group=group_id,
                    keys=",".join(keys),
                    command="sharegroup groups configure "
                    f"--group {shlex.quote(group_id)} --alter --add-config {shlex.quote(pairs)}",
                )
            )


def _own_configuration(folded: FoldedState, group_id: str) -> Mapping[str, str] | None:
    """Return what a group has set for itself; None when the state table does not know the group."""
    group = folded.groups.get(group_id)
    return None if group is None or group.metadata.is_dead else group.metadata.config_overrides
