"""One line an event, whatever is in it."""

from __future__ import annotations

import logging
import re

import pytest

from sharegroup.event_log import Event, EventFormatter


def formatted(message: object, *arguments: object, error: Exception | None = None) -> str:
    exc_info = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("sharegroup.spark.worker", logging.INFO, "", 0, message, arguments, exc_info)
    return EventFormatter().format(record)


def test_a_line_has_time_level_part_and_event() -> None:
    line = formatted(Event("commit_published", commit=17, epoch=3))
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO worker event=commit_published commit=17 epoch=3", line
    )


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        (17, "17"),
        (True, "true"),
        ("orders-0", "orders-0"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "no"', r'"say \"no\""'),
        ("two\nlines\ttab", r'"two\nlines\ttab"'),
        ("two\u2028lines", r'"two\u2028lines"'),
        ("grüße", "grüße"),
        ("\ud800", r'"\ud800"'),
        (r"back\slash", r"back\slash"),
    ],
)
def test_values_are_quoted_when_they_would_break_the_line(value: object, spelled: str) -> None:
    assert str(Event("e", key=value)) == f"event=e key={spelled}"


def test_fields_without_a_value_are_left_out() -> None:
    assert str(Event("e", one=None, two=2)) == "event=e two=2"


def test_messages_of_libraries_are_events_too() -> None:
    assert formatted("read %d\nof %s", 3, "all").endswith(r' event=message text="read 3\nof all"')


def test_an_error_is_on_the_line_of_its_event() -> None:
    try:
        raise ValueError("first line\nsecond line")
    except ValueError as error:
        line = formatted(Event("failed"), error=error)
    assert len(line.splitlines()) == 1
    assert ' event=failed error="ValueError: first line" traceback="Traceback (most recent call last)' in line


def test_an_event_that_is_not_logged_is_not_spelled() -> None:
    class Unspeakable:
        def __str__(self) -> str:
            raise AssertionError

    logging.getLogger("sharegroup.test").debug(Event("e", key=Unspeakable()))
