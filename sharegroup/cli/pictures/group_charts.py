"""The charts of a group: lag of its share-partitions, and locks of its members."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sharegroup.audit.timelines.lock_timeline import LockBar
from sharegroup.audit.timelines.log_ends import LogEnds
from sharegroup.audit.timelines.timeline import GroupTimeline
from sharegroup.cli.pictures.drawing import Chart
from sharegroup.cli.pictures.partition_charts import lags, line, time_layout
from sharegroup.cli.pictures.texts import CAUSE_COLOURS, CAUSE_TEXTS, duration_text, member_text, time_text

MAX_MEMBERS = 40
"""Members in the lock timeline: those that locked most records."""

_ROW_PX = 26
_SERIES_COLOURS = ("#3f8fd6", "#e08a2e", "#2e9d5b", "#a763c9", "#e0483e", "#c9b01f", "#58b7c9", "#8a8f98")
_DASHES = ("solid", "dash", "dot")


def lag_chart(group: GroupTimeline, ends: Mapping[tuple[str, int], LogEnds]) -> Chart:
    """Return the lag of some share-partitions over time.

    Args:
        ends: (topic id, partition) → the end of its log, of those to show.
    """
    traces: list[dict[str, Any]] = []
    rows: list[tuple[object, ...]] = []
    for index, (key, log_ends) in enumerate(ends.items()):
        samples = lags(list(group.points(key)), log_ends)
        known = [(time_ms, lag) for time_ms, lag in samples if lag is not None]
        name = group.partitions[key].name
        if known:
            dash = _DASHES[index // len(_SERIES_COLOURS) % len(_DASHES)]
            traces.append(line(name, samples, _SERIES_COLOURS[index % len(_SERIES_COLOURS)], dash))
            highest_ms, highest = max(known, key=lambda sample: sample[1])
            rows.append((name, known[0][1], highest, time_text(highest_ms), known[-1][1]))
        else:
            rows.append((name, None, None, None, None))
    return Chart(
        "Lag",
        "Unfinished records up to the log end, for each share-partition that is shown.",
        traces,
        time_layout(group.axis, "records"),
        ("Share-partition", "Lag at the start", "Highest lag", "At (UTC)", "Lag at the end"),
        rows,
    )


def locks_chart(group: GroupTimeline) -> Chart:
    """Return the locks of members over time."""
    bars = list(group.locks)
    record_counts: Counter[str] = Counter()
    for bar in bars:
        record_counts[bar.member_id] += bar.record_count
    shown = [member_id for member_id, _ in record_counts.most_common(MAX_MEMBERS)]
    names = {member_id: member_text(member_id, group.client_ids) for member_id in shown}
    span_ms = group.axis.until_ms - group.axis.since_ms
    by_end: dict[str, list[LockBar]] = defaultdict(list)
    for bar in bars:
        if bar.member_id in names:
            by_end[bar.ended_by].append(bar)
    shown_ends = [ended_by for ended_by in CAUSE_TEXTS if by_end[ended_by]]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": CAUSE_TEXTS[ended_by],
            "y": [names[bar.member_id] for bar in by_end[ended_by]],
            "base": [bar.start_ms for bar in by_end[ended_by]],
            # A short lock still is some pixels wide.
            "x": [max(bar.end_ms - bar.start_ms, span_ms // 250, 1) for bar in by_end[ended_by]],
            # Parts of one acquisition end differently: each bar is narrower than those under it.
            "width": 0.84 - 0.6 * index / len(shown_ends),
            "marker": {"color": CAUSE_COLOURS[ended_by], "line": {"width": 1, "color": "rgba(127,127,127,0.6)"}},
            "hovertext": [_bar_text(bar, CAUSE_TEXTS[ended_by]) for bar in by_end[ended_by]],
            "hovertemplate": "%{y}<br>%{hovertext}<extra></extra>",
        }
        for index, ended_by in enumerate(shown_ends)
    ]
    layout = time_layout(group.axis, "member", height_px=150 + _ROW_PX * max(len(names), 2))
    layout |= {"barmode": "overlay", "hovermode": "closest"}
    layout["yaxis"] = {
        "title": {"text": "member", "standoff": 12},
        "automargin": True,
        "categoryorder": "array",
        "categoryarray": sorted(names.values(), reverse=True),
    }
    more = len(record_counts) - len(shown)
    caption = (
        "Each bar is a lock from its acquisition to its end, coloured by what ended it. Locks of a member that begin "
        f"within {duration_text(group.axis.bin_ms)} and end alike are one bar."
    )
    return Chart(
        "Locks by member",
        caption + (f" The {len(shown)} members with most records are shown; {more:,} more are not." if more else ""),
        traces,
        layout,
        ("Member", "Ended by", "Locks", "Records", "First began (UTC)", "Last ended (UTC)"),
        _lock_rows(by_end, names),
    )


def _bar_text(bar: LockBar, text: str) -> str:
    duration = f"{duration_text(bar.end_ms - bar.start_ms)}, {text}"
    if bar.lock_count == 1:
        return f"{bar.label}<br>{duration}"
    return f"{bar.lock_count:,} locks, {bar.record_count:,} records<br>the first: {bar.label}<br>{duration}"


def _lock_rows(by_end: Mapping[str, Sequence[LockBar]], names: Mapping[str, str]) -> list[tuple[object, ...]]:
    rows = []
    for ended_by, bars in by_end.items():
        of_member: dict[str, list[LockBar]] = defaultdict(list)
        for bar in bars:
            of_member[bar.member_id].append(bar)
        for member_id, own in of_member.items():
            rows.append(
                (
                    names[member_id],
                    CAUSE_TEXTS[ended_by],
                    sum(bar.lock_count for bar in own),
                    sum(bar.record_count for bar in own),
                    time_text(min(bar.start_ms for bar in own)),
                    time_text(max(bar.end_ms for bar in own)),
                )
            )
    return sorted(rows)
