"""The helper process of a simulated member: its production schedule, which goes on while the member is busy or gone."""

from __future__ import annotations

from sharegroup.logs.helper_process import ReportedState
from sharegroup.logs.helper_program import HelpedMember, HelpedMembers
from sharegroup.logs.port import NewRecord
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import MemberAlive
from sharegroup.protocol.internal_messages import MemberEnded
from sharegroup.protocol.messages import request
from tests.simulation.ledger import Ledger
from tests.simulation.log import StoredLog
from tests.simulation.world import Alarm, World

_NUMBER = 1


class SimulatedHelper:
    """The helper of one member.

    Args:
        topic: the request topic.
        partition: the partition of the group.
        late: probability that a message is on its way for up to three seconds.
    """

    def __init__(
        self,
        world: World,
        log: StoredLog,
        ledger: Ledger,
        topic: str,
        partition: int,
        group_id: str,
        member_id: str,
        late: float,
    ) -> None:
        self._world = world
        self._log = log
        self._ledger = ledger
        self._group_id = group_id
        self._member_id = member_id
        self._late = late
        self._topic = topic
        self._partition = partition
        self._reported = ReportedState()
        self._members = HelpedMembers()
        self._members.join(_NUMBER, HelpedMember({}, topic, partition, group_id, "", ""))
        self._next_step = Alarm(world, self._step)

    def note(self, *, holds_records: bool, has_sent: bool) -> None:
        """Note the state of the member; see `MemberHelper.note`."""
        if self._reported.is_due(holds_records, has_sent, self._now_s):
            if holds_records:
                self._members.hold(_NUMBER, self._now_s)
            else:
                self._members.release(_NUMBER)
            self._plan()

    def close(self) -> None:
        """Say nothing more."""
        self._members.leave(_NUMBER)

    def process_ended(self) -> None:
        """Report the end of the member's process, which the end of the pipe shows."""
        self._members.leave(_NUMBER)
        self._send(ApiKey.MEMBER_ENDED, MemberEnded(member_id=self._member_id))

    @property
    def _now_s(self) -> float:
        return self._world.now_ms / 1_000

    def _plan(self) -> None:
        if (due_s := self._members.next_due_s) is not None:
            self._next_step.set(max(round(due_s * 1_000), self._world.now_ms + 1))

    def _step(self) -> None:
        for _ in self._members.take_due(self._now_s):
            self._send(ApiKey.MEMBER_ALIVE, MemberAlive())
        self._plan()

    def _send(self, api_key: ApiKey, body: MemberAlive | MemberEnded) -> None:
        last_ms = 3_000 if self._world.happens(self._late) else 20
        self._world.after(1, last_ms, lambda: self._append(api_key, body))

    def _append(self, api_key: ApiKey, body: MemberAlive | MemberEnded) -> None:
        if self._log.is_away:
            return
        self._world.trace("the helper of", self._member_id, "sends", api_key.name)
        sender = "" if api_key is ApiKey.MEMBER_ENDED else self._member_id
        value = request(api_key, self._group_id, body, member_id=sender).encoded()
        offset = self._log.append(self._topic, self._partition, [NewRecord(self._group_id.encode(), value)])
        record = self._log.topic(self._topic).partitions[self._partition][offset]
        self._ledger.requests.helped(self._member_id, body, record)
