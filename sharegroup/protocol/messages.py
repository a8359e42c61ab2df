"""Pydantic base of all messages, and the two envelopes.

Messages are UTF-8 JSON with snake_case names as in spec 003. Unknown fields are ignored, so that an older
release can read messages of a newer one.

Input from others is always validated. Values that this package computed with their types, or that were validated when
they were written, are not: each request makes some ten messages, and a row takes 2.6 µs by `constructed` instead of the
3.8 µs of pydantic's constructor, a changed copy 1.4 instead of 3.0 µs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from json.encoder import encode_basestring
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticUndefined

from sharegroup.errors import InvalidRequestError
from sharegroup.protocol.api_key import ApiKey

ENVELOPE_VERSION = 1

# Bounds by `gt` and `lt`: pydantic would let a second `ge` replace a field's own one.
Int32 = Annotated[int, Field(gt=-(2**31) - 1, lt=2**31)]
"""Kafka's INT32."""
Int64 = Annotated[int, Field(gt=-(2**63) - 1, lt=2**63)]
"""Kafka's INT64."""
PartitionIndex = Annotated[int, Field(ge=0, lt=2**31)]
"""A partition of a topic."""

MAX_NAME_LENGTH = 1_024
"""Characters of an id or a name in a request: most of them become state. Kafka's own names have at most 249."""
Name = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
"""An id or a name that the sender chose."""

_new = object.__new__
_set = object.__setattr__
"""Messages are frozen."""


class Message(BaseModel):
    """Base of all messages in a log."""

    model_config = ConfigDict(frozen=True, extra="ignore", use_enum_values=False)


Body = TypeVar("Body", bound=Message)


class RequestEnvelope(Message):
    """Content of every record of the request log, internal messages of the processor included."""

    v: Int32 = Field(default=ENVELOPE_VERSION, description="Version of the envelope.")
    api_key: Int32 = Field(description="Kind of the message; our own kinds are >= 10000.")
    api_version: Int32 = Field(default=1, description="Version of the body.")
    correlation_id: Int32 = Field(default=0, description="Chosen by the sender, repeated in the response.")
    client_id: Name = Field(default="", description="Free name of the client, for people.")
    group_id: Name = Field(description="The share group.")
    member_id: Name = Field(default="", description="The member that asks; empty in internal messages.")
    reply_partition: Int32 = Field(default=-1, description="Partition of the response log; -1 asks for no response.")
    leader_epoch: Int32 = Field(default=-1, description="Internal messages: epoch of the processor that sent it.")
    body: dict[str, Any] = Field(default_factory=dict, description="The request, by api_key.")

    def encoded(self) -> bytes:
        """Return the record value."""
        return self.__pydantic_serializer__.to_json(self)


class ResponseEnvelope(Message):
    """Content of every record of the response log."""

    v: Int32 = Field(default=ENVELOPE_VERSION, description="Version of the envelope.")
    api_key: Int32 = Field(description="Kind of the request.")
    api_version: Int32 = Field(default=1, description="Version of the body.")
    correlation_id: Int32 = Field(description="Of the request; -1 without a request (a pushed assignment, a notice).")
    group_id: str = Field(description="The share group.")
    member_id: str = Field(description="The member that it is for; empty when all members are addressed.")
    leader_epoch: int = Field(default=-1, description="Epoch of the processor that responds; members drop lower ones.")
    published_ms: Int64 = Field(
        default=-1,
        description="Time of the group's request partition when the response was published, epoch ms; -1 is unknown.",
    )
    body: dict[str, Any] = Field(default_factory=dict, description="The response, by api_key.")

    def encoded(self) -> bytes:
        """Return the record value; without a time of publishing, it has no field for it."""
        return self.__pydantic_serializer__.to_json(self, exclude={"published_ms"} if self.published_ms < 0 else None)


class ErrorResponse(Message):
    """Fields that every response body has."""

    error_code: int = Field(default=0, description="Error of the whole request; 0 is none.")
    error_message: str = Field(default="", description="Its text.")


def request(
    api_key: ApiKey,
    group_id: str,
    body: Message,
    *,
    member_id: str = "",
    client_id: str = "",
    correlation_id: int = 0,
    reply_partition: int = -1,
    leader_epoch: int = -1,
) -> RequestEnvelope:
    """Return an envelope around a body."""
    return RequestEnvelope(
        api_key=api_key,
        correlation_id=correlation_id,
        client_id=client_id,
        group_id=group_id,
        member_id=member_id,
        reply_partition=reply_partition,
        leader_epoch=leader_epoch,
        body=body.model_dump(mode="json", exclude_defaults=True),
    )


class RequestEncoder:
    """Encodes the requests of one sender as `RequestEnvelope`s; what they have in common is encoded once.

    An envelope that holds the body as a dictionary takes more than twice as long.

    Raises:
        ValidationError: a name is too long.
    """

    def __init__(self, group_id: str, member_id: str = "", client_id: str = "", reply_partition: int = -1) -> None:
        sender = RequestEnvelope(
            api_key=-1, group_id=group_id, member_id=member_id, client_id=client_id, reply_partition=reply_partition
        )
        of_sender = sender.model_dump_json(include={"client_id", "group_id", "member_id", "reply_partition"})
        self._of_sender = of_sender[1:-1]

    def encoded(self, api_key: int, correlation_id: int, body: Message) -> bytes:
        """Return the record value of a request."""
        encoded_body = body.__pydantic_serializer__.to_json(body, exclude_defaults=True).decode()
        return (
            f'{{"v":{ENVELOPE_VERSION},"api_key":{api_key:d},"api_version":1,"correlation_id":{correlation_id:d},'
            f'{self._of_sender},"leader_epoch":-1,"body":{encoded_body}}}'
        ).encode()


def encoded_response(
    api_key: int, correlation_id: int, group_id: str, member_id: str, leader_epoch: int, body: Message
) -> str:
    """Return a `ResponseEnvelope` as JSON.

    The JSON is assembled here because each request has a response: an envelope that holds the body as a dictionary
    takes twice as long.
    """
    encoded_body = body.__pydantic_serializer__.to_json(body, exclude_defaults=True).decode()
    return (
        f'{{"v":{ENVELOPE_VERSION},"api_key":{api_key:d},"api_version":1,"correlation_id":{correlation_id},'
        f'"group_id":{encode_basestring(group_id)},"member_id":{encode_basestring(member_id)},'
        f'"leader_epoch":{leader_epoch},"body":{encoded_body}}}'
    )


def published_response(value: str, time_ms: int) -> bytes:
    """Return a `ResponseEnvelope` in JSON, which has no such time, with the time of its publishing: a record value.

    Each publishing has a time of its own, so it is no part of the response, which the outbox keeps and replays make
    again.
    """
    return f'{{"published_ms":{time_ms:d},{value[1:]}'.encode()


def parsed(model: type[Body], body: dict[str, Any]) -> Body:
    """Return the typed body.

    Raises:
        InvalidRequestError: a field is missing or has a wrong type; names the first such field.
    """
    try:
        # As `model_validate`, which has nothing more to do for our messages and takes half as long again.
        message: Body = model.__pydantic_validator__.validate_python(body)
    except ValidationError as error:
        raise InvalidRequestError(_first_fault(model.__name__, error)) from None
    return message


def decoded_request(value: bytes | None) -> RequestEnvelope:
    """Return the envelope of a request-log record.

    Raises:
        InvalidRequestError: the bytes are not JSON, or not an envelope.
    """
    return _decoded(RequestEnvelope, value)


def decoded_response(value: bytes | None) -> ResponseEnvelope:
    """Return the envelope of a response-log record.

    Raises:
        InvalidRequestError: the bytes are not JSON, or not an envelope.
    """
    return _decoded(ResponseEnvelope, value)


def _decoded(model: type[Body], value: bytes | None) -> Body:
    try:
        message: Body = model.__pydantic_validator__.validate_json(value or b"")
    except ValidationError as error:
        raise InvalidRequestError(_first_fault(model.__name__, error)) from None
    return message


def _first_fault(name: str, error: ValidationError) -> str:
    fault = error.errors(include_url=False, include_input=False)[0]
    field = ".".join(str(part) for part in fault["loc"])
    return f"{name}{'.' + field if field else ''}: {fault['msg']}."


def constructed(model: type[Body], /, **values: Any) -> Body:
    """Make a message of valid values and its defaults, without validation.

    Args:
        values: all fields that have no default; each has the type of its field.
    """
    defaults, factories, names = _recipe(model)
    fields = defaults | values
    for name, factory in factories:
        if name not in values:
            fields[name] = factory()
    message: Body = _new(model)
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_fields_set__", names)
    _set(message, "__pydantic_extra__", None)
    _set(message, "__pydantic_private__", None)
    return message


def changed(message: Body, /, **values: Any) -> Body:
    """Return the message with other values; each has the type of its field."""
    return from_fields(type(message), vars(message) | values)


def from_fields(model: type[Body], fields: dict[str, Any]) -> Body:
    """Make a message of all its fields; the dictionary becomes the message's own."""
    message: Body = _new(model)
    _set(message, "__dict__", fields)
    _set(message, "__pydantic_fields_set__", _recipe(model)[2])
    _set(message, "__pydantic_extra__", None)
    _set(message, "__pydantic_private__", None)
    return message


@cache
def _recipe(model: type[Message]) -> tuple[dict[str, Any], Sequence[tuple[str, Callable[[], Any]]], set[str]]:
    """Return all fields in their order, each with its default; those with a default factory; and all names."""
    infos = model.model_fields.items()
    factories = [(name, info.default_factory) for name, info in infos if info.default_factory is not None]
    fields = {name: PydanticUndefined if info.default_factory else info.default for name, info in infos}
    return fields, factories, set(fields)  # type: ignore[return-value]  # no factory takes the validated data
