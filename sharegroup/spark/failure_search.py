"""Which calls of a handler follow a failed one, and what becomes of each record. Pure, but for the calls.

1. The handler is called with the whole acquisition.
2. If that fails, it is called with halves, and halves of those that fail, down to single records.
3. If none was accepted by then, it is called with single records at positions that are spread over the acquisition,
   until it accepts one: a row of bad records is passed over.
4. Once it has accepted one, the halves of the rest follow, and again the records that failed alone. One that fails
   alone again is at fault (`call_history`): it is released.
5. The rest is returned unread, with a delay if the handler accepted nothing after its first failure, here or in another
   acquisition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sharegroup.client.held_records import HeldRange, split_after, unread
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark.call_history import BegunCall, CallHistory

MAX_CALLS = 64
"""Most calls for one acquisition."""

_HANDLER_FAILS = "the handler fails, and accepted no record since"
_UNDECIDED = "the worker did not decide on it"

Part = list[HeldRange]
"""Some records of an acquisition, in its order."""

Call = Callable[[Part], list[Acknowledgement]]
"""Processes records and returns their acknowledgements; raises the handler's exception."""


@dataclass(slots=True)
class Outcome:
    """The outcome of an acquisition.

    Attributes:
        acknowledgements: acknowledgements of all its records.
        error: the first exception of the handler, if any.
        delayed_count: records that were returned with a delay, since the handler accepted none after its failure.
        resolved: what the sink says of the acquisition's write; it is reported instead of the acknowledgements.
    """

    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    error: Exception | None = None
    call_count: int = 0
    delayed_count: int = 0
    resolved: ResolveWriteRequest | None = None


class FailureSearch:
    """Processes one acquisition, and finds the records that the handler cannot process.

    Args:
        call: processes some of the records.
        without_gaps: splits ranges into those with records, and acknowledgements of gaps; it is called once, after the
            first failure.
        history: the calls of the handler, for all acquisitions of the worker.
        bisects: try parts after a failure (`worker.bisect.on.error`); otherwise the acquisition is the smallest part.
        is_cancelled: ends the search; a failure after that says nothing of the handler.
        on_failure: called at the first failure.
    """

    def __init__(
        self,
        call: Call,
        without_gaps: Callable[[Part], tuple[Part, list[Acknowledgement]]],
        history: CallHistory,
        bisects: bool = True,
        is_cancelled: Callable[[], bool] = lambda: False,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._call = call
        self._without_gaps = without_gaps
        self._history = history
        self._bisects = bisects
        self._is_cancelled = is_cancelled
        self._on_failure = on_failure
        self._outcome = Outcome()
        self._undecided: list[Part] = []
        """Parts to call, the next one last."""
        self._failed_alone: list[tuple[int, Part]] = []
        """Parts that are not proven to be at fault, each with the end of its call."""
        self._failing_since: int | None = None
        self._begins_with_later_half = False

    def run(self, ranges: Sequence[HeldRange]) -> Outcome:
        """Process an acquisition, and return its outcome; exceptions of the handler are part of it."""
        self._undecided = [list(ranges)] if ranges else []
        while (part := self._next_part()) is not None:
            call = self._history.begin()
            self._outcome.call_count += 1
            try:
                acknowledgements = self._call(part)
            except Exception as error:
                self._handle_failure(call, part, error)
            else:
                self._handle_success(call, acknowledgements)
        self._return_rest()
        return self._outcome

    def _next_part(self) -> Part | None:
        """Remove and return the part that is called next; None ends the search."""
        if self._outcome.call_count >= MAX_CALLS or self._is_cancelled():
            return None
        # An acceptance since then, in this thread or another one, makes a second failure a proof.
        again = [entry for entry in self._failed_alone if self._history.accepted_since(entry[0])]
        self._failed_alone = [entry for entry in self._failed_alone if entry not in again]
        self._undecided += [part for _, part in again]
        if not self._undecided:
            return None
        is_fruitless = self._failing_since is not None and not self._history.accepted_since(self._failing_since)
        return self._take_single() if self._failed_alone and is_fruitless else self._undecided.pop()

    def _take_single(self) -> Part:
        """Remove and return the middle record of the largest part; of those not yet tried alone, if there are any.

        Records that were tried in an earlier delivery are left out, so that each is tried in the end.
        """
        untried = [self._history.untried(part) for part in self._undecided]
        candidates = untried if any(untried) else self._undecided
        index = max(range(len(candidates)), key=lambda i: _record_count(candidates[i]))
        _, later = split_after(candidates[index], (_record_count(candidates[index]) - 1) // 2)
        (single, *_), part = split_after(later, 1)[0], self._undecided.pop(index)
        position = _position(part, single)
        before, rest = split_after(part, position)
        _, after = split_after(rest, 1)
        self._undecided[index:index] = [side for side in (after, before) if side]
        return [single]

    def _handle_success(self, call: BegunCall, acknowledgements: list[Acknowledgement]) -> None:
        self._outcome.acknowledgements += acknowledgements
        if self._history.succeeded(call, acknowledgements):
            # Then a record at fault is seldom in the last part: one that is called after it can prove its fault.
            self._begins_with_later_half = not self._begins_with_later_half

    def _handle_failure(self, call: BegunCall, part: Part, error: Exception) -> None:
        """Decide on the records of a failed call, or add its halves."""
        ended = self._history.failed()
        self._outcome.error = self._outcome.error or error
        if self._is_cancelled():
            self._undecided.append(part)
            return
        if self._failing_since is None:
            self._failing_since = ended
            self._on_failure()
            part, gaps = self._without_gaps(part)
            self._outcome.acknowledgements += gaps
        if self._bisects and _record_count(part) > 1:
            first, second = split_after(part, _record_count(part) // 2)
            self._undecided += [first, second] if self._begins_with_later_half else [second, first]
        elif self._history.failed_alone(call, ended, part):
            self._outcome.acknowledgements += [held.acknowledgement(AcknowledgeType.RELEASE) for held in part]
        else:
            self._failed_alone.append((ended, part))

    def _return_rest(self) -> None:
        """Return the undecided records unread."""
        parts = self._undecided + [part for _, part in self._failed_alone]
        rest = [held for part in parts for held in part]
        delay_ms = None
        if rest and self._failing_since is not None and not self._is_cancelled():
            delay_ms = self._history.return_delay_ms(self._failing_since)
        self._outcome.acknowledgements += unread(rest, _UNDECIDED if delay_ms is None else _HANDLER_FAILS, delay_ms)
        self._outcome.delayed_count = 0 if delay_ms is None else _record_count(rest)


def _record_count(ranges: Sequence[HeldRange]) -> int:
    return sum(held.record_count for held in ranges)


def _position(part: Part, single: HeldRange) -> int:
    """Return the number of records of a part before one of them."""
    count = 0
    for held in part:
        if held.key == single.key and held.first_offset <= single.first_offset <= held.last_offset:
            return count + single.first_offset - held.first_offset
        count += held.record_count
    return count
