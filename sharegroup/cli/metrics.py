"""`sharegroup metrics`."""

from __future__ import annotations

import click

from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.output import JSON, print_json
from sharegroup.logs.log_clock import wall_ms
from sharegroup.metrics.exposition import metrics_document, prometheus_text
from sharegroup.metrics.group_metrics import table_metrics

PROMETHEUS = "prometheus"


@click.command()
@click.option(
    "--minutes",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="Count what happened in the last MINUTES.",
)
@needs_state_table
@click.option(
    "--output",
    type=click.Choice([PROMETHEUS, JSON]),
    default=PROMETHEUS,
    show_default=True,
    help="Prometheus' text format, or JSON for programs.",
)
def metrics(minutes: int, site: Site, output: str) -> None:
    """Print the metrics of all share groups.

    They come from the state table and the log, so no processor needs to run. Requests, share sessions and latencies
    are in no table: a processor shows them, and all the others, at its `metrics.port`.

    \b
    Example:
      sharegroup metrics --minutes 5
    """
    since_ms = wall_ms() - minutes * 60_000
    config = site.settings.processor
    with site.open_log() as log:
        registry = table_metrics(
            log,
            site.state_table_path,
            config.request_topic_name,
            site.settings.broker,
            config.metrics_max_series,
            since_ms,
            config.metrics_domain,
        )
        if output == JSON:
            print_json(metrics_document(registry))
        else:
            click.echo(prometheus_text(registry), nl=False)
