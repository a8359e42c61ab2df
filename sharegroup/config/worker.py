"""WorkerConfig: configuration of a Spark worker, which reads acquired ranges as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import Field

from sharegroup.config.consumer import CONSUMER_REFUSAL, CONSUMER_REFUSED, AcquireMode
from sharegroup.config.model import Config, Int, NonEmpty, TopicNames


class WorkerConfig(Config):
    """Configuration of a Spark worker.

    `max.poll.records` is 10,000 where a consumer has 500: a worker pays for a Spark job with each batch, not for
    each record.
    """

    refused: ClassVar[Mapping[str, str]] = CONSUMER_REFUSED
    refusal: ClassVar[str] = CONSUMER_REFUSAL

    group_id: NonEmpty = Field(description="The share group.")
    topics: TopicNames = Field(description="The topics that the worker subscribes to.")
    client_id: str = Field(default="", description="Free name of the worker, for people who read logs.")
    share_acquire_mode: AcquireMode = Field(
        default="batch_optimized", description="Whether `max.poll.records` may be exceeded to the end of a run."
    )
    max_poll_records: Annotated[Int, Field(ge=1)] = Field(
        default=10_000, description="Records that are acquired for one batch; a soft limit with `batch_optimized`."
    )
    worker_ranges_in_flight: Annotated[Int, Field(ge=1, le=64)] = Field(
        default=2, description="Acquired batches that are read or processed at once."
    )
