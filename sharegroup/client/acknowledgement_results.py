"""The results of a member's acknowledgements, until the application takes them. No I/O, no clock.

A share-partition takes all acknowledgements of a request or none. The locks of an acquisition end together, so the
refusal of several acquisitions' records says nothing of each: they are sent again, each acquisition's apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from sharegroup.client.held_locks import HeldLocks
from sharegroup.client.member_session import MemberSession
from sharegroup.client.pending_acknowledgements import Acknowledged
from sharegroup.errors import InvalidRecordStateError, InvalidRequestError


class AcknowledgementResults:
    """The results that the application has not taken, and the locks that they end.

    Attributes:
        locks: the member's locks.

    Args:
        sends_apart: True to send refused acknowledgements of several acquisitions again.
    """

    def __init__(self, session: MemberSession, *, sends_apart: bool) -> None:
        self.locks = HeldLocks()
        self._session = session
        self._may_send_apart = sends_apart
        self._results: list[Acknowledged] = []

    @property
    def are_there(self) -> bool:
        """True if results wait to be taken."""
        return bool(self._results)

    def take(self) -> list[Acknowledged]:
        """Return the results since the last call, each once."""
        taken, self._results = self._results, []
        return taken

    def add(self, results: Iterable[Acknowledged]) -> None:
        """Add final results, whose locks end."""
        for result in results:
            self.locks.acknowledged(result.acknowledgements, result.error is not None)
            self._results.append(result)

    def add_or_send_apart(self, results: Iterable[Acknowledged]) -> bool:
        """Add results, except those whose acknowledgements are sent again; return True if there are such."""
        sent_again = False
        for result in results:
            if self._sends_apart(result):
                sent_again = True
            else:
                self.add([result])
        return sent_again

    def _sends_apart(self, result: Acknowledged) -> bool:
        """Send refused acknowledgements again, each acquisition's apart; return False if that cannot help.

        The locks of an acquisition end together, so one that is refused alone is lost.
        """
        may_help = self._may_send_apart and not self._session.is_closed
        if not may_help or not isinstance(result.error, InvalidRecordStateError | InvalidRequestError):
            return False
        groups = self.locks.by_acquisition(result.acknowledgements)
        if len(groups) < 2:
            return False
        for group in groups:
            self._session.pending.put_apart(group)
        return True
