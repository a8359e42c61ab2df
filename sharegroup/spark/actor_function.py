"""The bridge between Spark's stateful operator and the actors: rows in, one row of effects out for each actor."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
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
from sharegroup.actor.undecodable import judged
from sharegroup.config.broker import BrokerConfig
from sharegroup.protocol.api_key import RECIPIENTS, ActorRole
from sharegroup.spark.bootstrap import bootstrap_state

UNDECODABLE = "undecodable"
"""Role of the messages that belong to no actor."""

STATE_SCHEMA = "state binary"
OUTPUT_SCHEMA = (
    "group_id string, role string, request_partition int, end_offset bigint, message_count int, batch_ms bigint, "
    "effects binary"
)


@dataclass(frozen=True)
class ActorOutput:
    """What one actor made of its messages in a micro-batch."""

    group_id: str
    role: str
    request_partition: int
    end_offset: int
    message_count: int
    batch_ms: int
    effects: list[Effect]


def routed(requests: DataFrame) -> DataFrame:
    """One row for each message and each actor that receives it, with the batch's time.

    Args:
        requests: rows of the request log: partition, offset, timestamp, value.
    """
    text = F.col("value").cast("string")
    api_key = F.get_json_object(text, "$.api_key").cast("int")
    group_id = F.coalesce(F.get_json_object(text, "$.group_id"), F.lit(""))
    roles = F.when(group_id == "", F.array(F.lit(UNDECODABLE)))
    for key, recipients in RECIPIENTS.items():
        roles = roles.when(api_key == int(key), F.array(*(F.lit(role.value) for role in recipients)))
    return requests.select(
        group_id.alias("group_id"),
        F.explode(roles.otherwise(F.array(F.lit(UNDECODABLE)))).alias("role"),
        F.col("partition").alias("request_partition"),
        F.col("offset").alias("request_offset"),
        _milliseconds(F.col("timestamp_ms")).alias("time_ms"),
        F.col("value"),
        _milliseconds(F.current_timestamp()).alias("batch_ms"),
    )


def with_actors(messages: DataFrame, broker: BrokerConfig, leader_epoch: int, bootstrap: Path) -> DataFrame:
    """Run the actors over routed messages, with their state in Spark's state store."""
    return messages.groupBy("group_id", "role").applyInPandasWithState(
        actor_function(broker, leader_epoch, bootstrap), OUTPUT_SCHEMA, STATE_SCHEMA, "append", "NoTimeout"
    )


def actor_function(
    broker: BrokerConfig, leader_epoch: int, bootstrap: Path
) -> Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """The function that Spark calls with an actor's key, its messages and its state.

    Args:
        broker: defaults and bounds of all groups.
        leader_epoch: epoch of this processor.
        bootstrap: folder of the states that a recovery wrote, for actors that the state store does not know.
    """

    def run(key: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        group_id, role = key
        messages = pd.concat(frames).sort_values(["request_partition", "request_offset"])
        records = list(
            zip(
                messages["request_offset"].tolist(),
                messages["time_ms"].tolist(),
                messages["value"].tolist(),
                strict=True,
            )
        )
        batch_ms = int(messages["batch_ms"].iloc[0])
        if role == UNDECODABLE:
            # These come from any partition, so that each partition has its own end offset.
            for partition in sorted(set(messages["request_partition"].tolist())):
                part = messages[messages["request_partition"] == partition]
                found = zip(part["request_offset"].tolist(), part["value"].tolist(), strict=True)
                refused = [judged(value, offset, None) for offset, value in found]
                yield _output(key, partition, part, batch_ms, _effects_among(refused))
            return
        context = ActorContext(group_id, int(messages["request_partition"].iloc[0]), leader_epoch, broker)
        judgements = [judged(value, offset, group_id, time_ms) for offset, time_ms, value in records]
        requests = [item for item in judgements if isinstance(item, LoggedRequest)]
        before = (
            ActorState.decoded(bytes(state.get[0]))
            if state.exists
            else bootstrap_state(bootstrap, group_id, ActorRole(role))
        )
        after, effects = run_batch(ActorRole(role), context, before, requests, batch_ms)
        state.update((after.encoded(),))
        yield _output(key, context.request_partition, messages, batch_ms, [*_effects_among(judgements), *effects])

    return run


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
            # Written by `_output` in this application's own workers, never read from a log.
            pickle.loads(bytes(row.effects)),
        )
        for row in batch.collect()
    ]


def _effects_among(judgements: Iterable[LoggedRequest | Effect]) -> list[Effect]:
    return [item for item in judgements if not isinstance(item, LoggedRequest)]


def _output(
    key: tuple[str, str], request_partition: int, messages: pd.DataFrame, batch_ms: int, effects: list[Effect]
) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "group_id": [key[0]],
            "role": [key[1]],
            "request_partition": [request_partition],
            "end_offset": [int(messages["request_offset"].max()) + 1],
            "message_count": [len(messages)],
            "batch_ms": [batch_ms],
            "effects": [pickle.dumps(effects, protocol=pickle.HIGHEST_PROTOCOL)],
        }
    )


def _milliseconds(timestamp: Column) -> Column:
    return F.unix_millis(timestamp)
