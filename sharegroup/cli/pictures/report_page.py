"""The report: one HTML file with everything in it; all that comes from the data is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from sharegroup.audit.timelines.log_ends import LogEnds
from sharegroup.audit.timelines.redelivered_records import LastTransition
from sharegroup.audit.timelines.timeline import GroupTimeline, PartitionTimeline
from sharegroup.cli.pictures.drawing import Chart, Rows, asset, escaped_json, plotly_script
from sharegroup.cli.pictures.group_charts import lag_chart, locks_chart
from sharegroup.cli.pictures.partition_charts import partition_charts
from sharegroup.cli.pictures.texts import CAUSE_TEXTS, duration_text, member_text, time_text
from sharegroup.core.record_state import Cause

MAX_LISTED_PARTITIONS = 500
"""Share-partitions in the table of a report; those with most redeliveries come first."""

MAX_REDELIVERED_ROWS = 50

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""The browser itself refuses any access to the network."""

_NUMBER = ' class="number"'
_REDELIVERED = "Delivered more than once"
_SINKS = "Sinks"


@dataclass(frozen=True, slots=True)
class Report:
    """The content of a report.

    Attributes:
        ends: (topic id, partition) → the end of its log, of the share-partitions with charts, in their order.
        notes: what the reader must know, such as what is left out.
        delivery_count_limit: `share.delivery.count.limit` of the group at the end.
    """

    group: GroupTimeline
    ends: Mapping[tuple[str, int], LogEnds]
    notes: Sequence[str]
    delivery_count_limit: int


def report_html(report: Report) -> str:
    """Return the page.

    Raises:
        EnvironmentNotReadyError: plotly is not installed.
    """
    group = report.group
    script = plotly_script()
    sections = [("Group", [lag_chart(group, report.ends), locks_chart(group)])]
    sections += [
        (f"Share-partition {group.partitions[key].name}", partition_charts(group, key, ends))
        for key, ends in report.ends.items()
    ]
    figures: list[str] = []
    body = [_summary(report), _redelivered_table(report)]
    navigation = [("summary", "Summary"), ("redelivered", _REDELIVERED)]
    if _has_sinks(group):
        body.append(_sinks_table(group))
        navigation.append(("sinks", _SINKS))
    for number, (heading, charts) in enumerate(sections):
        body.append(_section(f"section-{number}", heading, charts, figures))
        navigation.append((f"section-{number}", heading))
    links = "".join(f'<li><a href="#{anchor}">{escape(text)}</a></li>' for anchor, text in navigation)
    title = escape(f"Share group {group.group_id}")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{asset("page.css")}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the charts</a>
<header><h1>{title}</h1><p>{_range_text(group)}</p></header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
{_TOOLBAR}
<main id="main">
{"".join(body)}
</main>
<script>{script}</script>
<script type="application/json" id="figures">[{escaped_json(",".join(figures))}]</script>
<script>{asset("charts.js")}{asset("report.js")}</script>
</body>
</html>
"""


_TOOLBAR = """<div class="toolbar" role="toolbar" aria-label="Time range of all charts">
<button type="button" data-zoom="in">Zoom in</button>
<button type="button" data-zoom="out">Zoom out</button>
<button type="button" data-zoom="earlier">Earlier</button>
<button type="button" data-zoom="later">Later</button>
<button type="button" data-zoom="all">Whole range</button>
<output id="range" aria-live="polite"></output>
</div>"""


def _range_text(group: GroupTimeline) -> str:
    axis = group.axis
    return (
        f"{time_text(axis.since_ms)} to {time_text(axis.until_ms)} UTC "
        f"({duration_text(axis.until_ms - axis.since_ms)}), in bins of {duration_text(axis.bin_ms)}; "
        f"{group.row_count:,} rows of the state table."
    )


def _section(anchor: str, heading: str, charts: Iterable[Chart], figures: list[str]) -> str:
    pieces = [f'<section id="{anchor}"><h2>{escape(heading)}</h2>']
    for chart in charts:
        number = len(figures)
        figures.append(chart.to_json())
        label = f"chart-title-{number}"
        height_px = chart.layout["height"] if chart.traces else 0
        empty = "" if chart.traces else '<p class="empty">Nothing to draw: the table below says what is known.</p>'
        pieces.append(
            f'<figure aria-labelledby="{label}"><h3 id="{label}">{escape(chart.title)}</h3>'
            f"<figcaption>{escape(chart.caption)}</figcaption>{empty}"
            # The page does not move while the charts are drawn one by one.
            f'<div class="chart" id="chart-{number}" style="height:{height_px}px" role="img" '
            f'aria-label="{escape(chart.title, quote=True)}: '
            f'the same numbers are in the table below"></div>'
            f"<details><summary>{escape(chart.title)} as a table</summary>"
            f"{_table_html(chart.title, chart.columns, chart.rows)}</details></figure>"
        )
    return "".join([*pieces, "</section>"])


def _summary(report: Report) -> str:
    group = report.group
    partitions = sorted(group.partitions.items(), key=lambda item: (-_redeliveries(item[1]), item[1].name))
    rows = []
    for key, partition in partitions[:MAX_LISTED_PARTITIONS]:
        last = [point for _, point in group.points(key)][-1:]
        counts = partition.record_count_by_cause
        rows.append(
            (
                partition.name,
                last[0].start_offset if last else None,
                last[0].next_offset - last[0].start_offset if last else None,
                counts[Cause.ACQUIRE],
                counts[Cause.ACCEPT],
                _redeliveries(partition),
                counts[Cause.REJECT],
                partition.archived_at_limit_count,
                counts[Cause.LOCK_TIMEOUT],
            )
        )
    columns = (
        "Share-partition",
        "SPSO",
        "In flight",
        "Acquired",
        "Accepted",
        "Acquired again",
        "Rejected",
        "Archived at the limit",
        "Lock timed out",
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in report.notes)
    return (
        '<section id="summary"><h2>Summary</h2>'
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
        + _table_html("Records by share-partition; a record counts each time", columns, rows)
        + "</section>"
    )


def _redeliveries(partition: PartitionTimeline) -> int:
    return sum(records for count, records in partition.record_count_by_delivery.items() if count > 1)


def _redelivered_table(report: Report) -> str:
    group = report.group
    records = [
        (partition.name, first, last, transition)
        for partition in group.partitions.values()
        for first, last, transition in partition.redelivered
    ]
    records.sort(key=lambda row: (row[3].rank, row[0], row[1]))
    rows = [
        (
            name,
            str(first) if first == last else f"{first}-{last}",
            last - first + 1,
            transition.delivery_count,
            _state_text(transition),
            CAUSE_TEXTS.get(transition.cause.value, transition.cause.value),
            member_text(transition.member_id, group.client_ids) if transition.member_id else None,
            transition.reason or None,
            time_text(transition.time_ms),
        )
        for name, first, last, transition in records[:MAX_REDELIVERED_ROWS]
    ]
    columns = (
        "Share-partition",
        "Offsets",
        "Records",
        "Deliveries",
        "Last state",
        "Last change",
        "Member",
        "Reason",
        "At (UTC)",
    )
    explanation = (
        "First the records that the group gave up: archived at the delivery limit, or rejected. Then suspects: their "
        "last delivery ended without an acknowledgement. Then the others, by delivery count. The delivery limit of the "
        f"group is {report.delivery_count_limit} at the end."
    )
    return (
        f'<section id="redelivered"><h2>{_REDELIVERED}</h2><p>{escape(explanation)}</p>'
        f"{_table_html(_REDELIVERED, columns, rows)}</section>"
    )


def _has_sinks(group: GroupTimeline) -> bool:
    doubts = (partition.record_count_by_cause[Cause.IN_DOUBT] for partition in group.partitions.values())
    return bool(group.sinks) or any(doubts)


def _sinks_table(group: GroupTimeline) -> str:
    counts = [partition.record_count_by_cause for partition in group.partitions.values()]
    doubtful, unwritten = (sum(count[cause] for count in counts) for cause in (Cause.IN_DOUBT, Cause.NOT_WRITTEN))
    explanation = (
        f"In this time {doubtful:,} records were in doubt: their delivery ended before it was known whether the sink "
        f"has their results. {unwritten:,} records were given back while they were locked, since it has none of them. "
        "The table has the writes that are open after the last row."
    )
    rows = [
        (
            sink.address,
            sink.table_id,
            sink.open_count,
            sink.in_doubt_count,
            sink.resolving_count,
            None if sink.oldest_in_doubt_ms is None else duration_text(sink.oldest_in_doubt_ms),
        )
        for sink in group.sinks
    ]
    columns = (
        "Sink",
        "Table",
        "Open writes",
        "In doubt",
        "Records resolving",
        "Oldest in doubt, since its acquisition",
    )
    return (
        f'<section id="sinks"><h2>{_SINKS}</h2><p>{escape(explanation)}</p>'
        f"{_table_html('Open writes by sink', columns, rows)}</section>"
    )


def _state_text(transition: LastTransition) -> str:
    if transition.is_archived_at_limit:
        return f"{transition.state.name}, at the limit"
    return f"{transition.state.name}, suspect" if transition.is_suspect else transition.state.name


def _table_html(caption: str, columns: Sequence[str], rows: Rows) -> str:
    """Return a table that scrolls by itself, also by keyboard.

    Args:
        rows: the cells; numbers are aligned to the right, None is shown as a dash.
    """
    numbers = [any(_is_number(row[index]) for row in rows) for index in range(len(columns))]
    head = "".join(
        f'<th scope="col"{_NUMBER if is_number else ""}>{escape(title)}</th>'
        for title, is_number in zip(columns, numbers, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    if not rows:
        body = f'<tr><td colspan="{len(columns)}">none</td></tr>'
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "<td>&ndash;</td>"
    if _is_number(value):
        return f"<td{_NUMBER}>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"
