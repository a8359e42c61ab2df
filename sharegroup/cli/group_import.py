"""The import of a group from Kafka, in an order that leaves nothing half-applied when it is refused.

1. The states of the share-partitions are imported: a group with members is refused here.
2. The configuration is set, if any state was imported. The processor may refuse it, if its limits are not those that it
   was checked by, or not answer: then it is reported, and all of it can be repeated, since a state replaces the one
   before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.client.admin import AdminClient
from sharegroup.client.group_results import TopicPartition
from sharegroup.client.imported_partition import ImportedPartition
from sharegroup.errors import ApiError

CONFIGURATION = "configuration"
"""Name of the configuration among the failures; share-partitions have topic-partition."""


@dataclass(frozen=True, slots=True)
class GroupImport:
    """The result of an import.

    Attributes:
        failures: what was refused → its error: share-partitions by topic-partition, and `CONFIGURATION`.
        is_configured: False if the configuration was not set: it was refused, or no state was imported.
    """

    failures: Mapping[str, ApiError] = field(default_factory=dict)
    is_configured: bool = True


def import_group(
    admin: AdminClient,
    group_id: str,
    states: Mapping[TopicPartition, ImportedPartition],
    config: Mapping[str, str],
    timeout_s: float,
) -> GroupImport:
    """Begin a group with the state and the configuration of another system.

    Args:
        admin: a client of the processor.
        group_id: the group, which must have no members.
        states: (topic, partition) → its state.
        config: the group's own configuration there; the other keys stay as they are.
        timeout_s: how long to wait for each answer of the processor.

    Raises:
        NonEmptyGroupError: the group has members; the configuration was not changed.
    """
    results = admin.import_share_partitions(group_id, states, timeout_s)
    failures = {f"{topic}-{partition}": error for (topic, partition), error in results.items() if error is not None}
    is_any_imported = len(failures) < len(results) or not results
    if config and is_any_imported:
        try:
            admin.alter_group_config(group_id, config, timeout=timeout_s)
        except ApiError as error:
            failures[CONFIGURATION] = error
    return GroupImport(failures, is_any_imported and CONFIGURATION not in failures)
