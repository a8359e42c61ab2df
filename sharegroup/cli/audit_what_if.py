"""`sharegroup audit what-if`: what would have happened with other limits."""

from __future__ import annotations

import functools
from typing import Any

import click

from sharegroup.audit.replay.delivery_figures import DeliveryFigures
from sharegroup.audit.replay.what_if import LIMITS, WhatIf, checked_limits, what_if
from sharegroup.cli.flags import Command, Site, needs_state_table, parse_pairs
from sharegroup.cli.output import JSON, counted, output_option, print_json, print_text, progress_bar, table

_FIGURES = {
    "delivery_count": "deliveries",
    "redelivery_count": "redeliveries",
    "lock_timeout_count": "lock timeouts",
    "archived_at_limit_count": "archived at the limit",
    "accepted_count": "accepted",
    "in_flight_peak": "in-flight peak",
    "time_to_acknowledge_p50_ms": "time to acknowledge, p50, ms",
    "time_to_acknowledge_p99_ms": "time to acknowledge, p99, ms",
}


def _with_limits(command: Command) -> Command:
    """Pass those keys of `--set` that a replay changes as `limits`, and only the others as settings."""

    @functools.wraps(command)
    def with_limits(*, overrides: tuple[str, ...], **others: object) -> object:
        pairs = [pair for pair in overrides if pair.partition("=")[0].strip().startswith("share.")]
        rest = tuple(pair for pair in overrides if pair not in pairs)
        return command(overrides=rest, limits=parse_pairs(pairs), **others)

    return with_limits


@click.command("what-if", short_help="Replay the request log under other limits.")
@click.option("--group", "group_id", metavar="GROUP", help="Only the figures of this share group.")
@_with_limits
@needs_state_table
@output_option
def what_if_command(group_id: str | None, limits: dict[str, str], site: Site, output: str) -> None:
    """Replay the request log as if groups had had other limits, and compare the deliveries.

    --set takes share.record.lock.duration.ms, share.delivery.count.limit and share.partition.max.record.locks here,
    beside the keys of the configuration. The limits apply to all groups, whatever they had set.

    Requests come when they came. An acknowledgement applies where its member holds the record in the replay; all
    others are undecided, and their share says how far the figures can be trusted. Times of deliveries are those of
    the replay, but a member that would have got a record earlier does not acknowledge it earlier.

    \b
    Example:
      sharegroup audit what-if --group orders \\
          --set share.record.lock.duration.ms=60000
      sharegroup audit what-if --set share.delivery.count.limit=3 \\
          --output json
    """
    if not limits:
        raise click.UsageError(f"Name a limit with --set: {', '.join(LIMITS)}.")
    settings = site.settings
    checked = checked_limits(limits)
    with site.open_log() as log, progress_bar("replay") as progress:
        result = what_if(site.state_table_path, log, settings.processor, settings.broker, checked, group_id, progress)
    if output == JSON:
        print_json(_document(result))
    else:
        _print(result)


def _figures(figures: DeliveryFigures) -> dict[str, Any]:
    times = {f"time_to_acknowledge_p{share}_ms": figures.time_to_acknowledge_ms(share / 100) for share in (50, 99)}
    return {name: times[name] if name in times else getattr(figures, name) for name in _FIGURES}


def _document(result: WhatIf) -> dict[str, object]:
    return {
        "limits": dict(result.limits),
        "commit_count": result.commit_count,
        "message_count": result.message_count,
        "recorded": _figures(result.recorded),
        "replayed": _figures(result.replayed),
        "acknowledged_count": result.acknowledged_count,
        "undecided_count": result.undecided_count,
        "undecided_share": round(result.undecided_share, 6),
        "not_replayed": [str(gap) for gap in result.gaps],
    }


def _print(result: WhatIf) -> None:
    limits = ", ".join(f"{key}={value}" for key, value in result.limits.items())
    messages, commits = counted(result.message_count, "request"), counted(result.commit_count, "commit")
    recorded, replayed = _figures(result.recorded), _figures(result.replayed)
    cells = [(title, recorded[name], replayed[name]) for name, title in _FIGURES.items()]
    print_text(
        f"Replayed {messages} of {commits} with {limits}.",
        table(("", "RECORDED", "REPLAYED"), cells, ("RECORDED", "REPLAYED")),
        f"Undecided: {result.undecided_count:,} of {counted(result.acknowledged_count, 'acknowledgement')} "
        f"({result.undecided_share:.1%}).",
    )
    for gap in result.gaps:
        print_text(f"Not replayed: {gap}")
