"""AdminClient: describes and changes groups through the processor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from sharegroup.client.admin_conversation import Administrator, Conversation, listed_groups, read_partitions
from sharegroup.client.client_events import ClientEvents
from sharegroup.client.connection_settings import ClientValues
from sharegroup.client.group_results import (
    ConfigEntry,
    GroupListing,
    ShareGroupDescription,
    SharePartitionOffsetInfo,
    TopicPartition,
    config_entries,
    result_of_each,
)
from sharegroup.client.imported_partition import ImportedPartition, request_parts
from sharegroup.client.offset_lag import offset_infos
from sharegroup.client.settings import ChannelTopics, channel_topics
from sharegroup.config.members import AdminConfig
from sharegroup.core.offset_ranges import OffsetRange
from sharegroup.core.records import PartitionKey
from sharegroup.errors import ApiError, api_error
from sharegroup.logs.port import Log
from sharegroup.logs.topic_offsets import topic_offsets
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_administration import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    DeleteGroupsRequest,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    RedriveShareGroupRecordsRequest,
    RedriveShareGroupRecordsResponse,
)
from sharegroup.protocol.group_description import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    GroupStateName,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from sharegroup.protocol.group_messages import AlterGroupConfigRequest, PauseShareGroupRequest, ResumeShareGroupRequest
from sharegroup.protocol.messages import ErrorResponse, Message, parsed
from sharegroup.protocol.write_resolution import ResolveWriteRequest, ResolveWriteResponse


class AdminClient:
    """Sends requests about groups to the processor, and waits for its responses.

    It needs the log only, not the state table. A `timeout` is the time to wait for each response, in seconds; None is
    `default.api.timeout.ms`. Without a response in time a method raises RequestTimedOutError, or LogUnavailableError if
    the log cannot be reached, and the change may still be made.

    Args:
        log: the log of the requests and responses, which the caller closes; or a configuration with its address, as a
            `ShareConsumer` takes it: keys of `AdminConfig` and of the connections, and callbacks, which the methods
            call. Then `close` closes the log.
        client_id: free name of the client.

    Raises:
        ConfigurationError: the configuration has an unknown key, a wrong value, or no log.
        TypeError, ValueError, AttributeError: a callback cannot be called.
        LogError: the log cannot be opened.
    """

    def __init__(
        self, log: Log | Mapping[str, object], client_id: str = "", topics: ChannelTopics | None = None
    ) -> None:
        self._opened: Log | None = None
        self._events = ClientEvents({})
        config = AdminConfig()
        if isinstance(log, Mapping):
            values = ClientValues.of(log)
            config = AdminConfig.from_mapping(values.own())
            client_id, topics = client_id or config.client_id, topics or channel_topics(values.by_key)
            connection = values.connection()
            self._events = ClientEvents(connection.callbacks)
            log = self._opened = connection.open(self._events)
        self._log = log
        self._timeout_s = config.default_api_timeout_ms / 1_000
        self._administrator = Administrator(log, client_id, topics)

    def close(self) -> None:
        """Close the log, unless the caller opened it."""
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def alter_group_config(
        self,
        group_id: str,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        timeout: float | None = None,
    ) -> None:
        """Change the group's own configuration, all or nothing; the group need not exist yet.

        Args:
            set: key → new value.
            delete: keys to reset to the broker's default.

        Raises:
            InvalidConfigError: a key or value is not acceptable.
        """
        body = AlterGroupConfigRequest(set=dict(set or {}), delete=list(delete))
        self._ask(group_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, timeout)

    def pause_group(self, group_id: str, reason: str = "", timeout: float | None = None) -> None:
        """Stop a group from acquiring records until it is resumed.

        Members stay, and their locks continue: they may acknowledge the records that they hold. After the response,
        nothing is acquired any more; a restart of the processor changes nothing.

        Args:
            reason: free text; at most 1,024 characters.

        Raises:
            GroupIdNotFoundError: the group does not exist.
        """
        body = parsed(PauseShareGroupRequest, {"reason": reason})
        self._ask(group_id, ApiKey.PAUSE_SHARE_GROUP, body, timeout)

    def resume_group(self, group_id: str, timeout: float | None = None) -> None:
        """Resume a paused or quarantined group."""
        self._ask(group_id, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest(), timeout)

    def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Reset share-partitions to new start offsets; create the group if it does not exist.

        Records in flight and all delivery counts are discarded. A start offset may lie past the end of the log.

        Args:
            group_id: the share group, which must have no members.
            offsets: (topic, partition) → new start offset, 0 or higher.

        Returns:
            (topic, partition) → its error; None when its offset was altered.

        Raises:
            InvalidRequestError: an offset or a partition is negative, or too many topics are named.
            NonEmptyGroupError: the group has members; nothing changed.
        """
        states = {key: ImportedPartition(start_offset) for key, start_offset in offsets.items()}
        return self._alter_offsets(group_id, states, timeout)

    def import_share_partitions(
        self, group_id: str, states: Mapping[TopicPartition, ImportedPartition], timeout: float | None = None
    ) -> dict[TopicPartition, ApiError | None]:
        """Begin share-partitions with the state of another system; create the group if it does not exist.

        Delivery counts, accepted and archived records above the start offset are taken over. Large states take several
        requests; of each share-partition all is imported or nothing.

        Args:
            group_id: the share group, which must have no members.
            states: (topic, partition) → its state, which replaces the present one.

        Returns:
            (topic, partition) → its error; None when its state was imported.

        Raises:
            InvalidRequestError: the batches of a state are not ascending, or there are more than 10,000.
            NonEmptyGroupError: the group has members; the state of an earlier request stays.
        """
        results: dict[TopicPartition, ApiError | None] = {}
        for part in request_parts(states):
            results |= self._alter_offsets(group_id, part, timeout)
        return results

    def _alter_offsets(
        self, group_id: str, states: Mapping[TopicPartition, ImportedPartition], timeout: float | None
    ) -> dict[TopicPartition, ApiError | None]:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), state in states.items():
            topics.setdefault(topic, []).append(state.fields(partition))
        fields = [{"topic_name": topic, "partitions": partitions} for topic, partitions in topics.items()]
        body = parsed(AlterShareGroupOffsetsRequest, {"topics": fields})
        response = parsed(
            AlterShareGroupOffsetsResponse, self._ask(group_id, ApiKey.ALTER_SHARE_GROUP_OFFSETS, body, timeout)
        )
        return {
            (topic.topic_name, result.partition_index): _error(result)
            for topic in response.responses
            for result in topic.partitions
        }

    def redrive_share_group_records(
        self,
        group_id: str,
        records: Mapping[PartitionKey, Iterable[OffsetRange]],
        reason: str = "",
        timeout: float | None = None,
    ) -> int:
        """Make archived records available again with delivery count 0: all of them, or none.

        After the response the change is durable. The same request again is refused, since the records are not archived
        any more. Offsets without a record are given up again by the member that acquires them.

        Args:
            records: (topic id, partition) → (first, last) offsets, ascending, at or above the start offset.
            reason: free text, which the transitions show; at most 1,024 characters.

        Returns:
            The number of records.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            GroupQuarantinedError: the group is quarantined.
            InvalidRecordStateError: some records are not ARCHIVED at or above the start offset; names them.
            UnknownTopicIdError: the group has no state of the topic.
            UnknownTopicOrPartitionError: the group has no state of the partition.
        """
        partitions = [
            {
                "topic_id": topic_id,
                "partition_index": partition,
                "ranges": [{"first_offset": first, "last_offset": last} for first, last in ranges],
            }
            for (topic_id, partition), ranges in records.items()
        ]
        body = parsed(RedriveShareGroupRecordsRequest, {"partitions": partitions, "reason": reason})
        response = self._ask(group_id, ApiKey.REDRIVE_SHARE_GROUP_RECORDS, body, timeout)
        return parsed(RedriveShareGroupRecordsResponse, response).record_count

    def resolve_write(self, group_id: str, resolution: ResolveWriteRequest, timeout: float | None = None) -> int:
        """Report what a sink says of a write; it may come late or twice.

        Args:
            resolution: what a `DeltaSink` returns of it, or an administrator's decision with its reason.

        Returns:
            The number of records whose state it changed: none if the write is closed.

        Raises:
            InvalidRequestError: the write has another application id or table id.
        """
        response = self._ask(group_id, ApiKey.RESOLVE_WRITE, resolution, timeout)
        return parsed(ResolveWriteResponse, response).record_count

    def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], timeout: float | None = None
    ) -> dict[str, ApiError | None]:
        """Delete the state of all share-partitions of some topics; later members start by the group's reset policy.

        Args:
            group_id: the share group, which must have no members.

        Returns:
            Topic → its error; None when its state was deleted.

        Raises:
            InvalidRequestError: too many topics are named.
            GroupIdNotFoundError: the group does not exist.
            NonEmptyGroupError: the group has members; nothing changed.
        """
        body = parsed(DeleteShareGroupOffsetsRequest, {"topics": [{"topic_name": topic} for topic in topics]})
        response = parsed(
            DeleteShareGroupOffsetsResponse, self._ask(group_id, ApiKey.DELETE_SHARE_GROUP_OFFSETS, body, timeout)
        )
        return {result.topic_name: _error(result) for result in response.responses}

    def delete_share_groups(self, group_ids: Iterable[str], timeout: float | None = None) -> dict[str, ApiError | None]:
        """Delete groups without members, the state of their share-partitions, and their configuration.

        Returns:
            Group id → its error; None when it was deleted.
        """

        def delete(group_id: str) -> None:
            self._ask(group_id, ApiKey.DELETE_GROUPS, DeleteGroupsRequest(), timeout)

        return result_of_each(group_ids, delete)

    def list_groups(self, states: Iterable[str] = (), timeout: float | None = None) -> list[GroupListing]:
        """List all groups, of all partitions of the request log.

        Args:
            states: only groups in these states; empty is all.

        Returns:
            The groups, by id.
        """
        with self._conversation("", timeout) as conversation:
            pages = listed_groups(conversation, list(states))
        listings = (
            GroupListing(group.group_id, GroupStateName(group.group_state), group.group_type, group.protocol_type)
            for page in pages
            for group in page.groups
        )
        return sorted(listings, key=lambda listing: listing.group_id)

    def describe_share_groups(
        self,
        group_ids: Iterable[str],
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, ShareGroupDescription | ApiError]:
        """Describe groups and their members.

        Args:
            include_authorized_operations: True to have the operations that this client may do on each group.

        Returns:
            Group id → its description, or the error.
        """

        def described(group_id: str) -> ShareGroupDescription:
            response = self._ask(group_id, ApiKey.SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest(), timeout)
            parsed_response = parsed(ShareGroupDescribeResponse, response)
            return ShareGroupDescription.of(group_id, parsed_response, include_authorized_operations)

        return result_of_each(group_ids, described)

    def describe_configs(
        self, group_ids: Iterable[str], timeout: float | None = None
    ) -> dict[str, dict[str, ConfigEntry] | ApiError]:
        """Describe the configuration of groups; a group that does not exist has the defaults.

        Returns:
            Group id → key → its value in force and where it comes from; or the error.
        """

        def described(group_id: str) -> dict[str, ConfigEntry]:
            response = self._ask(group_id, ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(), timeout)
            return config_entries(parsed(DescribeConfigsResponse, response))

        return result_of_each(group_ids, described)

    def list_share_group_offsets(
        self,
        group_specs: Mapping[str, Iterable[TopicPartition] | None],
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, SharePartitionOffsetInfo | None] | ApiError]:
        """List the start offsets of groups, and their lag.

        Args:
            group_specs: group id → (topic, partition) pairs; None is all share-partitions that have their state.

        Returns:
            Group id → (topic, partition) → its start offset and lag, None where the group has no start offset; or the
            error. A group that does not exist has no start offsets.
        """

        def listed(group_id: str) -> dict[TopicPartition, SharePartitionOffsetInfo | None]:
            return self._offsets(group_id, group_specs[group_id], timeout)

        return result_of_each(group_specs, listed)

    def _offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None, timeout: float | None
    ) -> dict[TopicPartition, SharePartitionOffsetInfo | None]:
        wanted = None if partitions is None else list(partitions)
        with self._conversation(group_id, timeout) as conversation:
            share_partitions = read_partitions(conversation, wanted, include_runs=False)
            known = topic_offsets(self._log, set(share_partitions.topics.values()))
        return dict.fromkeys(wanted or ()) | offset_infos(share_partitions, known)

    @contextmanager
    def _conversation(self, group_id: str, timeout: float | None) -> Iterator[Conversation]:
        try:
            with self._administrator.conversation(group_id, self._timeout_s if timeout is None else timeout) as opened:
                yield opened
        finally:
            self._events.serve()

    def _ask(self, group_id: str, api_key: ApiKey, body: Message, timeout: float | None) -> dict[str, Any]:
        """Send a request to a group, and return the body of its response."""
        with self._conversation(group_id, timeout) as conversation:
            (response,) = conversation.ask((api_key, body))
            return response


def _error(result: ErrorResponse) -> ApiError | None:
    return api_error(result.error_code, result.error_message) if result.error_code else None
