"""The other end of the wire: the real actors of all groups, in a thread of this process, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.effects import Effect, Persist, Respond, Send, Wake, WatchLog, WatchTopics
from sharegroup.actor.mailbox import ActorState, run_batch
from sharegroup.actor.undecodable import judged
from sharegroup.client.settings import ChannelTopics
from sharegroup.config.broker import BrokerConfig
from sharegroup.logs.partitioner import partition_for
from sharegroup.logs.port import Log, LogRecord, NewRecord
from sharegroup.protocol.api_key import RECIPIENTS, ActorRole, ApiKey
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import RequestEnvelope, decoded_request
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.spark.facts import FactSource
from sharegroup.state.writer import StateTableWriter

TOPICS = ChannelTopics()
REQUESTS, RESPONSES = TOPICS.request_topic_name, TOPICS.response_topic_name
WAIT_MS = 10

BROKER = BrokerConfig(
    group_share_assignment_interval_ms=0,
    group_share_min_record_lock_duration_ms=1_000,
    group_share_heartbeat_interval_ms=1_000,
    group_share_min_heartbeat_interval_ms=1_000,
)


class ProcessorPeer:
    """Answers requests as long as its `with` block lasts.

    Args:
        log: where requests, responses and records are.
        broker: defaults and limits of all groups.
        table: gets the rows of each batch before anyone is told; None keeps them nowhere.
    """

    def __init__(self, log: Log, broker: BrokerConfig = BROKER, table: StateTableWriter | None = None) -> None:
        log.create_topic(REQUESTS, 2, {"message.timestamp.type": "LogAppendTime"}, if_not_exists=True)
        log.create_topic(RESPONSES, 3, {}, if_not_exists=True)
        self.requests: list[RequestEnvelope] = []
        """Everything that members have sent, as it was judged."""
        self.failures: list[BaseException] = []
        self._log = log
        self._broker = broker
        self._table = table
        self._commit_id = -1
        self._states: dict[tuple[str, ActorRole], ActorState] = {}
        self._positions = dict.fromkeys(range(2), 0)
        self._facts = FactSource(log, self._send, self.failures.append)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="processor-peer", daemon=True)

    def __enter__(self) -> Self:
        self._facts.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._facts.stop()
        if error is None and self.failures:
            raise self.failures[0]

    def sent(self, api_key: ApiKey) -> list[RequestEnvelope]:
        """The requests of one kind."""
        return [envelope for envelope in self.requests if envelope.api_key == api_key]

    def stalled(self) -> threading.Lock:
        """A context manager: no batch runs inside it, as if the processor were down."""
        return self._lock

    def lose_sessions(self) -> None:
        """Forget share sessions, parked fetches and kept answers, as a recovery without a checkpoint does."""
        with self._lock:
            for (group_id, role), state in self._states.items():
                if role is ActorRole.LEADER and state.plain is not None:
                    plain = list(state.plain)
                    plain[2] = []
                    self._states[group_id, role] = ActorState(plain, state.last_time_ms)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set():
                if self._log.wait({(REQUESTS, p): at for p, at in self._positions.items()}, WAIT_MS):
                    with self._lock:
                        self._batch()
        except BaseException as failure:
            self.failures.append(failure)

    def _batch(self) -> None:
        ends = self._log.offsets(REQUESTS)
        batch_ms = time.time_ns() // 1_000_000
        inbox: dict[tuple[str, ActorRole], list[LoggedRequest]] = {}
        effects: list[Effect] = []
        for partition, position in self._positions.items():
            for record in self._log.read(REQUESTS, partition, position, ends[partition].end_offset):
                effects += self._sort(record, inbox)
            self._positions[partition] = ends[partition].end_offset
        for key, messages in inbox.items():
            effects += self._run_actor(key, messages, batch_ms)
        self._commit([effect.row for effect in effects if isinstance(effect, Persist)], batch_ms)
        facts = self._facts.update(e for e in effects if isinstance(e, Wake | WatchLog | WatchTopics))
        self._send([*(e.request for e in effects if isinstance(e, Send)), *facts])
        for effect in effects:
            if isinstance(effect, Respond):
                answer = NewRecord(effect.response.member_id.encode(), effect.response.encoded())
                self._log.append(RESPONSES, effect.partition, [answer])

    def _commit(self, rows: list[StateRow], batch_ms: int) -> None:
        if self._table is None:
            return
        self._commit_id += 1
        payload = CommitMarkerPayload(checkpoint_id="peer", end_offsets=dict(self._positions))
        marker = StateRow(
            record_type=RecordType.COMMIT_MARKER, time_ms=batch_ms, payload=payload.model_dump(mode="json")
        )
        self._table.append([row.model_copy(update={"commit_id": self._commit_id}) for row in (marker, *rows)])

    def _sort(self, record: LogRecord, inbox: dict[tuple[str, ActorRole], list[LoggedRequest]]) -> list[Effect]:
        group_id = (record.key or b"").decode()
        found = judged(record.value, record.offset, group_id, record.timestamp_ms)
        if not isinstance(found, LoggedRequest):
            return [found]
        if found.envelope.member_id:
            self.requests.append(decoded_request(record.value))
        for role in RECIPIENTS[ApiKey(found.envelope.api_key)]:
            inbox.setdefault((group_id, role), []).append(found)
        return []

    def _run_actor(self, key: tuple[str, ActorRole], messages: list[LoggedRequest], batch_ms: int) -> list[Effect]:
        group_id, role = key
        context = ActorContext(group_id, partition_for(group_id, 2), 0, self._broker)
        state, effects = run_batch(role, context, self._states.get(key, ActorState()), messages, batch_ms)
        # Through its bytes, as between two batches of the processor.
        self._states[key] = ActorState.decoded(state.encoded())
        return effects

    def _send(self, requests: Iterable[RequestEnvelope]) -> None:
        for envelope in requests:
            partition = partition_for(envelope.group_id, 2)
            self._log.append(REQUESTS, partition, [NewRecord(envelope.group_id.encode(), envelope.encoded())])


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    """Return once the condition holds; fail the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        pause.wait(0.005)
