"""Loader processes: each simulates the members of some groups and offers its part of the load.

    with Loaders(channel, populations) as loaders:
        for window in loaders.run(rate_per_s=500, duration_s=60, seed=1):
            ...

A loader is a process of its own, so that it does not share an interpreter with the processor or with the report.
"""

from __future__ import annotations

import multiprocessing
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any, Self

from benchmarks.assembly import Population, assemble
from benchmarks.channel import Channel, ChannelSettings
from benchmarks.open_loop import Offer, OpenLoop
from benchmarks.processes import die_with_parent
from benchmarks.window import Window, merged

_LEAD_S = 0.5
"""From the order to start to the first request: the order must have reached every loader."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A loader ended by an error."""

    text: str


class Loaders:
    """The loader processes of one benchmark.

    Args:
        populations: the members of each loader.
    """

    def __init__(self, channel: ChannelSettings, populations: Sequence[Population]) -> None:
        self._channel = channel
        self._populations = populations
        self._processes: list[BaseProcess] = []
        self._connections: list[Connection[Any, Any]] = []

    @property
    def pids(self) -> list[int]:
        """Process ids of the loaders."""
        return [process.pid for process in self._processes if process.pid is not None]

    def __enter__(self) -> Self:
        context = multiprocessing.get_context("spawn")
        for number, population in enumerate(self._populations):
            own, other = context.Pipe()
            arguments = (other, number, len(self._populations), self._channel, population)
            process = context.Process(target=run_loader, args=arguments, daemon=True)
            process.start()
            other.close()
            self._processes.append(process)
            self._connections.append(own)
        try:
            for connection in self._connections:
                _received(connection)
        except BaseException:
            self._end()
            raise
        return self

    def run(
        self,
        *,
        rate_per_s: float,
        duration_s: float,
        seed: int,
        warm_up_s: float = 10.0,
        window_s: float = 10.0,
        durable_share: float = 0.5,
        records_per_fetch: int = 5,
    ) -> Iterator[Window]:
        """Offer a load with all loaders, and yield the windows of all of them, merged.

        The warm-up is no window; the last window has the responses that came after the end.
        """
        offer = Offer(
            rate_per_s=rate_per_s / len(self._connections),
            duration_s=duration_s,
            warm_up_s=warm_up_s,
            start_s=time.monotonic() + _LEAD_S,
            seed=seed,
            window_s=window_s,
            durable_share=durable_share,
            records_per_fetch=records_per_fetch,
        )
        for number, connection in enumerate(self._connections):
            connection.send(replace(offer, seed=seed * len(self._connections) + number))
        is_running = True
        while is_running:
            received = [_received(connection) for connection in self._connections]
            windows = [window for window in received if isinstance(window, Window)]
            is_running = len(windows) == len(received)
            if is_running and windows[0].index >= 0:
                yield merged(windows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            for connection in self._connections:
                connection.send(None)
            for process in self._processes:
                process.join(30)
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()


def _received(connection: Connection[Any, Any]) -> object:
    try:
        message = connection.recv()
    except EOFError:
        raise RuntimeError("A loader ended without a report.") from None
    if isinstance(message, Failed):
        raise RuntimeError(f"A loader failed:\n{message.text}")
    return message


def run_loader(
    connection: Connection[Any, Any], number: int, loader_count: int, settings: ChannelSettings, population: Population
) -> None:
    """Be a loader: assemble the members, then run each offer that is received, until None is."""
    die_with_parent()
    try:
        channel = Channel(settings, number, loader_count)
        members = assemble(channel, population)
        connection.send(None)
        while (offer := connection.recv()) is not None:
            OpenLoop(channel, members, offer, connection.send).run()
            connection.send(None)
        channel.close()
    except Exception:
        connection.send(Failed(traceback.format_exc()))


def populations(group_count: int, loader_count: int, template: Population, prefix: str = "group") -> list[Population]:
    """Divide groups among loaders; all else is the template's."""
    group_ids = [f"{prefix}-{number}" for number in range(group_count)]
    return [replace(template, group_ids=tuple(group_ids[n::loader_count])) for n in range(loader_count)]
