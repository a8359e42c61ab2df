"""`sharegroup migrate from-kafka`: a share group of a Kafka broker continues here.

The import has an order that leaves nothing half-applied when it is refused:

1. The states of the share-partitions are imported: a group with members is refused here.
2. The configuration is set, if any state was imported. The processor may refuse it, if its limits are not those of the
   check, or may not respond. The error is reported, and the whole import can be repeated, since a state replaces the
   one before.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

import click

from sharegroup.audit.kafka_state.kafka_groups import KafkaGroup, kafka_group
from sharegroup.cli.flags import Site, needs_log, timeout_option
from sharegroup.cli.kafka_flags import KafkaSource, needs_kafka
from sharegroup.cli.output import JSON, counted, end_with_failures, output_option, print_json, print_text, table
from sharegroup.client.admin import AdminClient
from sharegroup.client.group_results import TopicPartition
from sharegroup.client.imported_partition import ImportedPartition
from sharegroup.config.group import validate_overrides
from sharegroup.core.record_state import RecordState
from sharegroup.errors import ApiError, NonEmptyGroupError, UnknownTopicError
from sharegroup.logs.port import Log

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


@click.command("from-kafka", short_help="Continue a share group of a Kafka broker here.")
@click.option("--group", "group_id", metavar="GROUP", required=True, help="The share group on the broker.")
@click.option("--to-group", metavar="GROUP", help="Its name here, if it is another one.")
@click.option("--dry-run", is_flag=True, help="Only show what the group would begin with.")
@click.option("--execute", is_flag=True, help="Import the state; needs a running processor.")
@click.option(
    "--keep-config", is_flag=True, help="Leave the group's configuration here as it is; else the broker's is copied."
)
@needs_kafka
@timeout_option
@needs_log
@output_option
def from_kafka(
    group_id: str,
    to_group: str | None,
    dry_run: bool,
    execute: bool,
    keep_config: bool,
    source: KafkaSource,
    timeout_ms: int,
    site: Site,
    output: str,
) -> None:
    """Continue a share group of a Kafka broker here, from the state that the broker has stored.

    Start offsets, delivery counts, accepted and archived records are kept; nothing that was accepted is delivered
    again. The group must have no members, there and here. Topics are matched by their names, and a record must have the
    same offset in both. The configuration that the group has of its own on a running broker is checked first, and is
    copied after the import; a dump has none, so set it before by `groups configure`. The command may be repeated.

    \b
    Example:
      sharegroup migrate from-kafka --bootstrap-server localhost:9092 \\
          --group orders --dry-run
      sharegroup migrate from-kafka --dump dump --group orders --execute
    """
    if dry_run == execute:
        raise click.UsageError("Give either --dry-run or --execute.")
    history, names = source.history()
    group = kafka_group(history, names, group_id)
    if group.members:
        members = counted(len(group.members), "member")
        raise NonEmptyGroupError(
            f"Group {group_id} has {members} on the broker, and its state changes while they work.",
            "Stop them, and try again.",
        )
    name = to_group or group_id
    config = None if keep_config else source.group_config(group_id)
    result = GroupImport()
    with site.open_log() as opened:
        _check_topics(opened, group)
        validate_overrides(site.settings.broker, config or {})
        if execute:
            states = {
                key: ImportedPartition(each.start_offset, each.state_batches) for key, each in group.states.items()
            }
            result = import_group(site.admin_client(opened), name, states, config or {}, timeout_ms / 1000)
    copied = config if result.is_configured else None
    _show(group, name, copied, result, output)
    if not (output == JSON or keep_config) and result.is_configured:
        _print_config(copied, name, source, execute)
    end_with_failures(result.failures)


def _check_topics(log: Log, group: KafkaGroup) -> None:
    """Check that the log has the topics, and their records up to the start offsets.

    Raises:
        UnknownTopicError: a topic, a partition or a record is not there.
    """
    for topic in sorted({topic for topic, _ in group.states}):
        ends = log.offsets(topic)
        for (name, partition), state in group.states.items():
            if name != topic:
                continue
            if partition not in ends:
                raise UnknownTopicError(
                    f"Topic {topic} has no partition {partition} here.", "Copy all partitions, with their offsets."
                )
            if ends[partition].end_offset < state.start_offset:
                raise UnknownTopicError(
                    f"Partition {topic}-{partition} ends at {ends[partition].end_offset} here, and the group begins at "
                    f"{state.start_offset}.",
                    "Copy the records with their offsets first.",
                )


def _show(
    group: KafkaGroup,
    group_id: str,
    config: Mapping[str, str] | None,
    result: GroupImport,
    output: str,
) -> None:
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "start_offset": state.start_offset,
            "accepted_count": state.count(RecordState.ACKNOWLEDGED),
            "archived_count": state.count(RecordState.ARCHIVED) + state.count(RecordState.ARCHIVING),
            "delivered_count": state.count(RecordState.AVAILABLE),
            "error": str(error) if (error := result.failures.get(f"{topic}-{partition}")) else None,
        }
        for (topic, partition), state in sorted(group.states.items())
    ]
    if output == JSON:
        print_json(
            {
                "group_id": group_id,
                "config": config,
                "config_error": str(error) if (error := result.failures.get(CONFIGURATION)) else None,
                "partitions": rows,
                "without_start_offset": group.without_start_offset,
            }
        )
    else:
        titles = ("TOPIC", "PARTITION", "START-OFFSET", "ACCEPTED", "ARCHIVED", "DELIVERED")
        cells = [tuple(row.values())[:-1] for row in rows if row["error"] is None]
        print_text(table(titles, cells, numbers=titles[1:]))
        if group.without_start_offset:
            print_text(
                f"Without a start offset on the broker, so that share.auto.offset.reset decides here: "
                f"{', '.join(group.without_start_offset)}."
            )


def _print_config(config: Mapping[str, str] | None, group_id: str, source: KafkaSource, is_executed: bool) -> None:
    """Print the keys that are copied, or how to set them."""
    if config is None:
        group = shlex.quote(group_id)
        print_text(
            f"The {source.name} has no configuration of groups. The group keeps what it has here; set another one by\n"
            f"sharegroup groups configure --group {group} --alter --add-config share.delivery.count.limit=5"
        )
    elif config:
        action = "copied" if is_executed else "that would be copied"
        print_text(f"Configuration {action} from the broker:", table(("KEY", "VALUE"), sorted(config.items())))
    else:
        print_text("The group has no configuration of its own on the broker: the defaults of the processor apply.")


def import_group(
    admin: AdminClient,
    group_id: str,
    states: Mapping[TopicPartition, ImportedPartition],
    config: Mapping[str, str],
    timeout_s: float,
) -> GroupImport:
    """Begin a group with the state and the configuration of another system, in the order of this module.

    Args:
        group_id: the group, which must have no members.
        states: (topic, partition) → its state.
        config: the group's own configuration there; the other keys stay as they are.
        timeout_s: how long to wait for each response of the processor.

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
