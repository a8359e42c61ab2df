"""Kafka's own ShareCoordinatorShard, recorded, against the share coordinator: every step equal, every byte too."""

from __future__ import annotations

from typing import Any

from tests.conformance.shard_replay import ShardReplay


def test_conversation(conversation: dict[str, Any]) -> None:
    replay = ShardReplay(conversation["config"])
    for index, step in enumerate(conversation["steps"]):
        assert replay.carry_out(step) == step["expect"], f"step {index}: {step['op']}"
