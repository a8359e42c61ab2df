"""Sinks for the process of a streaming source, which has no session: the driver's program reads and fences them for it.

Only Spark may commit to a table that Spark writes to on a local disk, so delta-rs in that process would not do. The
driver's program listens at a socket of its own; its name is in the environment of the processes that Spark starts. Each
call is one connection: a JSON object, and its response.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from pyspark.sql import SparkSession

from sharegroup.client.sink_table import WRITE_EXPIRY_MS
from sharegroup.config.spark_sink import SparkSinkConfig
from sharegroup.errors import ConfigurationError, ShareGroupError, SinkError, UndecidedWriteError, WriteFencedError
from sharegroup.event_log import Event
from sharegroup.protocol.sink_writes import Sink, UnresolvedWrite
from sharegroup.protocol.write_resolution import ResolveWriteRequest
from sharegroup.spark import classic
from sharegroup.spark.sink.open_sinks import new_sink, open_sink

logger = logging.getLogger("sharegroup.spark.sink")

_VARIABLE = "SHAREGROUP_SINK_SERVICE"
_PREFIX, _SOCKET = "sharegroup-sinks-", "socket"
_MAX_ADDRESS_BYTES = 100
"""Of the path of a socket; Linux allows 107 bytes, macOS 103."""
_OPEN = "open"
_ERRORS: dict[str, type[ShareGroupError]] = {
    kind.__name__: kind for kind in (SinkError, WriteFencedError, UndecidedWriteError, ConfigurationError)
}

_served: dict[str, SinkService] = {}
_served_lock = threading.Lock()


def serve_sinks(spark: SparkSession) -> None:
    """Serve the sources that are registered in an application from now on, until this process ends."""
    application = classic.application_id(spark)
    with _served_lock:
        if application not in _served:
            _served[application] = SinkService(spark)
        classic.set_environment(spark, _VARIABLE, _served[application].address)


class SinkService:
    """Reads and fences sinks in threads of its own.

    Attributes:
        address: path of its socket, which only this user reaches.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._folder = _new_folder()
        self.address = os.path.join(self._folder, _SOCKET)
        self._listener = Listener(self.address, family="AF_UNIX")
        self._is_closed = False
        atexit.register(self.close)
        threading.Thread(target=self._accept, name="share-group-sinks", daemon=True).start()

    def close(self) -> None:
        """End the service, and remove its socket."""
        self._is_closed = True
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError as error:
                if not self._is_closed:
                    logger.warning(Event("sink_service_ended", reason=error))
                return
            threading.Thread(target=self._serve, args=(connection,), name="share-group-sink", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection:
            try:
                response = self._response(json.loads(connection.recv_bytes()))
                connection.send_bytes(json.dumps(response).encode())
            except (OSError, EOFError, ValueError) as error:
                logger.warning(Event("sink_call_lost", reason=error))

    def _response(self, request: Mapping[str, Any]) -> dict[str, Any]:
        resolved = None
        try:
            config = SparkSinkConfig.from_mapping(request["config"])
            of_call = new_sink if request["call"] == _OPEN else open_sink
            sink = of_call(self._spark, request["address"], config)
            match request["call"]:
                case "check":
                    sink.check(request["expiry_ms"])
                case "lookup":
                    resolved = sink.lookup(UnresolvedWrite.model_validate(request["write"]))
                case "resolve":
                    resolved = sink.resolve(UnresolvedWrite.model_validate(request["write"]))
        except ShareGroupError as error:
            return {"error": [type(error).__name__, error.message, error.remedy]}
        except Exception as error:
            logger.exception(Event("sink_call_failed", sink=request["address"], reason=error))
            return {"error": [SinkError.__name__, f"{request['address']} cannot be asked: {error!r}", ""]}
        return {
            "sink": sink.sink.model_dump(mode="json"),
            "resolved": None if resolved is None else resolved.model_dump(mode="json"),
        }


def _new_folder() -> str:
    """Create a folder that only this user may enter, with a short path even if that of the temporary files is long."""
    parent = tempfile.gettempdir()
    if len(os.fsencode(os.path.join(parent, f"{_PREFIX}12345678", _SOCKET))) > _MAX_ADDRESS_BYTES:
        parent = os.path.join(os.sep, "tmp")
    return tempfile.mkdtemp(prefix=_PREFIX, dir=parent)


class ServedSink:
    """A sink for a process without a session.

    Args:
        config: `sink.…` keys.

    Raises:
        ConfigurationError: no program serves this process.
        SinkError: as of `SparkSink`.
    """

    def __init__(self, address: str, config: Mapping[str, object]) -> None:
        self._service = os.environ.get(_VARIABLE, "")
        if not self._service:
            raise ConfigurationError(
                "The option sink is set, and the session is one of Spark Connect: its sources cannot reach the table.",
                "Use a classic session, or a worker: process(spark, config, handler, sink=…).",
            )
        self._address = address
        self._config = dict(config)
        self._expiry_ms = WRITE_EXPIRY_MS
        self._sink: Sink
        self._call(_OPEN)

    @property
    def sink(self) -> Sink:
        """The table, with its version when it was last read."""
        return self._sink

    def check(self, expiry_ms: int) -> None:
        """Check that the table remembers commits for as long as the group's writes are looked up.

        Args:
            expiry_ms: `share.exactly.once.write.expiry.ms` of the group.

        Raises:
            SinkError: it does not.
        """
        if expiry_ms != self._expiry_ms:
            self._call("check", expiry_ms=expiry_ms)
            self._expiry_ms = expiry_ms

    def lookup(self, write: UnresolvedWrite) -> ResolveWriteRequest | None:
        """Return what the table says of a write that is complete, or fenced; None if it may still get there.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read.
        """
        return self._call("lookup", write=write.model_dump(mode="json"))

    def resolve(self, write: UnresolvedWrite, /) -> ResolveWriteRequest:
        """Fence a write unless it is complete, and return what the table says of it, for ever.

        Raises:
            UndecidedWriteError: the log does not show any more what became of it.
            SinkError: the table cannot be read or written.
        """
        resolved = self._call("resolve", write=write.model_dump(mode="json"))
        assert resolved is not None
        return resolved

    def _call(self, call: str, **arguments: object) -> ResolveWriteRequest | None:
        request = {"address": self._address, "config": self._config, "call": call, **arguments}
        try:
            with Client(self._service, family="AF_UNIX") as connection:
                connection.send_bytes(json.dumps(request).encode())
                response = json.loads(connection.recv_bytes())
        except (OSError, EOFError) as error:
            raise SinkError(
                f"{self._address} cannot be asked: the driver's program does not respond: {error}", "Start it again."
            ) from error
        if "error" in response:
            name, message, remedy = response["error"]
            raise _ERRORS.get(name, SinkError)(message, remedy)
        self._sink = Sink.model_validate(response["sink"])
        return ResolveWriteRequest.model_validate(response["resolved"]) if response["resolved"] else None
