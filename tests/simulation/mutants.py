"""Known bugs, put in on purpose: the simulator proves itself by finding each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from sharegroup.actor.context import LoggedRequest
from sharegroup.actor.holder_liveness import HolderLiveness
from sharegroup.actor.last_requests import LastRequests
from sharegroup.actor.mailbox import ActorFailedError, GroupActors
from sharegroup.actor.member_silence import MemberSilence
from sharegroup.actor.share_session import ShareSession
from sharegroup.actor.share_sessions import ShareSessions
from sharegroup.actor.state_lifetimes import StateLifetimes
from sharegroup.actor.suspect_turns import SuspectTurns, Turn
from sharegroup.client.member_protocol import MemberProtocol
from sharegroup.core import acquisition
from sharegroup.core.acknowledgement import transition_of
from sharegroup.core.record_state import Cause, RecordState
from sharegroup.core.records import SharePartitionLimits, SharePartitionRecord, Transition
from sharegroup.core.run import Run
from sharegroup.core.share_partition import SharePartition
from sharegroup.core.state_batches import StateBatch
from sharegroup.errors import LogError
from sharegroup.logs.port import Log, NewRecord
from sharegroup.processor.commit import Commit, GroupOutput
from sharegroup.processor.dead_letters import writer as dead_letter_writer
from sharegroup.processor.dead_letters.records import append_dead_letter_records
from sharegroup.processor.dead_letters.writer import DeadLetterWriter
from sharegroup.processor.groups import Groups, TakenCut
from sharegroup.processor.loop import Loop
from sharegroup.processor.takeover import takeover
from sharegroup.processor.takeover.beginning import Beginning
from sharegroup.processor.takeover.older_state import CheckedState
from sharegroup.processor.watches.topic_view import KnownTopic, TopicView
from sharegroup.protocol.internal_messages import ShareGroupStateDeleted
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import ResponseEnvelope
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_fetch import FetchTopic
from sharegroup.state.reader import Recovery
from tests.simulation.mutant import Mutant
from tests.simulation.table import SimulatedTable, SimulatedWriter, StoredTable


def _ignore_last_requests(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LastRequests, "repeated_by", lambda *_: None)


def _lose_the_outbox(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "_publish_outbox", lambda *_: None)


def _ignore_announcements(patch: pytest.MonkeyPatch) -> None:
    """Stale processors go on, and members take their responses."""
    patch.setattr(Beginning, "check_term", lambda *_: None)
    _take_responses_of_stale_processors(patch)


def _take_responses_of_stale_processors(patch: pytest.MonkeyPatch) -> None:
    receive = MemberProtocol.receive

    def receive_any(protocol: MemberProtocol, envelope: ResponseEnvelope, now_ms: int) -> None:
        followed = protocol._processor
        followed.leader_epoch = min(followed.leader_epoch, envelope.leader_epoch)
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

    def publish_first(loop: Loop, batch: Commit) -> None:
        responses = batch.responses()
        if responses:
            loop._publisher.publish([], responses, loop._commit_id + 1, loop._clocks.now_ms)
        commit(loop, batch)

    patch.setattr(Loop, "_commit", publish_first)
    patch.setattr(Loop, "_publish", publish)


def _start_locks_at_the_first_message(patch: pytest.MonkeyPatch) -> None:
    apply = Groups.apply

    def apply_early(groups: Groups, cut: TakenCut) -> list[GroupOutput]:
        return apply(groups, replace(cut, cut_ms=cut.times_ms[0]))

    patch.setattr(Groups, "apply", apply_early)


def _ignore_session_epochs(patch: pytest.MonkeyPatch) -> None:
    def checked(
        sessions: ShareSessions, message: LoggedRequest, epoch: int, topics: Sequence[FetchTopic]
    ) -> ShareSession:
        session = sessions.get(message.envelope.member_id)
        return session if session is not None else sessions.open(message.envelope.member_id)

    patch.setattr(ShareSessions, "checked", checked)


def _keep_expired_locks(patch: pytest.MonkeyPatch) -> None:
    """Locks end with a Tick only, not before each message."""
    expire = HolderLiveness.expire_locks

    def expire_at_ticks(liveness: HolderLiveness, message: LoggedRequest, limits: SharePartitionLimits) -> None:
        if message.envelope.api_key == 10001:
            expire(liveness, message, limits)

    patch.setattr(HolderLiveness, "expire_locks", expire_at_ticks)


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


def _keep_actors_that_failed(patch: pytest.MonkeyPatch) -> None:
    """A group goes on with the actors that an exception left behind."""
    actors: dict[str, GroupActors] = {}
    begin = Groups._begin_rebuild

    def begin_and_keep(
        groups: Groups, group_id: str, partition: int, messages: list[LoggedRequest], failed: ActorFailedError
    ) -> None:
        actors[group_id] = groups._groups[group_id]
        begin(groups, group_id, partition, messages, failed)

    patch.setattr(Groups, "_begin_rebuild", begin_and_keep)
    patch.setattr(Groups, "_rebuilt", lambda _, rebuild: actors[rebuild.group_id])


def _forget_dead_letters_at_a_takeover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeadLetterWriter, "resume", lambda *_: None)


def _confirm_dead_letters_that_failed(patch: pytest.MonkeyPatch) -> None:
    """Dead letters count as written when their topic took none of them."""

    def append(log: Log, topic: str, records: Mapping[int, Sequence[NewRecord]]) -> int:
        with suppress(LogError):
            append_dead_letter_records(log, topic, records)
        return 0

    patch.setattr(dead_letter_writer, "append_dead_letter_records", append)


def _keep_the_state_of_a_deleted_topic(patch: pytest.MonkeyPatch) -> None:
    """The leader says that a state is deleted, and keeps it."""
    delete = StateLifetimes.delete

    def keep(lifetimes: StateLifetimes, message: LoggedRequest) -> list[ShareGroupStateDeleted]:
        body = {**message.envelope.body, "state_epoch": -1}
        return delete(lifetimes, message._replace(envelope=message.envelope.model_copy(update={"body": body})))

    patch.setattr(StateLifetimes, "delete", keep)


def _take_a_new_topic_for_the_old_one(patch: pytest.MonkeyPatch) -> None:
    """A topic that was created again, with as many partitions, is not noticed."""
    change_for = TopicView.change_for

    def change(view: TopicView, known: KnownTopic) -> KnownTopic | None:
        result = change_for(view, known)
        return None if result is not None and known[0] and result[0] and result[1] == known[1] else result

    patch.setattr(TopicView, "change_for", change)


def _acquire_new_records_while_draining(patch: pytest.MonkeyPatch) -> None:
    fresh = SharePartition._fresh

    def fresh_in_any_case(
        partition: SharePartition, limits: SharePartitionLimits, log_end_offset: int, now_ms: int
    ) -> Run | None:
        return fresh(partition, replace(limits, is_draining=False), log_end_offset, now_ms)

    patch.setattr(SharePartition, "_fresh", fresh_in_any_case)


def _deliver_imported_records_again(patch: pytest.MonkeyPatch) -> None:
    """Records that another system has finished begin as available ones."""
    import_batches = SharePartition.import_batches

    def import_available(
        partition: SharePartition, batches: Iterable[StateBatch], limits: SharePartitionLimits
    ) -> list[SharePartitionRecord]:
        available = [batch._replace(delivery_state=RecordState.AVAILABLE) for batch in batches]
        return import_batches(partition, available, limits)

    patch.setattr(SharePartition, "import_batches", import_available)


def _redrive_with_the_old_count(patch: pytest.MonkeyPatch) -> None:
    def with_old_count(run: Run, cause: Cause, limits: SharePartitionLimits, now_ms: int) -> Transition:
        made = transition_of(run, cause, limits, now_ms)
        return made._replace(delivery_count=run.delivery_count) if cause is Cause.REDRIVE else made

    patch.setattr("sharegroup.core.share_partition.transition_of", with_old_count)


def _commit_on_top_of_a_restored_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedWriter, "_check_own", lambda _: None)


def _take_over_an_older_copy(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takeover, "checked_state", lambda *_: CheckedState("", frozenset(), -1))


def _presume_members_dead_too_early(patch: pytest.MonkeyPatch) -> None:
    watch = MemberSilence.watch

    def watch_briefly(silence: MemberSilence, member_id: str, now_ms: int) -> None:
        silence._silence_ms = min(silence._silence_ms, 500)
        watch(silence, member_id, now_ms)

    patch.setattr(MemberSilence, "watch", watch_briefly)


def _deliver_suspects_beside_others(patch: pytest.MonkeyPatch) -> None:
    def turn_of(turns: SuspectTurns, session: ShareSession, *_: int) -> Turn:
        return Turn.SUSPECTS if any(key in session for key in turns.waiting) else Turn.OTHERS

    patch.setattr(SuspectTurns, "turn_of", turn_of)


def _deliver_suspects_together(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acquisition, "portion_size", lambda suspect_count, *_: suspect_count)


def _count_silence_without_signs_of_life(patch: pytest.MonkeyPatch) -> None:
    def watch_all(silence: MemberSilence, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            silence.watch(member_id, silence._last_own_ms or 0)

    patch.setattr(MemberSilence, "forget", watch_all)


MUTANTS = (
    Mutant("a request is applied twice after a takeover", _ignore_last_requests, first_seed=15),
    Mutant("a takeover loses the outbox", _lose_the_outbox),
    Mutant("a stale processor goes on responding", _ignore_announcements),
    Mutant("members take responses of a stale processor", _take_responses_of_stale_processors),
    Mutant("a table snapshot hides the last marker", _forget_the_marker_in_a_snapshot),
    Mutant("responses leave before their commit", _publish_before_the_commit),
    Mutant("locks run from the first message of the cut", _start_locks_at_the_first_message),
    Mutant("session epochs are not checked", _ignore_session_epochs),
    Mutant("a lock that is over still counts", _keep_expired_locks),
    Mutant("messages are applied again after their commit", _apply_messages_twice),
    Mutant("a marker is one message ahead", _skip_a_message),
    Mutant("a failed actor goes on", _keep_actors_that_failed, first_seed=60),
    Mutant("a takeover forgets dead letters", _forget_dead_letters_at_a_takeover, first_seed=25),
    Mutant("dead letters that failed count as written", _confirm_dead_letters_that_failed, first_seed=80),
    Mutant("the state of a deleted topic stays", _keep_the_state_of_a_deleted_topic),
    Mutant("a topic that was created again is not noticed", _take_a_new_topic_for_the_old_one, first_seed=450),
    Mutant("a group that drains takes new records", _acquire_new_records_while_draining),
    Mutant("imported records are delivered again", _deliver_imported_records_again, first_seed=20),
    Mutant("redriven records keep their delivery count", _redrive_with_the_old_count, first_seed=70),
    Mutant("a processor commits on top of a restored version", _commit_on_top_of_a_restored_version),
    Mutant("a takeover accepts an older copy", _take_over_an_older_copy, first_seed=30),
    Mutant("members are presumed dead too early", _presume_members_dead_too_early, first_seed=25),
    Mutant("silence counts without signs of life", _count_silence_without_signs_of_life, first_seed=25),
    Mutant("suspects are delivered beside other records", _deliver_suspects_beside_others),
    Mutant("suspects are delivered all together", _deliver_suspects_together),
)
