"""Recorded scenarios of confluent-kafka's share consumer, replayed call by call."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from sharegroup.client.kafka_exceptions import ConcurrentModificationException, KafkaException, TopicPartition
from sharegroup.client.message import Message, Messages
from sharegroup.client.share_consumer import ShareConsumer
from tests.client.consumers import Callback, got

RECORDED = Path(__file__).parent / "recorded" / "confluent_share_consumer.jsonl"
DOCUMENT = Path(__file__).parents[2] / "docs" / "conformance.md"
HEADING = "## Recorded calls of the share consumer that differ"

SHORT_S = 0.1
"""For polls that bring nothing."""

_ERROR = re.compile(r"KafkaError\{(FATAL,)?code=(\w+),val=(-?\d+),.*\}\)?", re.DOTALL)


def recorded_scenarios() -> dict[str, list[dict[str, Any]]]:
    """Scenario → its steps: a call, and its result or what it raised."""
    lines = [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]
    return {line["scenario"]: line["steps"] for line in lines}


def listed_differences() -> list[tuple[str, str]]:
    """(Scenario, call) of the rows of the table in the document."""
    _, _, section = DOCUMENT.read_text(encoding="utf-8").partition(f"{HEADING}\n")
    rows = [line for line in section.partition("\n#")[0].splitlines() if line.startswith("| `")]
    return [(cells[0], cells[1]) for cells in (re.findall(r"`([^`]+)`", row) for row in rows)]


class Recording:
    """The steps of one scenario, in their order.

    Args:
        scenario: its name.
    """

    def __init__(self, scenario: str) -> None:
        self.scenario = scenario
        self.different: list[tuple[str, str]] = []
        """(Scenario, call) of the calls that do something else here."""
        self._steps: Iterator[dict[str, Any]] = iter(recorded_scenarios()[scenario])

    def same(self, call: str, act: Callable[[], object]) -> object:
        """The next call, which does here what was recorded; what it returned."""
        step = self._next(call)
        returned, outcome = _outcome(act)
        assert outcome == _expected(step), call
        return returned

    def longer(self, call: str, act: Callable[[], object]) -> None:
        """The next call, which raises here what was recorded, with a text that goes on."""
        expected = _expected(self._next(call))
        _, outcome = _outcome(act)
        assert outcome["raises"] == expected["raises"], call
        assert outcome["message"].startswith(expected["message"]), call

    def polled(self, call: str, act: Callable[[], Messages]) -> Messages:
        """The next call, a poll that does here what was recorded."""
        messages = self.same(call, act)
        assert isinstance(messages, Messages)
        return messages

    def differs(self, call: str, act: Callable[[], object] | None = None) -> object:
        """The next call, which does something else here; what it returned, None when it raised or is not done."""
        step = self._next(call)
        self.different.append((self.scenario, call.replace("`", "")))
        if act is None:
            return None
        returned, outcome = _outcome(act)
        assert outcome != _expected(step), f"{call} does the same"
        return returned

    def end(self) -> None:
        """All steps were replayed."""
        assert list(self._steps) == []

    def _next(self, call: str) -> dict[str, Any]:
        step = next(self._steps)
        assert step["call"] == call
        return step


def reports_of(callback: Callback) -> list[dict[str, object]]:
    """The arguments of a callback, as they were recorded."""
    return [
        {
            "offsets": {_name(partition): _offsets(acknowledged) for partition, acknowledged in offsets.items()},
            "exception": _stripped(repr(exception)),
            "thread": "MainThread",
            "offsets_type": type(offsets).__name__,
        }
        for offsets, exception in callback.reports
    ]


def accessors(message: Message) -> dict[str, object]:
    """The result of each accessor of a message, as it was recorded."""
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "key": repr(message.key()),
        "value": repr(message.value()),
        "timestamp": list(message.timestamp()),
        "headers": message.headers(),
        "delivery_count": message.delivery_count(),
        "leader_epoch": message.leader_epoch(),
        "error": message.error(),
        "latency": message.latency(),
    }


def intruded(consumer: ShareConsumer, texts: list[str]) -> list[Message]:
    """The result of a poll during which another thread commits, and the text of its error."""
    is_refused = threading.Event()

    def intrude() -> None:
        while not is_refused.is_set():
            try:
                consumer.commit_sync()
            except ConcurrentModificationException as error:
                texts.append(repr(error))
                is_refused.set()

    intruder = threading.Thread(target=intrude)
    intruder.start()
    messages: list[Message] = []
    while not is_refused.is_set():
        with suppress(ConcurrentModificationException):
            messages += consumer.poll(SHORT_S)
    intruder.join()
    return messages


def _offsets(offsets: set[int]) -> str:
    first = sorted(offsets)[:12]
    return f"set of {len(offsets)}: {first}{'...' if len(offsets) > 12 else ''}"


def _outcome(act: Callable[[], object]) -> tuple[object, dict[str, Any]]:
    try:
        returned = act()
    except Exception as error:
        return None, {"raises": type(error).__name__, "message": _stripped(str(error))}
    return returned, {"result": _shown(returned)}


def _shown(returned: object) -> object:
    if isinstance(returned, Messages):
        by_partition: dict[str, list[Message]] = {}
        for message in returned:
            by_partition.setdefault(f"{message.topic()}-{message.partition()}", []).append(message)
        shown = {name: got(Messages(messages)) for name, messages in by_partition.items()}
        return {"type": "Messages", "count": len(returned), **shown}
    if isinstance(returned, dict):
        return {
            _name(key) if isinstance(key, TopicPartition) else key: _shown(value) for key, value in returned.items()
        }
    if isinstance(returned, list):
        return [_shown(value) for value in returned]
    if isinstance(returned, str):
        return _stripped(returned)
    if isinstance(returned, KafkaException):
        return _stripped(repr(returned))
    return returned


def _expected(step: dict[str, Any]) -> dict[str, Any]:
    if "raises" in step:
        return {"raises": step["raises"].split(".")[-1], "message": _stripped(step["message"])}
    return {"result": _stripped_values(step["result"])}


def _stripped_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stripped_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_stripped_values(item) for item in value]
    return _stripped(value) if isinstance(value, str) else value


def _stripped(text: str) -> str:
    """Without the texts of errors, threads' numbers and the package's name, which all are other ones here."""
    for name in ("confluent_kafka.cimpl.Message", "sharegroup.client.message.PolledMessage"):
        text = text.replace(name, "Message")
    text = text.replace("sharegroup.client.message.Message", "Message")
    text = re.sub(r"^Messages\(\[<Message object at .*", "Messages([<Message>", text)
    text = re.sub(r"\(id: \d+\)", "(id)", text)
    return _ERROR.sub(lambda match: f"KafkaError {match[1] or ''}{match[2]} {match[3]}", text)


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
