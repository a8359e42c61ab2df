"""JSON Schemas of all messages and rows; `make schemas` writes them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, create_model

from sharegroup.protocol.api_key import INTERNAL_KEYS, LATEST_VERSION, ApiKey
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
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from sharegroup.protocol.group_messages import (
    AlterGroupConfigRequest,
    MemberAlive,
    PauseShareGroupRequest,
    ResumeShareGroupRequest,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from sharegroup.protocol.internal_messages import (
    DeleteShareGroupState,
    DlqStatusChanged,
    DlqWritten,
    InitializeShareGroupState,
    LogOffsets,
    MemberEnded,
    ProcessorStarted,
    ShareGroupConfigChanged,
    ShareGroupStateDeleted,
    ShareGroupStateInitialized,
    Tick,
)
from sharegroup.protocol.marker import CommitMarkerPayload
from sharegroup.protocol.messages import ErrorResponse, Message, RequestEnvelope, ResponseEnvelope
from sharegroup.protocol.row_payloads import (
    FencePayload,
    GroupMetadataPayload,
    GroupSnapshotPayload,
    GroupStatusPayload,
    PartitionSnapshotPayload,
    PrunedPayload,
    SharePartitionPayload,
    TableSnapshotPayload,
)
from sharegroup.protocol.rows import RecordType, StateRow
from sharegroup.protocol.share_fetch import ShareAcknowledgeRequest, ShareFetchRequest, ShareFetchResponse
from sharegroup.protocol.standby_messages import StandbyProbeRequest, StandbyProbeResponse
from sharegroup.protocol.write_resolution import ResolveWriteRequest, ResolveWriteResponse

BODIES: dict[ApiKey, type[Message]] = {
    ApiKey.LIST_GROUPS: ListGroupsRequest,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest,
    ApiKey.SHARE_GROUP_DESCRIBE: ShareGroupDescribeRequest,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: DescribeShareGroupOffsetsRequest,
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: AlterGroupConfigRequest,
    ApiKey.SHARE_GROUP_HEARTBEAT: ShareGroupHeartbeatRequest,
    ApiKey.SHARE_FETCH: ShareFetchRequest,
    ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgeRequest,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: InitializeShareGroupState,
    ApiKey.DELETE_SHARE_GROUP_STATE: DeleteShareGroupState,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsRequest,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsRequest,
    ApiKey.LOG_OFFSETS: LogOffsets,
    ApiKey.TICK: Tick,
    ApiKey.SHARE_GROUP_STATE_INITIALIZED: ShareGroupStateInitialized,
    ApiKey.RESUME_SHARE_GROUP: ResumeShareGroupRequest,
    ApiKey.SHARE_GROUP_CONFIG_CHANGED: ShareGroupConfigChanged,
    ApiKey.DLQ_WRITTEN: DlqWritten,
    ApiKey.DLQ_STATUS_CHANGED: DlqStatusChanged,
    ApiKey.SHARE_GROUP_STATE_DELETED: ShareGroupStateDeleted,
    ApiKey.PROCESSOR_STARTED: ProcessorStarted,
    ApiKey.MEMBER_ALIVE: MemberAlive,
    ApiKey.MEMBER_ENDED: MemberEnded,
    ApiKey.PAUSE_SHARE_GROUP: PauseShareGroupRequest,
    ApiKey.REDRIVE_SHARE_GROUP_RECORDS: RedriveShareGroupRecordsRequest,
    ApiKey.RESOLVE_WRITE: ResolveWriteRequest,
    ApiKey.STANDBY_PROBE: StandbyProbeRequest,
}
"""Kind of message → body of the request, or of the internal message."""

RESPONSES: dict[ApiKey, type[Message]] = {
    ApiKey.LIST_GROUPS: ListGroupsResponse,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsResponse,
    ApiKey.SHARE_GROUP_DESCRIBE: ShareGroupDescribeResponse,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: DescribeShareGroupOffsetsResponse,
    ApiKey.DELETE_GROUPS: ErrorResponse,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ErrorResponse,
    ApiKey.SHARE_GROUP_HEARTBEAT: ShareGroupHeartbeatResponse,
    ApiKey.SHARE_FETCH: ShareFetchResponse,
    ApiKey.SHARE_ACKNOWLEDGE: ShareFetchResponse,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: AlterShareGroupOffsetsResponse,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: DeleteShareGroupOffsetsResponse,
    ApiKey.RESUME_SHARE_GROUP: ErrorResponse,
    ApiKey.PAUSE_SHARE_GROUP: ErrorResponse,
    ApiKey.REDRIVE_SHARE_GROUP_RECORDS: RedriveShareGroupRecordsResponse,
    ApiKey.RESOLVE_WRITE: ResolveWriteResponse,
    ApiKey.STANDBY_PROBE: StandbyProbeResponse,
}
"""Kind of request → body of the response."""

PAYLOADS: dict[RecordType, tuple[type[Message], ...]] = {
    RecordType.FENCE: (FencePayload,),
    RecordType.COMMIT_MARKER: (CommitMarkerPayload,),
    RecordType.SHARE_SNAPSHOT: (SharePartitionPayload,),
    RecordType.SHARE_UPDATE: (SharePartitionPayload,),
    RecordType.SHARE_TRANSITIONS: (SharePartitionPayload,),
    RecordType.SHARE_TOMBSTONE: (SharePartitionPayload,),
    RecordType.GROUP_METADATA: (GroupMetadataPayload,),
    RecordType.GROUP_STATUS: (GroupStatusPayload,),
    RecordType.TABLE_SNAPSHOT: (TableSnapshotPayload, GroupSnapshotPayload, PartitionSnapshotPayload),
    RecordType.PRUNED: (PrunedPayload,),
}
"""Record type → what the payload column may hold."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def exported_schemas() -> dict[str, str]:
    """Return file below `schemas/` → text, for every envelope, request, response, internal message and row."""
    return {name: json.dumps(schema, indent=2) + "\n" for name, schema in _schemas()}


def _schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    for envelope in (RequestEnvelope, ResponseEnvelope):
        yield f"envelopes/{envelope.__name__}.json", _schema(envelope, envelope.__name__)
    for api_key, body in BODIES.items():
        is_internal = api_key in INTERNAL_KEYS
        name, folder = (_name(api_key), "internal") if is_internal else (f"{_name(api_key)}Request", "requests")
        yield f"{folder}/{name}.json", _schema(body, name, api_key)
    for api_key, body in RESPONSES.items():
        name = f"{_name(api_key)}Response"
        yield f"responses/{name}.json", _schema(body, name, api_key)
    for record_type, payloads in PAYLOADS.items():
        yield f"rows/{record_type.value}.json", _schema(_row_model(record_type, payloads), record_type.value)


def _schema(model: type[Message], title: str, api_key: ApiKey | None = None) -> dict[str, Any]:
    schema = model.model_json_schema()
    kind = {} if api_key is None else {"api_key": int(api_key), "api_version": LATEST_VERSION[api_key]}
    return {"$schema": _DIALECT, **schema, "title": title, **kind}


def _row_model(record_type: RecordType, payloads: tuple[type[Message], ...]) -> type[Message]:
    """Return the model of rows of one type: a row whose payload is typed."""
    types: dict[str, Any] = {"record_type": Literal[record_type], "payload": reduce(or_, payloads)}
    fields: Any = {
        name: (kind, Field(description=StateRow.model_fields[name].description)) for name, kind in types.items()
    }
    model: type[StateRow] = create_model(record_type.value, __base__=StateRow, __doc__=StateRow.__doc__, **fields)
    return model


def _name(api_key: ApiKey) -> str:
    return "".join(word.capitalize() for word in api_key.name.split("_"))


def write_schemas(folder: Path) -> None:
    """Write all schemas below a folder, and remove others."""
    texts = exported_schemas()
    for file in folder.glob("*/*.json"):
        if file.relative_to(folder).as_posix() not in texts:
            file.unlink()
    for name, text in texts.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
