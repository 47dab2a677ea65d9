"""Messages between server and worker: JSON plus raw array buffers. Nothing is pickled, so no message can run code.

A message is one header (JSON, with the schema version and the number of buffers) followed by its buffers. Builtins, bytes, tuples
and arrays of a few plain types pass; anything else is refused where it is sent, not where it arrives.
"""

import contextlib
import json
import os
import socket
import threading
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

SCHEMA = 1
DTYPES = frozenset({"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"})


def pack(value: Any) -> tuple[bytes, list[np.ndarray]]:
    """Header and buffers of a message.

    Raises:
        TypeError: a value of a type that does not cross the wire.
    """
    buffers: list[np.ndarray] = []
    body = _pack(value, buffers)
    return json.dumps({"schema": SCHEMA, "buffers": len(buffers), "value": body}).encode(), buffers


def _pack(value: Any, buffers: list[np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value.item() if isinstance(value, np.generic) else value
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.name in DTYPES:
        buffers.append(np.ascontiguousarray(value))
        return {"$array": [len(buffers) - 1, value.dtype.name, list(value.shape)]}
    if isinstance(value, bytes):
        return {"$bytes": value.decode("latin-1")}
    if isinstance(value, tuple):
        return {"$tuple": [_pack(item, buffers) for item in value]}
    if isinstance(value, list):
        return [_pack(item, buffers) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _pack(item, buffers) for key, item in value.items()}
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise TypeError(f"needs builtins and plain arrays; found {kind}; turn it into these before it is sent.")


def unpack(header: bytes, buffers: list[bytes]) -> Any:
    """The value that `pack` was given; arrays are read-only views of the buffers.

    Raises:
        ValueError: another schema version, or a header that does not describe its buffers.
    """
    message = json.loads(header)
    if message.get("schema") != SCHEMA:
        raise ValueError(
            f"needs wire schema {SCHEMA}; found {message.get('schema')}; restart server and worker together."
        )
    return _unpack(message["value"], buffers)


def _unpack(value: Any, buffers: list[bytes]) -> Any:
    if isinstance(value, list):
        return [_unpack(item, buffers) for item in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        index, dtype, shape = value["$array"]
        if dtype not in DTYPES:
            raise ValueError(f"needs one of {sorted(DTYPES)}; found {dtype}; restart server and worker together.")
        return np.frombuffer(buffers[index], dtype=dtype).reshape(shape)
    if "$bytes" in value:
        return value["$bytes"].encode("latin-1")
    if "$tuple" in value:
        return tuple(_unpack(item, buffers) for item in value["$tuple"])
    return {key: _unpack(item, buffers) for key, item in value.items()}


class Wire:
    """One end of a connection: whole messages, written by many threads and read by one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sending = threading.Lock()
        self._ending = threading.Lock()  # held where the descriptor's number is used or given back
        self._closed = False

    def send(self, value: Any) -> bool:
        """Send one message; False when the other end is gone."""
        header, buffers = pack(value)
        try:
            with self._sending:
                self._connection.send_bytes(header)
                for buffer in buffers:
                    self._connection.send_bytes(memoryview(buffer).cast("B") if buffer.size else b"")
        except (OSError, ValueError):  # closed by us (ValueError, OSError) or by the other end (BrokenPipeError)
            return False
        return True

    def receive(self) -> Any:
        """The next message. Raises EOFError when the other end is gone or this one was closed."""
        try:
            if self._closed:
                raise EOFError("closed")
            header = self._connection.recv_bytes()
            count = json.loads(header)["buffers"]
            return unpack(header, [self._connection.recv_bytes() for _ in range(count)])
        except (EOFError, OSError) as error:
            self._closed = True
            with self._sending, self._ending:
                self._connection.close()
            raise EOFError(str(error)) from error

    def close(self) -> None:
        """End the conversation; whoever waits at either end reads EOFError. Idempotent, from any thread.

        The reader gives the file descriptor back, not we: a reader on its way into the system call would otherwise read from
        whatever connection has been given the same number since.
        """
        self._closed = True
        with self._ending, contextlib.suppress(OSError):  # not under _sending: the sender may be what has to be woken
            with socket.socket(fileno=os.dup(self._connection.fileno())) as twin:
                twin.shutdown(socket.SHUT_RDWR)
