"""Messages cross the wire unchanged, and nothing that could run code crosses at all."""

import os
import threading
from multiprocessing import Pipe

import numpy as np
import pytest

from app.backend.codec import DTYPES, Wire, pack, unpack


def round_trip(value):
    header, buffers = pack(value)
    return unpack(header, [buffer.tobytes() for buffer in buffers])


def test_builtins_bytes_and_tuples_come_back_as_they_were():
    value = {"a": [1, 2.5, None, True, "é\ud83d"[:1]], "b": (1, (2, b"\xf0\x9f\x00")), "nan": float("inf")}
    back = round_trip(value)
    assert back == value
    assert isinstance(back["b"], tuple) and isinstance(back["b"][1], tuple)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3, 4)])
def test_arrays_keep_dtype_shape_and_values(dtype, shape):
    array = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    back = round_trip({"x": array})["x"]
    assert back.dtype == array.dtype and back.shape == array.shape
    np.testing.assert_array_equal(back, array)


def test_a_view_that_is_not_contiguous_keeps_its_values():
    array = np.arange(12, dtype=np.float32).reshape(3, 4).T[::2]
    np.testing.assert_array_equal(round_trip(array), array)


def test_numpy_scalars_become_python_numbers():
    assert round_trip([np.float32(0.5), np.int64(7), np.bool_(True)]) == [0.5, 7, True]


@pytest.mark.parametrize(
    "value", [object(), np.array([object()]), np.array(["text"]), {1: 2}, {"$array": 1}, {1, 2}, print]
)
def test_anything_else_is_refused_where_it_is_sent(value):
    with pytest.raises(TypeError, match="needs builtins and plain arrays; found"):
        pack({"value": value})


def test_another_schema_or_an_unknown_dtype_is_refused_where_it_arrives():
    with pytest.raises(ValueError, match="needs wire schema 1; found 0"):
        unpack(b'{"schema": 0, "buffers": 0, "value": 1}', [])
    with pytest.raises(ValueError, match="found object"):
        unpack(b'{"schema": 1, "buffers": 1, "value": {"$array": [0, "object", [1]]}}', [b"12345678"])


def test_closing_wakes_the_reader_at_either_end():
    here, there = (Wire(end) for end in Pipe())
    ended = []
    for wire in (here, there):

        def read(wire=wire):
            with pytest.raises(EOFError):
                wire.receive()
            ended.append(wire)

        threading.Thread(target=read, daemon=True).start()
    here.close()
    for thread in threading.enumerate():
        if thread.daemon and thread.name.startswith("Thread-") and "read" in thread.name:
            thread.join(5)
    assert len(ended) == 2
    assert here.send(1) is False
    there.close()


def test_the_reader_gives_the_descriptor_back_so_that_it_never_reads_from_another_connection():
    connection, there = Pipe()
    wire, number = Wire(connection), connection.fileno()
    wire.close()
    wire.close()
    os.fstat(number)  # still ours: a reader may be on its way into read(number)
    assert wire.send({"a": 1}) is False
    with pytest.raises(EOFError):
        wire.receive()
    with pytest.raises(OSError):
        os.fstat(number)
    with pytest.raises(EOFError):
        wire.receive()
    wire.close()


def test_many_writers_never_mix_their_messages():
    here, there = (Wire(end) for end in Pipe())
    rows = [np.full(1000, number, dtype=np.int32) for number in range(8)]

    def write(row):
        for _ in range(20):
            here.send({"row": row, "first": int(row[0])})

    writers = [threading.Thread(target=write, args=(row,)) for row in rows]
    for writer in writers:
        writer.start()
    for _ in range(160):
        message = there.receive()
        assert (message["row"] == message["first"]).all()
    for writer in writers:
        writer.join()
    here.close(), there.close()
