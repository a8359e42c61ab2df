"""How many records a member fetches at once, by how fast its application takes them. No I/O, no clock.

A fetch takes as long as a commit, however many records it brings. An application that has taken them all before
the next ones come spends its time waiting; so the fetch after that asks for more, until nobody waits.
"""

from __future__ import annotations

from sharegroup.client.settings import FetchSettings

_GROWTH = 2


class FetchAhead:
    """The size of the next fetch, and when it is due.

    Args:
        settings: the least and the most that a fetch asks for.
    """

    def __init__(self, settings: FetchSettings) -> None:
        self.max_records = settings.max_records
        """What the next fetch asks for."""
        self._least = settings.max_records
        self._most = max(settings.max_records, settings.max_ahead_records)
        self._was_full = False

    def acquired(self, record_count: int, asked_count: int) -> None:
        """A fetch brought records; when they are fewer than it asked for, there were no more."""
        self._was_full = record_count >= asked_count > 0

    def ran_out(self) -> None:
        """The application wants records, and none wait; asking for more helps when there were more."""
        if self._was_full:
            self._was_full = False
            self.max_records = min(_GROWTH * self.max_records, self._most)

    def went_stale(self) -> None:
        """The application was too slow for what was fetched."""
        self._was_full = False
        self.max_records = self._least

    def is_due(self, waiting_count: int) -> bool:
        """Whether to fetch although records wait: there are more, and half of them would not last until they come.

        What was acquired up to the group's limit must be acknowledged before there is more.
        """
        return self._was_full and self.max_records > self._least and waiting_count <= self.max_records // 2
