"""The bridge between Spark's stateful operator and the actors: rows in, one row of effects out for each actor."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from sharegroup.actor.context import ActorContext, LoggedRequest
from sharegroup.actor.effects import Effect
from sharegroup.actor.mailbox import ActorState, run_batch
from sharegroup.actor.undecodable import judged, refusal
from sharegroup.config.broker import BrokerConfig
from sharegroup.errors import ApiError, InvalidRequestError
from sharegroup.logs.partitioner import partition_for
from sharegroup.metrics.progress import BATCH_FIGURES, OBSERVATION, batch_figures
from sharegroup.protocol.api_key import RECIPIENTS, ActorRole
from sharegroup.spark.bootstrap import bootstrap_state

UNDECODABLE = "undecodable"
"""Role of the messages that belong to no actor."""

STATE_SCHEMA = "state binary"
OUTPUT_SCHEMA = (
    "group_id string, role string, request_partition int, end_offset bigint, message_count int, batch_ms bigint, "
    "oldest_ms bigint, effects binary, figures array<bigint>"
)


@dataclass(frozen=True)
class ActorOutput:
    """What one actor made of its messages in a micro-batch; `oldest_ms` is when the first of them was appended."""

    group_id: str
    role: str
    request_partition: int
    end_offset: int
    message_count: int
    batch_ms: int
    oldest_ms: int
    effects: list[Effect]


def routed(requests: DataFrame) -> DataFrame:
    """One row for each message and each actor that receives it, with the batch's time.

    The first recipient of a message, number 0, speaks for all of them when it is refused.

    Args:
        requests: rows of the request log: partition, offset, timestamp, value.
    """
    text = F.col("value").cast("string")
    api_key = F.get_json_object(text, "$.api_key").try_cast("int")
    group_id = F.coalesce(F.get_json_object(text, "$.group_id"), F.lit(""))
    roles = F.when(group_id == "", F.array(F.lit(UNDECODABLE)))
    for key, recipients in RECIPIENTS.items():
        roles = roles.when(api_key == int(key), F.array(*(F.lit(role.value) for role in recipients)))
    return requests.select(
        group_id.alias("group_id"),
        F.posexplode(roles.otherwise(F.array(F.lit(UNDECODABLE)))).alias("recipient", "role"),
        F.col("partition").alias("request_partition"),
        F.col("offset").alias("request_offset"),
        _milliseconds(F.col("timestamp")).alias("time_ms"),
        F.col("value"),
        _milliseconds(F.current_timestamp()).alias("batch_ms"),
    )


def with_actors(
    messages: DataFrame, broker: BrokerConfig, leader_epoch: int, bootstrap: Path, request_partition_count: int
) -> DataFrame:
    """Run the actors over routed messages, with their state in Spark's state store.

    Args:
        messages: what `routed` made.
        broker: defaults and bounds of all groups.
        leader_epoch: epoch of this processor.
        bootstrap: folder of the states that a recovery wrote, for actors that the state store does not know.
        request_partition_count: partitions of the request log.

    Returns:
        One row for each actor; the progress of their query has `BATCH_FIGURES` of each micro-batch.
    """
    run = ActorFunction(broker, leader_epoch, bootstrap, request_partition_count)
    outputs = messages.groupBy("group_id", "role").applyInPandasWithState(
        run, OUTPUT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
    )
    figures = F.col("figures")
    return outputs.observe(
        OBSERVATION,
        *(F.coalesce(F.sum(figures[i]), F.lit(0)).alias(name) for i, name in enumerate(BATCH_FIGURES)),
    )


@dataclass(frozen=True)
class ActorFunction:
    """The function that Spark calls with an actor's key, its messages and its state; see `with_actors`."""

    broker: BrokerConfig
    leader_epoch: int
    bootstrap: Path
    request_partition_count: int

    def __call__(self, key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        """One row for the messages of each request partition; the state follows those of the group's own."""
        group_id, role = key
        messages = pd.concat(frames)
        for partition in sorted(set(messages["request_partition"].tolist())):
            part = messages[messages["request_partition"] == partition].sort_values("request_offset")
            if role == UNDECODABLE:
                yield _output(key, partition, part, _judged(part, None)[1])
            elif partition != partition_for(group_id, self.request_partition_count):
                # Order holds within a partition only: what came by another one is not of this group's history.
                error = InvalidRequestError(f"Group {group_id} is not in partition {partition} of the request log.")
                yield _output(key, partition, part, _refused(part, error))
            else:
                yield _output(key, partition, part, self._run(group_id, ActorRole(role), partition, part, state))

    def _run(
        self, group_id: str, role: ActorRole, partition: int, messages: pd.DataFrame, state: GroupState
    ) -> list[Effect]:
        requests, refusals = _judged(messages, group_id)
        before = (
            ActorState.decoded(bytes(state.get[0])) if state.exists else bootstrap_state(self.bootstrap, group_id, role)
        )
        context = ActorContext(group_id, partition, self.leader_epoch, self.broker)
        after, effects = run_batch(role, context, before, requests, int(messages["batch_ms"].iloc[0]))
        if after != before:
            # A message that changes nothing leaves no state behind: its group may not even exist.
            state.update((after.encoded(),))
        return [*refusals, *effects]


def actor_outputs(batch: DataFrame) -> list[ActorOutput]:
    """The actors' outputs of a micro-batch, collected to the driver."""
    return [
        ActorOutput(
            row.group_id,
            row.role,
            row.request_partition,
            row.end_offset,
            row.message_count,
            row.batch_ms,
            row.oldest_ms,
            # Written by `_output` in this application's own workers, never read from a log.
            pickle.loads(bytes(row.effects)),
        )
        for row in batch.collect()
    ]


def _judged(messages: pd.DataFrame, group_id: str | None) -> tuple[list[LoggedRequest], list[Effect]]:
    """The messages for an actor, and the refusals of the others."""
    requests: list[LoggedRequest] = []
    refusals: list[Effect] = []
    columns = _columns(messages, "request_offset", "time_ms", "value", "recipient")
    for offset, time_ms, value, recipient in columns:
        found = judged(value, offset, group_id, time_ms)
        if isinstance(found, LoggedRequest):
            requests.append(found)
        elif recipient == 0:
            refusals.append(found)
    return requests, refusals


def _refused(messages: pd.DataFrame, error: ApiError) -> list[Effect]:
    columns = _columns(messages, "request_offset", "value", "recipient")
    return [refusal(value, offset, error) for offset, value, recipient in columns if recipient == 0]


def _columns(messages: pd.DataFrame, *names: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(messages[name].tolist() for name in names), strict=True)


def _output(
    key: tuple[str, str], request_partition: int, messages: pd.DataFrame, effects: list[Effect]
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "group_id": [key[0]],
            "role": [key[1]],
            "request_partition": [request_partition],
            "end_offset": [int(messages["request_offset"].iloc[-1]) + 1],
            "message_count": [len(messages)],
            "batch_ms": [int(messages["batch_ms"].iloc[0])],
            "oldest_ms": [int(messages["time_ms"].min())],
            "effects": [pickle.dumps(effects, protocol=pickle.HIGHEST_PROTOCOL)],
            "figures": [batch_figures(effects)],
        }
    )


def _milliseconds(timestamp: Column) -> Column:
    return F.unix_millis(timestamp)
