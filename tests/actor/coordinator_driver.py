"""A coordinator by itself: messages in, effects out, one cut at a time."""

from __future__ import annotations

from typing import TypeVar

from sharegroup.actor.context import ActorContext, CutTime, LoggedRequest
from sharegroup.actor.coordinator import Coordinator
from sharegroup.actor.effects import Effect, Persist, Respond, Send
from sharegroup.config.broker import BrokerConfig
from sharegroup.coordinator.group_state import GroupState
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import JOIN_EPOCH, LEAVE_EPOCH, ShareGroupHeartbeatRequest
from sharegroup.protocol.internal_messages import (
    LogOffsets,
    ShareGroupStateDeleted,
    ShareGroupStateInitialized,
    StatePartition,
    StateTopic,
    Tick,
    TopicLogOffsets,
)
from sharegroup.protocol.messages import Message, RequestEnvelope, request
from sharegroup.state.fold import FoldedGroup, FoldedState, advance

GROUP_ID = "packers"
START_MS = 1_000_000
EffectType = TypeVar("EffectType", bound=Effect)


class CoordinatorDriver:
    """A coordinator, the request log's offsets and clock, and the rows so far."""

    def __init__(self, broker: BrokerConfig | None = None, group_epoch_floor: int = 0) -> None:
        self.context = ActorContext(GROUP_ID, 0, 1, broker or BrokerConfig(), group_epoch_floor)
        self.coordinator = Coordinator(self.context)
        self.folded = FoldedState()
        self.effects: list[Effect] = []
        """Those of the last cut."""
        self.now_ms = START_MS
        self._offset = 0

    @property
    def state(self) -> GroupState:
        return self.coordinator.group.state

    def apply(self, *envelopes: RequestEnvelope) -> list[Effect]:
        """Apply messages in one cut; each row is folded."""
        for envelope in envelopes:
            self.coordinator.receive(LoggedRequest(envelope, self._offset, self.now_ms))
            self._offset += 1
        self.effects = self.coordinator.finish(self._offset - 1, CutTime(self.now_ms, self.now_ms))
        for effect in self.effects:
            if isinstance(effect, Persist):
                advance(self.folded, effect.row.model_validate_json(effect.row.model_dump_json()))
        return self.effects

    def take_over(self) -> list[Effect]:
        """Go on with another coordinator of the next leader epoch; its first message is a Tick."""
        group = self.folded.groups.get(GROUP_ID, FoldedGroup(GROUP_ID))
        self.context = ActorContext(GROUP_ID, 0, self.context.leader_epoch + 1, self.context.broker)
        self.coordinator = Coordinator(self.context, group.metadata)
        return self.apply(self.message(ApiKey.TICK, Tick()))

    def of_type(self, kind: type[EffectType]) -> list[EffectType]:
        """Effects of the last cut."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def sent(self) -> list[RequestEnvelope]:
        """The messages of the last cut to the leader."""
        return [effect.request for effect in self.of_type(Send)]

    @property
    def responses(self) -> list[dict[str, object]]:
        """Bodies of the last cut's responses."""
        return [effect.response.body for effect in self.of_type(Respond)]

    # Messages.

    def message(self, api_key: ApiKey, body: Message) -> RequestEnvelope:
        return request(api_key, GROUP_ID, body, leader_epoch=self.context.leader_epoch)

    def heartbeat(self, member_id: str, epoch: int | None = None, *topics: str) -> RequestEnvelope:
        member = self.state.members.get(member_id)
        known_epoch = member.member_epoch if member else JOIN_EPOCH
        body = ShareGroupHeartbeatRequest(
            member_epoch=known_epoch if epoch is None else epoch, subscribed_topic_names=list(topics) or None
        )
        return request(
            ApiKey.SHARE_GROUP_HEARTBEAT, GROUP_ID, body, member_id=member_id, correlation_id=1, reply_partition=0
        )

    def join(self, member_id: str, *topics: str) -> RequestEnvelope:
        return self.heartbeat(member_id, JOIN_EPOCH, *(topics or ("orders",)))

    def leave(self, member_id: str) -> RequestEnvelope:
        return self.heartbeat(member_id, LEAVE_EPOCH)

    def lookup(self, sequence: int, topic_id: str, partition_count: int = 1, topic: str = "orders") -> RequestEnvelope:
        seen = TopicLogOffsets(topic=topic, topic_id=topic_id, partition_count=partition_count, sequence=sequence)
        return self.message(ApiKey.LOG_OFFSETS, LogOffsets(topics=[seen]))

    def initialized(self, topic_id: str, partition_count: int = 1, topic: str = "orders") -> RequestEnvelope:
        partitions = [StatePartition(partition_index=partition) for partition in range(partition_count)]
        state_topic = StateTopic(topic_id=topic_id, topic=topic, partitions=partitions)
        body = ShareGroupStateInitialized(state_epoch=self.state.group_epoch, topics=[state_topic])
        return self.message(ApiKey.SHARE_GROUP_STATE_INITIALIZED, body)

    def deleted(self, topic_id: str) -> RequestEnvelope:
        body = ShareGroupStateDeleted(state_epoch=self.state.group_epoch, topic_ids=[topic_id])
        return self.message(ApiKey.SHARE_GROUP_STATE_DELETED, body)


def with_orders(partition_count: int = 1) -> CoordinatorDriver:
    """A group with member anna, whose topic `orders` has its state; lookups so far had sequences up to 10."""
    driver = CoordinatorDriver()
    driver.apply(driver.join("anna"))
    driver.apply(driver.lookup(10, "orders-id", partition_count))
    driver.apply(driver.initialized("orders-id", partition_count))
    driver.now_ms += 2_000
    driver.apply(driver.message(ApiKey.TICK, Tick()))
    return driver
