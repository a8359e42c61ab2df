"""`write_once`: the results of a batch into the query's sink, in one commit that has the batch's write.

One batch is one acquisition, so the write that the leader named for it is in a column of each of its rows. When Spark
has committed the batch, the query's member asks the sink for that write, and reports what it says.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from sharegroup.client.held_records import HeldRange
from sharegroup.client.held_writes import HeldWrite
from sharegroup.client.pending_acknowledgements import Acknowledgement
from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.core.record_state import AcknowledgeType
from sharegroup.errors import InvalidRequestError, WriteFencedError
from sharegroup.event_log import Event
from sharegroup.spark.acknowledgement_frame import acknowledgements_of, check_not_renewed
from sharegroup.spark.sink.open_sinks import open_sink
from sharegroup.spark.sink.sink_write import SinkWrite
from sharegroup.spark.source.folder import AcknowledgementFolder

logger = logging.getLogger("sharegroup.spark.source")

WRITE_COLUMN = "write"
"""Column with the write of a batch; only with a sink."""


@dataclass(frozen=True)
class NamedWrite:
    """The write of a batch, as a column names it.

    Attributes:
        folder: folder with the ranges of the batch.
        given_up: offsets of the acquisition that are not in the batch: topic id, partition, first and last offset,
            number of the acknowledge type.
        config: `sink.…` keys.
    """

    write: HeldWrite
    folder: str
    given_up: list[list[Any]] = field(default_factory=list)
    config: Mapping[str, object] = field(default_factory=dict)

    def text(self) -> str:
        """Return the value of the column."""
        return json.dumps([list(self.write), self.folder, self.given_up, dict(self.config)], separators=(",", ":"))

    @classmethod
    def parsed(cls, text: str) -> NamedWrite:
        """Return the write of a value."""
        write, folder, given_up, config = json.loads(text)
        return cls(HeldWrite(*write), folder, given_up, config)


def write_once(batch: DataFrame, results: DataFrame, acknowledgements: DataFrame | None = None) -> None:
    """Write the results of a batch into the query's sink; they are there once, whatever is killed or started twice.

    Call it once in `foreachBatch`, as the last thing: Spark's commit of a batch without its write in the sink stops
    the query. If the results are there, all of the batch's records are accepted but those with another acknowledgement.

    Args:
        batch: the batch, with its column `write`.
        results: rows for the sink; there may be none.
        acknowledgements: topic, partition, offset and acknowledge_type (`release` or `reject`) of records that are not
            accepted, and optionally redelivery_delay_ms.

    Raises:
        InvalidRequestError: the query has no sink, the batch lacks the column, or was written before; or an
            acknowledgement is of no record of the batch, or of an unknown type.
        ConfigurationError: the session is one of Spark Connect.
        SinkError: the sink cannot be read or written; Spark executes the batch again when the query is started again.
    """
    named = _named(batch)
    if named is None:
        # All its records were deleted from the log meanwhile.
        return
    write = named.write
    folder = AcknowledgementFolder(Path(named.folder))
    given_up = [
        Acknowledgement(topic_id, partition, first, last, AcknowledgeType(kind))
        for topic_id, partition, first, last, kind in named.given_up
    ]
    acks = acknowledgements_of(acknowledgements, _ranges(folder, write))
    check_not_renewed(acks)
    sink = open_sink(results.sparkSession, write.address, SparkSinkConfig.from_mapping(named.config))
    if not folder.claim_write():
        raise InvalidRequestError(
            "write_once was called before with this batch.", "Call it once, with all results: unite them first."
        )
    try:
        SinkWrite(sink, write).commit(results, [*acks, *given_up])
    except WriteFencedError as error:
        # Its records come again, with another batch; this one has nothing to write.
        logger.warning(Event("batch_fenced", write=write.version, reason=error))
    except BaseException:
        # Another call may try again: the table takes one of them.
        folder.return_write()
        raise


def _named(batch: DataFrame) -> NamedWrite | None:
    if WRITE_COLUMN not in batch.columns:
        raise InvalidRequestError(
            f"The batch lacks the column {WRITE_COLUMN}; it has {', '.join(batch.columns)}.",
            "Set the query's option sink, and pass the batch as foreachBatch receives it.",
        )
    row = batch.select(WRITE_COLUMN).head()
    if row is not None and not row[0]:
        raise InvalidRequestError(
            "The batch was begun before the query had a sink.",
            "Start the query once without the option sink, until it has committed the batch.",
        )
    return None if row is None else NamedWrite.parsed(row[0])


def _ranges(folder: AcknowledgementFolder, write: HeldWrite) -> Iterable[HeldRange]:
    return [
        HeldRange(topic_id, topic, partition, first, last, 1, write=write)
        for topic, partition, first, last, topic_id in folder.batch_ranges()
    ]
