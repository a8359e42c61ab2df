"""`sharegroup audit export` and `import-kafka`: the state table as the records of Kafka's share groups, and back."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

import click

from sharegroup.audit.kafka_state.imported_table import check_is_new, write_history
from sharegroup.audit.kafka_state.kafka_import import ImportSummary, KafkaImport
from sharegroup.audit.kafka_state.kafka_records import kafka_records, record_document
from sharegroup.audit.kafka_state.kafka_source import DUMP_FILES
from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.kafka_flags import KafkaSource, needs_kafka
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, shown, table
from sharegroup.errors import ConfigurationError, GroupIdNotFoundError
from sharegroup.exit_code import ExitCode
from sharegroup.logs.log_clock import wall_ms
from sharegroup.state.described_writes import described_writes
from sharegroup.state.fold import fold
from sharegroup.state.reader import StateTableReader
from sharegroup.state.row_filter import RowFilter


@click.command(short_help="Print the state as Kafka's own records.")
@click.option("--group", "group_id", metavar="GROUP", help="The share group; all groups without it.")
@click.option(
    "--dump",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a dump into this new folder instead, one file for each topic; import-kafka reads it.",
)
@needs_state_table
def export(group_id: str | None, dump: Path | None, site: Site) -> None:
    """Print the records that Kafka would have written, each as a line of JSON.

    They are the states of share-partitions in __share_group_state, and the groups' members, epochs and topics in
    __consumer_offsets. Key and value are there by field, and as the bytes that Kafka writes, in base64. Kafka has no
    open writes: their records are as before their acquisition, and a line on standard error counts them. A group
    that continues from such records may write their results twice; `migrate to-kafka` refuses to.

    \b
    Example:
      sharegroup audit export --group orders
      sharegroup audit export --dump exported
    """
    rows = StateTableReader(site.state_table_path).stored(RowFilter(group_id=group_id))
    if group_id is not None and not len(rows):
        raise GroupIdNotFoundError(f"Group {group_id} is not in the state table.", "Check its name.")
    records = kafka_records(shown(rows, "exporting"))
    documents = (record_document(record) for record in records)
    _warn_of_open_writes(site, group_id)
    if dump is None:
        for document in documents:
            click.echo(_line(document))
        return
    try:
        dump.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(f"The folder {dump} cannot be made: {error}.", "Name a new folder.") from error
    try:
        _write_dump(dump, documents)
    except OSError as error:
        shutil.rmtree(dump, ignore_errors=True)
        raise ConfigurationError(
            f"The folder {dump} cannot be written: {error}.", "Free space there, or name a folder on another disk."
        ) from error


def _warn_of_open_writes(site: Site, group_id: str | None) -> None:
    """Say how many records are exported as AVAILABLE although their results may be in a sink."""
    groups = fold(StateTableReader(site.state_table_path).recovery_rows(group_id)).groups.values()
    writes = [write for group in groups for write in described_writes(group, wall_ms())]
    if writes:
        record_count = sum(write.locked_count + write.resolving_count for write in writes)
        click.echo(
            f"{counted(record_count, 'record')} of {counted(len(writes), 'open write')} are AVAILABLE in the export, "
            "with the deliveries before: whether their results are in the sink is not known yet.",
            err=True,
        )


def _write_dump(folder: Path, documents: Iterable[Mapping[str, object]]) -> None:
    offsets: Counter[str] = Counter()
    with ExitStack() as stack:
        files = {
            topic: stack.enter_context((folder / name).open("w", encoding="utf-8"))
            for topic, name in DUMP_FILES.items()
        }
        for document in documents:
            topic = str(document["topic"])
            files[topic].write(f"{_line({'partition': 0, 'offset': offsets[topic], **document})}\n")
            offsets[topic] += 1


def _line(document: dict[str, object]) -> str:
    return json.dumps(document, ensure_ascii=False)


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
        _print_summary(imported.summary, path)
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


def _print_summary(summary: ImportSummary, path: str) -> None:
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
