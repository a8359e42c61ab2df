"""Names in a table's history: groups with their configuration, members with their client ids, and topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sharegroup.audit.history.as_of import Selection
from sharegroup.audit.history.extent import HistoryExtent
from sharegroup.audit.history.row_source import RowSource
from sharegroup.errors import GroupIdNotFoundError, UnknownMemberIdError, UnknownTopicError
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.state.row_filter import RowFilter

_GROUP_TYPES = frozenset({RecordType.GROUP_METADATA, RecordType.TABLE_SNAPSHOT})
_OF_NO_PARTITION = -1


@dataclass
class KnownNames:
    """Names in the rows of groups.

    Attributes:
        client_ids: group id and member id → client id, of all members that ever joined.
        config_overrides: group id → its last dynamic configuration.
        topics: names of all topics that a group had a state of.
    """

    group_ids: set[str] = field(default_factory=set)
    client_ids: dict[tuple[str, str], str] = field(default_factory=dict)
    config_overrides: dict[str, Mapping[str, str]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)

    def note(self, row: StateRow) -> None:
        """Note the names in a row of a group."""
        self.group_ids.add(row.group_id)
        for record in row.payload.get("records", ()):
            match record["type"]:
                case "ShareGroupMemberMetadata":
                    self.client_ids[row.group_id, record["member_id"]] = record.get("client_id", "")
                case "ShareGroupStatePartitionMetadata":
                    self.topics.add(record["topic"])
                case "ShareGroupConfig":
                    self.config_overrides[row.group_id] = record["overrides"]
                case "ShareGroupRemoved":
                    self.config_overrides.pop(row.group_id, None)

    def check(self, selection: Selection) -> None:
        """Check that the history has the selected group and topic.

        Raises:
            GroupIdNotFoundError: there was never such a group.
            UnknownTopicError: no group ever had a state of such a topic.
        """
        if selection.group_id is not None and selection.group_id not in self.group_ids:
            raise GroupIdNotFoundError(f"Group {selection.group_id} is not in the state table.", "Check its name.")
        if selection.topic is not None and selection.topic not in self.topics:
            raise UnknownTopicError(f"No group has had a state of topic {selection.topic}.", "Check its name.")

    def member_ids(self, member: str) -> frozenset[str]:
        """Return the ids of the members with an id or a client id.

        Raises:
            UnknownMemberIdError: there was never such a member.
        """
        ids = frozenset(member_id for (_, member_id), name in self.client_ids.items() if member in (member_id, name))
        if not ids:
            raise UnknownMemberIdError(
                f"The state table has no member with id or client id {member}.", "Check its name and its group."
            )
        return ids


def read_known_names(source: RowSource, extent: HistoryExtent, group_id: str | None) -> KnownNames:
    """Return the names in the history of a group, or of all groups."""
    of_groups = RowFilter(
        record_types=_GROUP_TYPES,
        group_id=group_id,
        partition=_OF_NO_PARTITION,
        through_commit_id=extent.last_commit_id,
        columns=("group_id", "payload", "partition"),
    )
    names = KnownNames()
    for row in source.rows(of_groups):
        if row.group_id:
            names.note(row)
    return names
