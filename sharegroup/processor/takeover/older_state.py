"""Detection of a state table that lacks commits, and its acceptance as a new state.

A table that lacks a commit on which a published response depends, or the fence of a processor that was announced, is an
older copy than the logs. One from which another program has removed rows shows it by itself (`state/lost_rows.py`). A
takeover refuses both, unless an administrator accepts the loss.

Leader epochs and commit ids rise within one state. An older copy gives some of them again: members, which have seen
them, would drop all responses, and the announcements of the lost processors would fence the new one. So an accepted
copy is a new state: it gets an id of its own, in the fence row of that takeover, and each later fence carries it on.
Announcements and responses to heartbeats name it, so members join again. Without such an id, that of the table counts.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sharegroup.config.broker import BrokerConfig
from sharegroup.config.group import effective_group_config
from sharegroup.config.processor_config import ProcessorConfig
from sharegroup.errors import InvalidRequestError, OlderStateError
from sharegroup.event_log import Event
from sharegroup.logs.port import Log, LogRecord
from sharegroup.processor.commit import FencedTable
from sharegroup.processor.output import COMMIT_ID_HEADER
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.messages import RequestEnvelope, ResponseEnvelope, decoded_request, decoded_response
from sharegroup.protocol.row_payloads import EarlierState, FencePayload
from sharegroup.protocol.rows import StateRow
from sharegroup.state.commit_log import NO_COMMIT
from sharegroup.state.fold import FoldedState, fold
from sharegroup.state.reader import CommitMarkerInfo, Recovery

logger = logging.getLogger("sharegroup.processor")

_READ_AT_ONCE = 10_000
_MOST_BYTES = 64 * 1024 * 1024
_LAST_RESPONSES = 100
_LONGEST_ANNOUNCEMENT = 10_000


@dataclass(frozen=True, slots=True)
class PresentState:
    """The state of a table's groups after its last commit.

    Attributes:
        folded: all groups; they change with the processor.
        fold_again: returns the same groups as separate objects.
        last_marker: marker of the last commit; None when there is none yet.
    """

    folded: FoldedState
    fold_again: Callable[[], FoldedState]
    last_marker: CommitMarkerInfo | None


class CheckedState(NamedTuple):
    """A state table that lacks nothing, or is accepted as it is.

    Attributes:
        state_id: id of the state if it differs from the table's own, else "".
        announced_epochs: leader epochs of the processors that were announced after the last marker.
        accepted_commit_id: last commit of the table when an administrator accepted it; -1 if nobody did before.
        is_accepted: True if this takeover accepts it.
        earlier_states: the states before, each of which ended when an older copy was accepted.
    """

    state_id: str
    announced_epochs: frozenset[int]
    accepted_commit_id: int
    is_accepted: bool = False
    earlier_states: tuple[EarlierState, ...] = ()


def folded_recovery(recovery: Recovery) -> PresentState:
    """Return the state of the groups by the rows that decide it."""
    return PresentState(fold(recovery.rows), lambda: fold(recovery.rows), recovery.last_marker)


class StateTable(Protocol):
    """The state table before a takeover; see `StateTableReader` for the methods."""

    def exists(self) -> bool:
        """Return True if there is a table."""
        ...

    def last_fence(self) -> StateRow | None:
        """Return the fence of the processor that took over last."""
        ...

    def last_marker(self) -> CommitMarkerInfo | None:
        """Return the last marker."""
        ...

    def leader_epoch(self) -> int:
        """Return the highest leader epoch."""
        ...

    def state_id(self) -> str:
        """Return the id of the table; a table that is created again has another one."""
        ...

    def present_state(self) -> PresentState:
        """Return the state of all groups; it is asked for once, after the fence."""
        ...

    def lost_rows(self, accepted_commit_id: int) -> str:
        """Return which rows another program has removed; see `state.lost_rows`."""
        ...

    def fence(
        self, identity: Mapping[str, Any], after_epoch: int | None = None, *, accepts_loss: bool = False
    ) -> FencedTable:
        """Commit a fence with the next leader epoch; create the table when it is missing.

        With `after_epoch` raise FencedProcessorError if a processor of a higher leader epoch has taken over. With
        `accepts_loss` the state begins with the rows that are there.
        """
        ...


def checked_state(
    log: Log, config: ProcessorConfig, table: StateTable, fence: StateRow | None, accepts_older_state: bool
) -> CheckedState:
    """Check the age of the state table.

    The earlier processor may still commit, publish and announce: so each log is read before the table, which must
    contain all of it.

    Args:
        accepts_older_state: True to make a new state of an older copy.

    Raises:
        OlderStateError: the state table is an older copy, and not accepted.
    """
    last = FencePayload.model_validate(fence.payload) if fence is not None else None
    state_id, accepted_commit_id = (last.state_id, last.accepted_commit_id) if last is not None else ("", NO_COMMIT)
    earlier = tuple(last.earlier_states) if last is not None else ()
    loss = ""
    try:
        if table.exists() and (loss := table.lost_rows(accepted_commit_id)):
            raise _lost(config, loss)
        announced = _check_age(log, config, table, state_id)
    except OlderStateError:
        if not accepts_older_state:
            raise
        new_id = str(uuid.uuid4())
        states = (*earlier, *_lost_states(log, config, table, state_id, new_id, has_gaps=bool(loss)))
        return CheckedState(new_id, frozenset(), accepted_commit_id, is_accepted=True, earlier_states=states)
    return CheckedState(state_id, announced, accepted_commit_id, earlier_states=earlier)


def log_awaiting_groups(folded: FoldedState, broker: BrokerConfig, state_id: str) -> None:
    """Log which groups acquire nothing before their sinks are taken over (`actor/earlier_states.py`)."""
    for group_id, group in folded.groups.items():
        config = effective_group_config(broker, group.metadata.config_overrides)
        if config.share_exactly_once_enable and config.share_exactly_once_accepted_state_id != state_id:
            command = f"sharegroup groups resolve --group {group_id} --older-state"
            logger.warning(Event("group_awaits_sinks", group=group_id, command=command))


def _check_age(log: Log, config: ProcessorConfig, table: StateTable, state_id: str) -> frozenset[int]:
    """Check that the table has what the logs depend on; return the leader epochs announced after its last marker."""
    published = _last_published_commit_id(log, config, state_id)
    marker = table.last_marker() if table.exists() else None
    commit_id = marker.commit_id if marker else -1
    if published > commit_id:
        raise _older_state(
            config, f"it ends with commit {commit_id}, and responses of commit {published} are published"
        )
    announced = _announced_epochs(log, config, marker.end_offsets if marker else {}, state_id)
    leader_epoch = table.leader_epoch() if table.exists() else 0
    if (last := max(announced, default=0)) > leader_epoch:
        raise _older_state(config, f"it ends with leader epoch {leader_epoch}, and epoch {last} was announced")
    return announced


def _lost_states(
    log: Log, config: ProcessorConfig, table: StateTable, state_id: str, new_id: str, *, has_gaps: bool
) -> list[EarlierState]:
    """Return the states of which the table lacks commits: its own, and those that began with other copies since.

    Args:
        has_gaps: True if commits before its last one are missing.
    """
    if not table.exists():
        return []
    marker = table.last_marker()
    ends = marker.payload.end_offsets if marker is not None else {}
    ids = [state_id or table.state_id()]
    for announcement in _announcements(log, config, ends):
        named = announcement.body.get("state_id")
        if isinstance(named, str) and named and named not in ids:
            ids.append(named)
    ended_ms = marker.time_ms if marker is not None else 0
    known = {} if has_gaps else dict(ends)
    return [EarlierState(state_id=each, ended_ms=ended_ms, followed_by=new_id, end_offsets=known) for each in ids]


def _older_state(config: ProcessorConfig, reason: str) -> OlderStateError:
    return OlderStateError(
        f"State table {config.state_table_path} is an older copy than the request log: {reason}.",
        "Restore the newest copy. To go on with this one, start with --accept-older-state: messages after its last "
        "commit are applied again, and records that were finished meanwhile are delivered again.",
    )


def _lost(config: ProcessorConfig, loss: str) -> OlderStateError:
    return OlderStateError(
        f"State table {config.state_table_path} lacks rows that were committed: {loss}.",
        "Restore the version before the other program's commit, which DESCRIBE HISTORY shows, or a copy. To go on "
        "without them, start with --accept-older-state: records that were finished in them are delivered again.",
    )


def _last_published_commit_id(log: Log, config: ProcessorConfig, state_id: str) -> int:
    """Return the highest commit id in the last responses; those before the first announcement of a new state differ."""
    highest = -1
    topic = config.response_topic_name
    for partition, offsets in log.offsets(topic).items():
        start = max(offsets.start_offset, offsets.end_offset - _LAST_RESPONSES)
        of_partition, is_of_state = -1, not state_id
        for record in log.read(topic, partition, start, offsets.end_offset, max_bytes=_MOST_BYTES):
            if not is_of_state and _announced(record, decoded_response, state_id):
                of_partition, is_of_state = -1, True
            for key, value in record.headers:
                if key == COMMIT_ID_HEADER and value is not None:
                    of_partition = max(of_partition, int(value))
        highest = max(highest, of_partition)
    return highest


def _announced_epochs(
    log: Log, config: ProcessorConfig, end_offsets: Mapping[int, int], state_id: str
) -> frozenset[int]:
    """Return the leader epochs that were announced after these offsets; of this state, if it has its own id."""
    return frozenset(each.leader_epoch for each in _announcements(log, config, end_offsets, state_id))


def _announcements(
    log: Log, config: ProcessorConfig, end_offsets: Mapping[int, int], state_id: str = ""
) -> Iterator[RequestEnvelope | ResponseEnvelope]:
    """Yield the announcements of processors after these offsets; those of one state, if it has its own id."""
    topic = config.request_topic_name
    for partition, offsets in log.offsets(topic).items():
        position = max(offsets.start_offset, end_offsets.get(partition, 0))
        while position < offsets.end_offset:
            records = log.read(topic, partition, position, offsets.end_offset, _READ_AT_ONCE, _MOST_BYTES)
            for record in records:
                announcement = _announced(record, decoded_request, state_id)
                if announcement is not None:
                    yield announcement
            position = records[-1].offset + 1 if records else offsets.end_offset


def _announced(
    record: LogRecord, decoded: Callable[[bytes], RequestEnvelope | ResponseEnvelope], state_id: str
) -> RequestEnvelope | ResponseEnvelope | None:
    """Return the announcement of a processor that a record is; None for others, and those of other states."""
    if record.key is not None or not record.value or len(record.value) > _LONGEST_ANNOUNCEMENT:
        return None
    try:
        envelope = decoded(record.value)
    except InvalidRequestError:
        return None
    if envelope.api_key != ApiKey.PROCESSOR_STARTED:
        return None
    return envelope if state_id in ("", envelope.body.get("state_id")) else None
