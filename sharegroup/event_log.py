"""The log of a program: one line per event on standard error, `time level part event=name key=value ...`.

Values are quoted as in JSON when they hold blanks or anything that would break the line.
"""

from __future__ import annotations

import json
import logging
import time
import traceback

_QUOTED = frozenset(' "=')


class Event:
    """A machine-readable log message: a name and fields. It is formatted only if it is logged.

    Example:
        logger.info(Event("commit_published", commit=17, epoch=3))

    Args:
        name: the event, in one word.
        fields: key → value; those that are None are left out.
    """

    def __init__(self, name: str, /, **fields: object) -> None:
        self._fields = {"event": name, **fields}

    def __str__(self) -> str:
        return " ".join(f"{key}={_spelled(value)}" for key, value in self._fields.items() if value is not None)


class EventFormatter(logging.Formatter):
    """Formatter that writes one line per log record; the text of a library's message becomes an event `message`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line feed."""
        event = record.msg if isinstance(record.msg, Event) else Event("message", text=record.getMessage())
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        part = record.name.rpartition(".")[2]
        line = f"{seconds}.{int(record.msecs):03d}Z {record.levelname} {part} {event}"
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            summary = f"{type(error).__name__}: {error}".partition("\n")[0]
            line += f" error={_spelled(summary)} traceback={_spelled(''.join(traceback.format_exception(error)))}"
        return line


def log_events(verbose: bool = False) -> None:
    """Write the log of this process to standard error.

    Args:
        verbose: also log details that help to diagnose a problem.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(EventFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)
    logging.getLogger("sharegroup").setLevel(logging.DEBUG if verbose else logging.INFO)
    # py4j, the bridge to the JVM, logs errors that its callers also log.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if text and text.isprintable() and _QUOTED.isdisjoint(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
