"""The decision of a standby: when to take over from the active processor. Pure; time is an argument.

A standby appends a probe to the request log every second. The active processor responds in the response log once it
is applied. Four rules decide:

1. **Silence.** It is time to take over when three probes came back from the request log without a response, and nothing
   was heard of the active processor for the patience. Probes that did not come back do not count: a log that is away
   makes nobody take over. Responses, and commits to the state table, are signs of life: a processor that works off a
   backlog commits long before it comes to a probe.
2. **Certainty.** A processor that says that it leaves is over at once, and so is one whose process has ended on this
   machine.
3. **Folding.** A processor that has fenced the table responds to probes itself until its loop does, so a fold that
   takes longer than the patience is no silence.
4. **Losses.** The patience doubles with each takeover that is lost: another processor's fence came first, or ended this
   one. It starts again after a calm time.

Nobody takes over while the log or the state table cannot be reached, and after such a time the silence counts only once
the active processor has had time to reach them, too. Nor does a time in which the standby itself stood still count.

Of several standbys that decide at the same time one wins: its fence names the leader epoch that it follows, and the
table accepts one fence for each epoch (`StateTableWriter.open`).
"""

from __future__ import annotations

from sharegroup.protocol.standby_messages import ProcessorState

PROBE_INTERVAL_S = 1.0
PROBES_WITHOUT_RESPONSE = 3
"""Probes that came back and got no response, below which no processor is silent."""
FIRST_PATIENCE_S = 2.5
"""Silence after which a standby takes over: the third probe has had half a second for its response."""
LONGEST_PATIENCE_S = 80.0
CALM_S = 600.0
"""Time after a loss after which the patience starts again."""
RETURN_GRACE_S = 10.0
"""Time for which silence does not count after log or table were away: clients connect again at different times."""
_STANDSTILL_S = 2 * PROBE_INTERVAL_S
"""Time without a step after which this process stood still itself: responses may have come meanwhile."""


class Standby:
    """The state of one standby, over all its takeovers. Times are seconds of one monotonic clock.

    Attributes:
        leader_epoch: highest leader epoch that it knows; 0 before any.
    """

    def __init__(self) -> None:
        self.leader_epoch = 0
        self.patience_s = FIRST_PATIENCE_S
        self._returned_s: dict[int, float] = {}
        self._last_number = -1
        self._responded_number = -1
        self._next_probe_s: float | None = None
        self._heard_s = 0.0
        self._lost_s: float | None = None
        self._is_over = False
        self._is_log_there = False
        self._is_table_there = False
        self._counts_from_s = 0.0
        self._not_before_s = 0.0
        self._stepped_s: float | None = None

    def step(self, now_s: float) -> None:
        """Note that the standby runs; it is called between any two polls of the log."""
        if self._stepped_s is not None and now_s - self._stepped_s > _STANDSTILL_S:
            self._returned_s.clear()
        self._stepped_s = now_s
        if self._lost_s is not None and now_s - self._lost_s > CALM_S:
            self._lost_s, self.patience_s = None, FIRST_PATIENCE_S

    def due_probe(self, now_s: float) -> int | None:
        """Return the number of the probe to append now; None when none is due."""
        if self._next_probe_s is not None and now_s < self._next_probe_s:
            return None
        self._next_probe_s = now_s + PROBE_INTERVAL_S
        self._last_number += 1
        return self._last_number

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next probe is due, or the takeover if nothing is heard until then."""
        if self._next_probe_s is None:
            return 0.0
        due_s = self._next_probe_s
        if len(self._returned_s) >= PROBES_WITHOUT_RESPONSE:
            due_s = min(due_s, self._silent_since_s + self.patience_s)
        return max(0.0, due_s - now_s)

    def probe_returned(self, number: int, now_s: float) -> None:
        """Accept an own probe that was read from the request log."""
        self._is_log_there = True
        # The two topics are read one after the other: a response may be read before its probe.
        if number > self._responded_number and now_s >= self._counts_from_s:
            self._returned_s.setdefault(number, now_s)

    def response_received(self, number: int, leader_epoch: int, state: ProcessorState, now_s: float) -> None:
        """Accept the response to a probe; those of earlier processors are ignored."""
        if leader_epoch < self.leader_epoch:
            return
        self.processor_started(leader_epoch)
        if state is ProcessorState.LEAVING:
            self._is_over = True
            return
        self._heard_s = max(self._heard_s, now_s)
        self._responded_number = max(self._responded_number, number)
        self._returned_s = {each: at_s for each, at_s in self._returned_s.items() if each > number}

    def processor_committed(self, since_s: float) -> None:
        """Accept a commit of the active processor, made at this time or later."""
        self._heard_s = max(self._heard_s, since_s)

    def processor_started(self, leader_epoch: int) -> None:
        """Accept that a processor has taken over; those of earlier epochs are ignored."""
        if leader_epoch > self.leader_epoch:
            self._follow(leader_epoch)

    def processor_ended(self, leader_epoch: int) -> None:
        """Accept that the process of a processor is over for certain; only the active one counts."""
        if leader_epoch == self.leader_epoch:
            self._is_over = True

    def log_away(self, now_s: float) -> None:
        """Accept that the log cannot be reached."""
        self._is_log_there = False
        self._forget_silence(now_s)

    def table_away(self, now_s: float) -> None:
        """Accept that the state table cannot be read."""
        self._is_table_there = False
        self._forget_silence(now_s)

    def table_read(self, leader_epoch: int) -> None:
        """Accept that the state table can be read, and its leader epoch.

        A processor fences the table before it says anything. So a lower epoch is that of another table, such as an
        older copy that an administrator has accepted.
        """
        self._is_table_there = True
        if leader_epoch != self.leader_epoch:
            self._follow(leader_epoch)

    def is_due(self, now_s: float) -> bool:
        """Return True when it is time to take over."""
        if not (self._is_log_there and self._is_table_there) or now_s < self._not_before_s:
            return False
        if self._is_over:
            return True
        if len(self._returned_s) < PROBES_WITHOUT_RESPONSE:
            return False
        return now_s >= self._silent_since_s + self.patience_s

    def lost(self, leader_epoch: int, now_s: float) -> None:
        """Accept that another processor won: its fence came first, or ended this processor's time as the active one.

        Args:
            leader_epoch: the winner's epoch, as far as it is known.
        """
        self.processor_started(leader_epoch)
        self._double_patience(now_s)

    def failed(self, leader_epoch: int, now_s: float) -> None:
        """Accept that an own takeover failed: nobody else won, so it is tried again after the patience.

        Args:
            leader_epoch: epoch of the own fence, or of the processor before when there is none.
        """
        self.processor_started(leader_epoch)
        self._is_over = True
        self._not_before_s = now_s + self.patience_s
        self._double_patience(now_s)

    def _follow(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self._is_over = False
        self._returned_s.clear()

    @property
    def _silent_since_s(self) -> float:
        return max(min(self._returned_s.values()), self._heard_s)

    def _double_patience(self, now_s: float) -> None:
        self._returned_s.clear()
        self.patience_s = min(2 * self.patience_s, LONGEST_PATIENCE_S)
        self._lost_s = now_s

    def _forget_silence(self, now_s: float) -> None:
        self._returned_s.clear()
        self._counts_from_s = now_s + RETURN_GRACE_S
