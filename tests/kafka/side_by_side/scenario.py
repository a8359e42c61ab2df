"""Scenario files: what is produced, who consumes, how each delivery is acknowledged, and what must come of it.

A file is YAML (`tests/kafka/scenarios` has examples):

    about: one sentence
    group: {share.delivery.count.limit: 3}      # the group's configuration; it begins at the earliest offset
    records: [a, b, c]                          # produced first, to partition 0; or {0: [a, b], 1: [c]}
    members:
      worker: {mode: explicit, commit: sync}    # see Member
    acknowledgements:                           # what `consume` says of a record, delivery by delivery
      b: [release, release, release]            # every other record: accept; []: no delivery is waited for
    steps:                                      # see Steps
      - consume: worker
    expect:                                     # optional: without it, the two sides are compared with each other only
      deliveries: {a: [1 accept], b: [1 release, 2 release, 3 release], c: [1 accept]}
      final: {a: acknowledged 1, b: archived 3, c: acknowledged 1}
      start: {0: end}
    differs: []                                 # where the two sides differ on purpose, see Difference
    long: locks end by time                     # optional: why it takes more than 5 s

A record has a name, which is its value, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Say = Literal["accept", "release", "reject"]
Value = str | list[str]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_members(value: object) -> object:
    return value if isinstance(value, dict) else {"members": value}


def _by_partition(value: object) -> object:
    return {0: value} if isinstance(value, list) else value


def _as_produce(value: object) -> object:
    return {"records": value} if isinstance(value, list) else value


Names = Annotated[list[str], BeforeValidator(_listed)]
ByPartition = Annotated[dict[int, list[str]], BeforeValidator(_by_partition)]
Says = Annotated[list[Say], BeforeValidator(_listed)]


class Member(_Part):
    """A share consumer.

    Attributes:
        mode: its `share.acknowledgement.mode`.
        commit: how acknowledgements get to the group: by commit_sync, by commit_async, or with the next poll.
        config: more of its configuration.
        config_here: more of it on our side, for keys that only our consumer has.
    """

    mode: Literal["implicit", "explicit"] = "explicit"
    commit: Literal["sync", "async", "poll"] = "sync"
    config: dict[str, Any] = {}
    config_here: dict[str, Any] = {}


class Consume(_Part):
    """Members poll in turn, and acknowledge each record as the scenario scripts, until the script is done.

    Attributes:
        members: who polls.
        until: the records whose script is waited for; None for all.
    """

    members: Names
    until: Names | None = None


class Hold(_Part):
    """A member polls these records, by one poll, and says nothing; without names, whatever one poll brings."""

    member: str
    records: Names | None = None


class Acknowledge(_Part):
    """A member says something of records that it holds; of several words the last one counts."""

    member: str
    says: dict[str, Says]


class Produce(_Part):
    """Records are produced, each in a batch of its own unless the step has others.

    Attributes:
        records: their names.
        in_transaction: in a transaction that stays open until `end_transaction`.
        in_one_batch: those of a partition are one batch.
    """

    records: ByPartition
    in_transaction: bool = False
    in_one_batch: bool = False

    @model_validator(mode="after")
    def _is_possible(self) -> Produce:
        if self.in_transaction and self.in_one_batch:
            raise ValueError("in_transaction and in_one_batch are both set; records of a transaction are no one batch")
        return self


class Step(_Part):
    """One thing that happens. A member joins with the first step that names it.

    Attributes:
        consume: a member, a list of them, or a mapping of `Consume`.
        hold: poll, and say nothing.
        kill: a process of its own polls these records, and ends by SIGKILL.
        acknowledge: say something of what is held; it is not sent yet.
        commit: send the acknowledgements, in the member's way, and wait for the responses; records of polls are held.
        close: a member leaves.
        produce: records, later than the others.
        end_transaction: commit or abort it.
        join_at_the_end: a member joins a group that begins at the latest offset; once its first record came, the
            group has begun. Those that are produced to find out are no part of the scenario.
        delete_records: the log begins with this record from now on.
    """

    consume: Annotated[Consume, BeforeValidator(_as_members)] | None = None
    hold: Hold | None = None
    kill: Hold | None = None
    acknowledge: Acknowledge | None = None
    commit: str | None = None
    close: str | None = None
    produce: Annotated[Produce, BeforeValidator(_as_produce)] | None = None
    end_transaction: Literal["commit", "abort"] | None = None
    join_at_the_end: str | None = None
    delete_records: str | None = None

    @model_validator(mode="after")
    def _is_one_thing(self) -> Step:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"a step has one key, not {sorted(self.model_fields_set)}")
        return self

    @property
    def members(self) -> set[str]:
        """The members that take part in it."""
        alone = (self.commit, self.close, self.join_at_the_end)
        acting = (part.member for part in (self.hold, self.kill, self.acknowledge) if part is not None)
        polling = self.consume.members if self.consume is not None else []
        return {name for name in (*alone, *acting, *polling) if name is not None}


class Expectation(_Part):
    """The outcome of both sides, but for what `differs` says; the terms are those of `Outcome`."""

    deliveries: dict[str, list[str]]
    final: dict[str, str]
    start: dict[int, str]


class Difference(_Part):
    """A value that is another one here than in Kafka, on purpose (docs/differences.md).

    Attributes:
        name: which, as `Outcome.values` names it: `deliveries a`, `final a` or `start 0`.
        kafka: in Kafka; null when there is none.
        here: here; null when there is none.
        reason: why.
    """

    name: str
    kafka: Value | None
    here: Value | None
    reason: str = Field(min_length=1)


class Scenario(_Part):
    """A scenario file; see the module."""

    name: str
    about: str
    group: dict[str, Any] = {}
    records: ByPartition = {}
    members: dict[str, Member]
    acknowledgements: dict[str, Says] = {}
    steps: list[Step]
    expect: Expectation | None = None
    differs: list[Difference] = []
    long: str | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _has_all_members(self) -> Scenario:
        unknown = {name for step in self.steps for name in step.members} - self.members.keys()
        if unknown:
            raise ValueError(f"steps name {sorted(unknown)}, who is not among the members {sorted(self.members)}")
        return self

    @property
    def partition_count(self) -> int:
        """As many as records are produced to."""
        produced = [self.records, *(step.produce.records for step in self.steps if step.produce is not None)]
        return 1 + max((partition for records in produced for partition in records), default=0)


def read_scenarios(folder: Path) -> Iterable[Scenario]:
    """The scenarios of a folder, by name of their files.

    Raises:
        ValueError: a file is no scenario; names it.
    """
    for path in sorted(folder.glob("*.yaml")):
        try:
            yield Scenario.model_validate({"name": path.stem, **yaml.safe_load(path.read_text())})
        except (ValueError, TypeError, yaml.YAMLError) as error:
            raise ValueError(f"{path} is no scenario: {error}") from error
