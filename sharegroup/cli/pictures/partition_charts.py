"""The charts of a share-partition: offsets, records and delivery counts over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sharegroup.audit.timelines.log_ends import LogEnds
from sharegroup.audit.timelines.time_axis import TimeAxis
from sharegroup.audit.timelines.timeline import GroupTimeline, PartitionTimeline, Point
from sharegroup.cli.pictures.drawing import Chart
from sharegroup.cli.pictures.texts import time_text

LOG_END, NEXT_OFFSET, START_OFFSET = "#8a8f98", "#3f8fd6", "#2e9d5b"
IN_FLIGHT, LOCKED, LAG = "#3f8fd6", "#c9b01f", "#e0483e"

Points = Sequence[tuple[int, Point]]


def time_layout(axis: TimeAxis, y_title: str, height_px: int = 300) -> dict[str, Any]:
    """Return a layout with the time axis of the report."""
    margin_ms = max((axis.until_ms - axis.since_ms) // 100, 1)
    return {
        "height": height_px,
        "margin": {"l": 80, "r": 20, "t": 10, "b": 80},
        "xaxis": {
            "type": "date",
            "title": {"text": "time (UTC)"},
            "range": [axis.since_ms - margin_ms, axis.until_ms + margin_ms],
        },
        "yaxis": {"title": {"text": y_title}, "rangemode": "tozero", "separatethousands": True, "automargin": True},
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1.02,
            "yanchor": "bottom",
            "itemclick": False,
            "itemdoubleclick": False,
        },
        "showlegend": True,
        "hovermode": "x unified",
    }


def line(name: str, samples: Sequence[tuple[int, int | None]], colour: str, dash: str = "solid") -> dict[str, Any]:
    """Return a series of values that are valid up to the next one."""
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(samples) < 3 else "lines",
        "name": name,
        "x": [time_ms for time_ms, _ in samples],
        "y": [value for _, value in samples],
        "line": {"shape": "hv", "color": colour, "dash": dash, "width": 2},
        "hovertemplate": "%{y:,}",
    }


def partition_charts(group: GroupTimeline, key: tuple[str, int], ends: LogEnds) -> list[Chart]:
    """Return the charts of one share-partition.

    Args:
        key: topic id and partition.
    """
    partition = group.partitions[key]
    points = list(group.points(key))
    return [
        _offsets_chart(group.axis, partition, points, ends),
        _records_chart(group.axis, partition, points, ends),
        _deliveries_chart(group.axis, group.delivery_axis, partition),
    ]


def lags(points: Points, ends: LogEnds) -> list[tuple[int, int | None]]:
    """Return time and lag at the times at which the log end is known; None before the first point."""
    result: list[tuple[int, int | None]] = []
    index = -1
    for time_ms, log_end_offset in ends.samples:
        while index + 1 < len(points) and points[index + 1][0] <= time_ms:
            index += 1
        result.append((time_ms, None if index < 0 else points[index][1].lag(log_end_offset)))
    return result


def _offsets_chart(axis: TimeAxis, partition: PartitionTimeline, points: Points, ends: LogEnds) -> Chart:
    traces = [
        *([line("log end", ends.samples, LOG_END, "dash")] if ends.samples else []),
        line("first offset never in flight", [(time_ms, point.next_offset) for time_ms, point in points], NEXT_OFFSET),
        line("start offset (SPSO)", [(time_ms, point.start_offset) for time_ms, point in points], START_OFFSET),
    ]
    layout = time_layout(axis, "offset")
    layout["yaxis"]["rangemode"] = "normal"
    return Chart(
        f"Offsets of {partition.name}",
        "Records below the SPSO are finished. Between it and the first offset that was never in flight are the records "
        "in flight, up to the log end those that wait. A flat SPSO under a rising line is a record that holds it back.",
        traces,
        layout,
        ("Time (UTC)", "SPSO", "First offset never in flight", "Log end"),
        [(time_text(time_ms), point.start_offset, point.next_offset, ends.at(time_ms)) for time_ms, point in points],
    )


def _records_chart(axis: TimeAxis, partition: PartitionTimeline, points: Points, ends: LogEnds) -> Chart:
    lag_samples = lags(points, ends)
    traces = [
        *([line("lag", lag_samples, LAG)] if lag_samples else []),
        line("in flight", [(time_ms, point.in_flight_count) for time_ms, point in points], IN_FLIGHT),
        line("locked by members", [(time_ms, point.locked_count) for time_ms, point in points], LOCKED),
    ]
    known_lags = LogEnds(tuple((time_ms, lag) for time_ms, lag in lag_samples if lag is not None))
    return Chart(
        f"Records of {partition.name}",
        "Highest numbers within each bin of time. In flight: offsets from the SPSO to the last one that was acquired. "
        "Lag: unfinished records up to the log end.",
        traces,
        time_layout(axis, "records"),
        ("Time (UTC)", "In flight", "Locked", "Lag"),
        [
            (time_text(time_ms), point.in_flight_count, point.locked_count, known_lags.at(time_ms))
            for time_ms, point in points
        ],
    )


def _deliveries_chart(axis: TimeAxis, bins_of_time: TimeAxis, partition: PartitionTimeline) -> Chart:
    deliveries = partition.deliveries
    cells = list(deliveries)
    bins = deliveries.offset_bins
    counts: list[list[int | None]] = [[None] * bins_of_time.bin_count for _ in bins]
    for time_bin, offset_bin, count in cells:
        counts[offset_bin - bins.start][time_bin] = count
    size = deliveries.offsets_per_bin
    highest = max((count for _, _, count in cells), default=1)
    layout = time_layout(axis, "offset", height_px=360)
    layout["yaxis"]["rangemode"] = "normal"
    layout["showlegend"] = False
    layout["hovermode"] = "closest"
    # Colours are those of the light or dark scheme; the scale begins at the first delivery.
    layout["coloraxis"] = {
        "cmin": 1,
        "cmax": max(highest, 2),
        "colorbar": {"title": {"text": "deliveries"}, "dtick": max(1, highest // 8), "thickness": 14},
    }
    trace = {
        "type": "heatmap",
        # Edges, one more than there are bins.
        "x": [bins_of_time.start_ms(index) for index in range(bins_of_time.bin_count + 1)],
        "y": [offset_bin * size for offset_bin in range(bins.start, bins.stop + 1)],
        "z": counts,
        "coloraxis": "coloraxis",
        "hoverongaps": False,
        "hovertemplate": "%{x|%H:%M:%S.%L}<br>offset about %{y:,.0f}<br>delivery %{z}<extra></extra>",
    }
    rows = [(count, records) for count, records in sorted(partition.record_count_by_delivery.items())]
    unit = "1 offset" if size == 1 else f"{size:,} offsets"
    return Chart(
        f"Delivery counts of {partition.name}",
        f"Each cell is {unit} high, and shows the highest delivery count with which a record of them was acquired in "
        "that time. First deliveries are the rising edge; what is above 1 was delivered again.",
        [trace] if cells else [],
        layout,
        ("Delivery count", "Records acquired with it"),
        rows,
    )
