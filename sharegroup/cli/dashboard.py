"""`sharegroup dashboard`: the groups as they are now, in a browser."""

from __future__ import annotations

import threading

import click

from sharegroup.cli.flags import Site, needs_state_table
from sharegroup.cli.output import JSON, output_option, print_json, print_text
from sharegroup.cli.pictures.dashboard_server import DashboardServer
from sharegroup.cli.pictures.drawing import require_plotly
from sharegroup.cli.pictures.live_groups import LiveGroups
from sharegroup.cli.terminal import interruption


@click.command()
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    default=8932,
    show_default=True,
    help="The port of 127.0.0.1 to listen on; 0 takes a free one.",
)
@needs_state_table
@output_option
def dashboard(port: int, site: Site, output: str) -> None:
    """Serve a page with all groups as they are now: lag, rates, members, locks, records. Ctrl-C ends it.

    Each share-partition is a strip of runs, coloured by state, with delivery counts; a click or Enter on a run shows
    the history of its records. It is read only, serves this machine only, and reads the state table and the log: it
    costs the processor nothing. It needs the extra sharegroup[pictures].

    \b
    Example:
      sharegroup dashboard --port 8932
    """
    require_plotly()
    with site.open_log() as log, interruption() as interrupted:
        groups = LiveGroups(log, site.state_table_path, site.settings.broker)
        with DashboardServer(groups, port) as server:
            if output == JSON:
                print_json({"url": server.url})
            else:
                print_text(f"The dashboard is at {server.url} until Ctrl-C.")
            with interrupted.waiting():
                threading.Event().wait()
