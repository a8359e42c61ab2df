"""AdminClient: changes to a group that its processor has to make."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping

from sharegroup.client.processor_link import ProcessorLink
from sharegroup.client.settings import LinkTopics
from sharegroup.errors import RequestTimedOutError, api_error
from sharegroup.logs.port import Log
from sharegroup.logs.topic_id import new_topic_id
from sharegroup.protocol.api_key import ApiKey
from sharegroup.protocol.group_messages import (
    AlterGroupConfigRequest,
    ResumeShareGroupRequest,
)
from sharegroup.protocol.messages import ErrorResponse, Message, parsed

DEFAULT_TIMEOUT_S = 60.0


class AdminClient:
    """Asks the processor of a group for changes, and waits for its answer.

    Args:
        log: where the requests and responses are; the caller closes it.
        client_id: free name, for people.
        topics: names of the topics between members and the processor.
    """

    def __init__(self, log: Log, client_id: str = "", topics: LinkTopics | None = None) -> None:
        self._log = log
        self._client_id = client_id
        self._topics = topics
        self._client = new_topic_id()
        self._correlation_ids = itertools.count(1)

    def alter_group_config(
        self,
        group_id: str,
        set: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Change the group's own configuration, all or nothing; the group need not exist yet.

        Args:
            group_id: the share group.
            set: key → new value.
            delete: keys that go back to the broker's default.
            timeout: seconds to wait for the answer.

        Raises:
            InvalidConfigError: a key or value is not acceptable.
            RequestTimedOutError: no answer came in time; the change may still be made.
        """
        body = AlterGroupConfigRequest(set=dict(set or {}), delete=list(delete))
        self._ask(group_id, ApiKey.INCREMENTAL_ALTER_CONFIGS, body, timeout)

    def resume_group(self, group_id: str, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Let a quarantined group go on.

        Raises:
            RequestTimedOutError: no answer came in time; the group may still go on.
        """
        self._ask(group_id, ApiKey.RESUME_SHARE_GROUP, ResumeShareGroupRequest(), timeout)

    def _ask(self, group_id: str, api_key: ApiKey, body: Message, timeout: float) -> None:
        link = ProcessorLink(self._log, group_id, self._client, self._client_id, self._topics)
        correlation_id = next(self._correlation_ids)
        link.send([(correlation_id, api_key, body)])
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            if not link.wait(round(remaining * 1000)):
                continue
            for envelope in link.receive():
                if envelope.correlation_id == correlation_id and envelope.api_key == api_key:
                    answer = parsed(ErrorResponse, envelope.body)
                    if answer.error_code:
                        raise api_error(answer.error_code, answer.error_message)
                    return
        raise RequestTimedOutError(
            f"Group {group_id} did not answer {api_key.name} within {timeout} s.",
            "Check that a processor is running on this log; the request stays there, and may still be carried out.",
        )
