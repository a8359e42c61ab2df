"""Ten known bugs, put in on purpose: the simulator proves itself by finding each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.leader import Leader
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.processor import takeover
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.loop import Loop
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import ResponseEnvelope
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.reader import Recovery
from tests.simulation.schedule import run_schedule
from tests.simulation.table import SimulatedTable, SimulatedWriter, StoredTable


@dataclass(frozen=True)
class Mutant:
    """A bug.

    Attributes:
        name: what goes wrong.
        apply: puts it in.
    """

    name: str
    apply: Callable[[pytest.MonkeyPatch], None]

    def is_found_by(self, seed: int) -> bool:
        """Return True if the schedule of a seed fails, be it by an exception."""
        try:
            return bool(run_schedule(seed).findings)
        except Exception:
            return True


def _ignore_last_requests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LastRequests, "repeated_by", lambda *_: None)


def _lose_the_outbox(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "_publish_outbox", lambda *_: None)


def _ignore_announcements(patch: pytest.MonkeyPatch) -> None:
    """Stale processors go on, and members take their answers."""
    patch.setattr(Groups, "_check_fence", lambda *_: None)
    _take_answers_of_stale_processors(patch)


def _take_answers_of_stale_processors(patch: pytest.MonkeyPatch) -> None:
    receive = MemberProtocol.receive

    def receive_any(protocol: MemberProtocol, envelope: ResponseEnvelope, now_ms: int) -> None:
        protocol._leader_epoch = min(protocol._leader_epoch, envelope.leader_epoch)
        receive(protocol, envelope, now_ms)

    patch.setattr(MemberProtocol, "receive", receive_any)


def _forget_the_marker_in_a_snapshot(patch: pytest.MonkeyPatch) -> None:
    whole = StoredTable.recovery

    def recovery(table: StoredTable, group_id: str | None = None) -> Recovery:
        result = whole(table, group_id)
        is_covered = result.last_marker == result.snapshot_marker
        return replace(result, last_marker=None) if is_covered else result

    patch.setattr(StoredTable, "recovery", recovery)


def _publish_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    commit, publish = Loop._commit, Loop._publish

    def publish_first(loop: Loop, batch: Any) -> float:
        answers = [answer for output in batch.outputs for answer in output.answers]
        if answers:
            loop._publisher.publish([], answers, loop._position.commit_id + 1)
        return commit(loop, batch)

    patch.setattr(Loop, "_commit", publish_first)
    patch.setattr(Loop, "_publish", publish)


def _start_locks_at_the_first_message(patch: pytest.MonkeyPatch) -> None:
    apply = Groups.apply

    def apply_early(groups: Groups, cut: TakenCut) -> Any:
        return apply(groups, replace(cut, cut_ms=cut.times_ms[0]))

    patch.setattr(Groups, "apply", apply_early)


def _ignore_session_epochs(patch: pytest.MonkeyPatch) -> None:
    def checked(sessions: ShareSessions, message: Any, epoch: int, topics: Any) -> Any:
        session = sessions.get(message.envelope.member_id)
        return session if session is not None else sessions.open(message.envelope.member_id)

    patch.setattr(ShareSessions, "checked", checked)


def _keep_expired_locks(patch: pytest.MonkeyPatch) -> None:
    """Locks end with a Tick only, not before each message."""
    expire = Leader._expire_locks

    def expire_at_ticks(leader: Leader, message: Any) -> None:
        if message.envelope.api_key == 10001:
            expire(leader, message)

    patch.setattr(Leader, "_expire_locks", expire_at_ticks)


def _apply_messages_twice(patch: pytest.MonkeyPatch) -> None:
    """A takeover begins some messages before the end of the last marker."""
    patch.setattr(SimulatedTable, "recovery", _with_end_offsets(-2))


def _skip_a_message(patch: pytest.MonkeyPatch) -> None:
    """The marker says that one more message is applied than there is."""
    append = SimulatedWriter.append

    def append_more(writer: SimulatedWriter, rows: Sequence[StateRow], commit_id: int) -> None:
        append(writer, [_with_more_applied(row) for row in rows], commit_id)

    patch.setattr(SimulatedWriter, "append", append_more)


def _with_more_applied(row: StateRow) -> StateRow:
    if row.record_type is not RecordType.COMMIT_MARKER:
        return row
    ends: Mapping[int, int] = row.payload["end_offsets"]
    payload = {**row.payload, "end_offsets": {partition: end + 1 for partition, end in ends.items()}}
    return row.model_copy(update={"payload": payload})


def _with_end_offsets(change: int) -> Callable[[SimulatedTable], Recovery]:
    whole = SimulatedTable.recovery

    def recovery(table: SimulatedTable) -> Recovery:
        result = whole(table)
        if result.last_marker is None:
            return result
        payload: CommitMarkerPayload = result.last_marker.payload
        ends = {partition: max(0, end + change) for partition, end in payload.end_offsets.items()}
        marker = replace(result.last_marker, payload=payload.model_copy(update={"end_offsets": ends}))
        return replace(result, last_marker=marker)

    return recovery


MUTANTS = (
    Mutant("a request is applied twice after a takeover", _ignore_last_requests),
    Mutant("a takeover loses the outbox", _lose_the_outbox),
    Mutant("a stale processor goes on answering", _ignore_announcements),
    Mutant("members take answers of a stale processor", _take_answers_of_stale_processors),
    Mutant("a table snapshot hides the last marker", _forget_the_marker_in_a_snapshot),
    Mutant("answers leave before their commit", _publish_before_the_commit),
    Mutant("locks run from the first message of the cut", _start_locks_at_the_first_message),
    Mutant("session epochs are not checked", _ignore_session_epochs),
    Mutant("a lock that is over still counts", _keep_expired_locks),
    Mutant("messages are applied again after their commit", _apply_messages_twice),
    Mutant("a marker is one message ahead", _skip_a_message),
)
