"""`sharegroup audit import-kafka`: the history of a Kafka cluster's share groups as a state table."""

from __future__ import annotations

import click

from sharegroup.audit.kafka_state.imported_table import check_is_new, write_history
from sharegroup.audit.kafka_state.kafka_import import ImportSummary, KafkaImport
from sharegroup.cli.kafka_source import KafkaSource, needs_kafka, shown
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, table
from sharegroup.exit_code import ExitCode


@click.command("import-kafka", short_help="Import the history of a Kafka cluster's share groups.")
@click.option(
    "--state-table", "path", metavar="PATH", required=True, help="The new table; a folder that does not exist yet."
)
@click.option("--group", "group_id", metavar="GROUP", help="Only this share group.")
@needs_kafka
@output_option
@click.pass_context
def import_kafka(ctx: click.Context, path: str, group_id: str | None, source: KafkaSource, output: str) -> None:
    """Import what a Kafka cluster has stored of its share groups into a state table of its own, for audits.

    The records are those of __share_group_state, and the share groups' ones of __consumer_offsets. The cluster is only
    read. Each record becomes a row, and all other commands of audit work on the table. A record that cannot be read is
    listed, the others are imported, and the exit code is 1.

    \b
    Example:
      sharegroup audit import-kafka --bootstrap-server localhost:9092 \\
          --state-table /tmp/kafka-history
      sharegroup audit verify --log unused --state-table /tmp/kafka-history
    """
    check_is_new(path)
    history, names = source.history()
    imported = KafkaImport(history, names, group_id)
    write_history(path, shown(imported.rows(), "importing", sum(history.record_counts.values())), source.name)
    if output == JSON:
        print_json(summary_document(imported.summary))
    else:
        _print(imported.summary, path)
    if imported.summary.unread:
        ctx.exit(ExitCode.FAILED)


def summary_document(summary: ImportSummary) -> dict[str, object]:
    """Return the result of an import as a JSON object."""
    return {
        "record_count_by_topic": summary.record_counts,
        "row_count": summary.row_count,
        "groups": sorted(summary.group_ids),
        "partition_count": summary.partition_count,
        "unread": summary.unread,
        "unknown_fields": summary.unknown_fields,
        "other_group_count": summary.other_group_count,
        "unnamed_topic_ids": sorted(summary.unnamed_topic_ids),
        "begins_late": summary.pruned,
        "unnamed_finished_count": summary.unnamed_finished_count,
    }


def _print(summary: ImportSummary, path: str) -> None:
    records = counted(sum(summary.record_counts.values()), "record")
    groups = counted(len(summary.group_ids), "share group")
    lines = [f"Imported {records} of {groups} as {counted(summary.row_count, 'row')} of {path}."]
    remarks = [
        (summary.other_group_count, "record", "of groups of other kinds, not imported"),
        (len(summary.pruned), "share-partition", "whose first records Kafka has deleted: the history begins later"),
        (len(summary.unnamed_topic_ids), "topic", "without a name in the records: named by the topic id"),
        (summary.unnamed_finished_count, "record", "that Kafka counts as finished without storing which"),
    ]
    lines += [f"{counted(count, noun)} {meaning}." for count, noun, meaning in remarks if count]
    print_text("\n".join(lines))
    listed = [*((each, "not read") for each in summary.unread), *((e, "kept") for e in summary.unknown_fields)]
    if listed:
        print_text(table(("RECORD", "RESULT", "REASON"), [(e.source, result, e.reason) for e, result in listed]))
