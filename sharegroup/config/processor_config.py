"""ProcessorConfig: the logs, the state and the bounds of a processor."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from sharegroup.config.model import Allowed, Config, Int, Long, NonEmpty, TopicName, invalid_relation, invalid_value
from sharegroup.config.table_location import STORAGE_OPTIONS, TableLocation, is_in_store, store_address, unreadable_part

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def absolute_path(path: str) -> str:
    """Return the path of a file in any working directory; an address with a scheme as it is."""
    return path if _SCHEME.match(path) else str(Path(path).absolute())


def _local_path(value: str) -> str:
    """Return the path that a value means, in any working directory.

    Raises:
        PydanticCustomError: it is empty, or a URI of another scheme or host.
    """
    if not value:
        raise invalid_value("Value must not be empty")
    if not _SCHEME.match(value):
        return absolute_path(value)
    uri = urlsplit(value)
    if uri.scheme.lower() != "file" or uri.netloc not in ("", "localhost") or not uri.path.startswith("/"):
        raise invalid_value(
            "Only local disks are supported; use a path such as /var/lib/sharegroup/state, or file:///var/lib/…"
        )
    return absolute_path(unquote(uri.path))


def _table_path(value: str) -> str:
    """Return where a state table is: a path on a local disk, or the address of an object store as it is.

    Raises:
        PydanticCustomError: it is empty, or a URI that is neither.
    """
    if is_in_store(value) and not value.lower().startswith("file:"):
        try:
            store_address(value)
        except ValueError as error:
            raise invalid_value(str(error)) from None
        return value.rstrip("/")
    path = _local_path(value)
    if part := unreadable_part(path):
        raise invalid_value(f"The path {path!r} contains {part!r}, which the Delta library takes for something else")
    return path


LocalPath = Annotated[str, AfterValidator(_local_path), Allowed("a local path or a `file://` URI")]
"""A path on a local disk, without a scheme."""

TablePath = Annotated[
    str,
    AfterValidator(_table_path),
    Allowed("a local path, a `file://` URI, or `s3://bucket/path`, `az://`, `abfss://` or `gs://`"),
]
"""A path on a local disk without a scheme, or an address of an object store."""


def compiled_pattern(pattern: str) -> re.Pattern[str]:
    """Return `processor.group.pattern` ready for matching; a line break in an id is a character like any other."""
    return re.compile(pattern, re.DOTALL)


def _check_pattern(value: str) -> str:
    """Return the value if it is a regular expression.

    Raises:
        PydanticCustomError: it is not.
    """
    try:
        compiled_pattern(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise invalid_value(f"Not a regular expression: {error}") from None
    return value


def _parse_path(value: object) -> object:
    if value == "":
        raise invalid_value("Value must not be empty")
    return absolute_path(str(value)) if isinstance(value, str | Path) else value


class ProcessorConfig(Config):
    """Configuration of the processor, and of everything that exchanges messages with it.

    The paths of log and state have no default, since a program that is started in another folder would seem to have
    lost its state. Relative paths are relative to the working directory. Partition
    counts are fixed by the first start.
    """

    families: ClassVar[Mapping[str, Collection[str]]] = {"state.table.storage": STORAGE_OPTIONS}

    log_path: Annotated[Path | None, BeforeValidator(_parse_path), Allowed("a path")] = Field(
        default=None, description="File of the embedded log; none with `bootstrap.servers`, where the log is in Kafka."
    )
    state_table_path: TablePath = Field(
        description="Folder of the Delta state table, on a local disk or on an object store."
    )
    state_table_storage: Annotated[
        Mapping[str, str], Allowed("options of the store, see [object stores](object_stores.md)")
    ] = Field(
        default={},
        repr=False,
        description="Options of the state table's object store, one key each: `state.table.storage.aws_region`.",
    )
    checkpoint_path: LocalPath = Field(
        description="Folder of Spark's streaming checkpoints on this machine; each start begins a new one."
    )
    request_topic_name: TopicName = Field(default="__share_requests", description="Topic of the request log.")
    request_topic_partitions: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=1, description="Its partitions; all messages of a group are in one."
    )
    response_topic_name: TopicName = Field(default="__share_responses", description="Topic of the response log.")
    response_topic_partitions: Annotated[Int, Field(ge=1, le=1_000)] = Field(
        default=4, description="Its partitions; a member reads the one that its responses are in."
    )
    processor_group_pattern: Annotated[
        str, Field(min_length=1), AfterValidator(_check_pattern), Allowed("a regular expression")
    ] = Field(
        default=".*",
        description="Groups that the processor serves: those whose whole id this pattern matches. Requests for others "
        "get GROUP_AUTHORIZATION_FAILED, and what the state table has of them rests.",
    )
    batch_duration_ms: Annotated[Int, Field(ge=0, le=3_600_000)] = Field(
        default=60_000,
        description="Duration of a micro-batch of the processor's query, in ms: the interval of Spark's checkpoints, "
        "not a latency: responses leave while the batch runs. 0 ends a batch when its messages are applied.",
    )
    max_requests_per_cut: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=10_000, description="Messages of the request log that are taken and applied at once."
    )
    max_request_bytes_per_cut: Annotated[Int, Field(ge=1, le=1_073_741_824)] = Field(
        default=16_777_216,
        description="Bytes of the messages that are taken and applied at once; one message always fits.",
    )
    processor_commit_interval_ms: Annotated[Int, Field(ge=0, le=60_000)] = Field(
        default=0,
        description="Least time between two commits, in ms: it bounds the requests to an object store; responses "
        "that rest on a commit wait up to that long. 0 commits at once.",
    )
    audit_retention_ms: Annotated[Long, Field(ge=0, le=3_153_600_000_000)] = Field(
        default=604_800_000,
        description="Age below which the maintenance prunes no row of the state table and deletes no message, in ms.",
    )
    metrics_port: Annotated[Int, Field(ge=0, le=65_535)] = Field(
        default=0, description="Port at which the processor shows its metrics to Prometheus; 0 shows them nowhere."
    )
    metrics_host: NonEmpty = Field(
        default="127.0.0.1", description="Address of that port; `0.0.0.0` is reached from other machines, too."
    )
    metrics_domain: str = Field(
        default="",
        description="Value of a label `domain` of all metrics of the processor, which tells those of several "
        "processors apart; empty is no such label.",
    )
    metrics_max_series: Annotated[Int, Field(ge=1, le=1_000_000)] = Field(
        default=1_000,
        description="Label sets that one metric is shown with; with more share-partitions, their topics are shown.",
    )

    def serves(self, group_id: str) -> bool:
        """Return True if `processor.group.pattern` matches the whole id of a group."""
        return compiled_pattern(self.processor_group_pattern).fullmatch(group_id) is not None

    @model_validator(mode="after")
    def _locate_table(self) -> Self:
        path, options = self.state_table_path, self.state_table_storage
        location = TableLocation(path, options)
        if options and location.folder is not None:
            key = f"state.table.storage.{min(options)}"
            raise invalid_relation(f"{key} is set, but state.table.path is on a local disk: {path}", key)
        # The model is frozen for others; here it is being made.
        self.__dict__["state_table_path"] = location
        return self

    @model_validator(mode="after")
    def _check_topics_differ(self) -> Self:
        request, response = "request.topic.name", "response.topic.name"
        if self.request_topic_name == self.response_topic_name:
            text = f"{request} must differ from {response}, but both are {self.request_topic_name}"
            raise invalid_relation(text, request, response)
        return self
