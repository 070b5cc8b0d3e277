"""Batches of CIFAR: images and labels are those of the pickle, and nothing malicious is ever executed."""

import builtins
import os
import pickle
import pickletools

import numpy as np
import pytest

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.training.data.cifar_batch import read_batch

IMAGES = np.arange(2 * 3072, dtype=np.int64).reshape(2, 3072).astype(np.uint8)


class Calls:
    """Object that is pickled as a call of any function, optionally with a state to set afterwards."""

    def __init__(self, function, *arguments, state=None):
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self):
        return self.parts


def python2_batch(images: np.ndarray, labels: list[int]) -> bytes:
    """Return a batch as Python 2 wrote CIFAR's: protocol 2, byte strings, NumPy 1's module names."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + value.to_bytes(4, "little", signed=True)

    rows, columns = images.shape
    content = images.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b") + b"tR"
        b"(K\x01" + number(rows) + number(columns) + b"\x86"
        b"cnumpy\ndtype\n("
        + text(b"u1")
        + b"K\x00K\x01tR(K\x03"
        + text(b"|")
        + b"NNN"
        + number(-1)
        + number(-1)
        + b"K\x00tb"
        b"\x89T" + len(content).to_bytes(4, "little") + content + b"tb"
    )
    listed = b"](" + b"".join(number(label) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + listed + b"u."


def python3_batch(images: object, protocol: int = 4) -> bytes:
    return pickle.dumps({"data": images, b"labels": [7, 3], "rest": [1, 2.5, None, b"x", (3,)]}, protocol=protocol)


@pytest.mark.parametrize(
    "content",
    [
        python2_batch(IMAGES, [7, 3]),
        python3_batch(IMAGES, 3),
        python3_batch(IMAGES),
        python3_batch(np.asfortranarray(IMAGES)),
    ],
    ids=["Python 2", "protocol 3", "protocol 4", "column by column"],
)
def test_a_batch_comes_back_unchanged(content):
    images, labels = read_batch(content, "batch", "labels")
    np.testing.assert_array_equal(images.reshape(2, -1), IMAGES)
    assert labels.tolist() == [7, 3]


def hostile(marker):
    """Return pickles that try to create a marker file, each in another way."""
    command = f"touch {marker}"
    python = f"open({str(marker)!r}, 'w').close()"
    objects = np.empty(1, dtype=object)
    objects[0] = Calls(os.system, command)
    attribute = Calls(getattr, Calls(builtins.__import__, "os"), "system")
    yield "os.system", pickle.dumps(Calls(os.system, command))
    yield "in a batch", pickle.dumps({"data": np.zeros(3, np.uint8), "labels": [Calls(os.system, command)]})
    yield "builtins.eval", pickle.dumps(Calls(eval, f"__import__('os').system({command!r})"))
    yield "builtins.exec", pickle.dumps(Calls(exec, python))
    yield "object array", pickle.dumps(objects)
    yield "nested getattr", pickle.dumps(attribute)
    yield "os.system, protocol 0", b"cposix\nsystem\n(S'" + command.encode() + b"'\ntR."
    yield "INST", b"(S'" + command.encode() + b"'\niposix\nsystem\n."
    yield "dotted name", b"\x80\x04\x8c\x05numpy\x8c\x13ndarray.__class__.x\x93."
    yield "module attribute", b"\x80\x04\x8c\x05numpy\x8c\x0actypeslib.\x93."
    yield "numpy.load", pickle.dumps(Calls(np.load, str(marker)))
    yield "state on a named thing", b"cnumpy\ndtype\n}S'x'\nI1\nsb."
    yield "slots on a named thing", b"cnumpy\ndtype\n(N}S'__call__'\nI1\nstb."
    yield "a class by NEWOBJ", b"\x80\x02cnumpy\nndarray\n)\x81."
    yield "a call of the wrong thing", b"\x80\x02cnumpy\nndarray\n)R."
    yield "subclass", b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\n(I0\ntS'b'\ntR."
    yield "persistent", b"Pmarker\n."
    yield "extension", b"\x80\x02\x82\x01."
    yield "set", pickle.dumps({1, 2})
    yield "complex", pickle.dumps(1j)


def test_nothing_hostile_is_executed(tmp_path):
    marker = tmp_path / "marker"
    for way, content in hostile(marker):
        refused(r"nothing in it was executed|must hold 'data'", read_batch, content, f"{way}.pickle", "labels")
        assert not marker.exists(), way


def test_the_marker_trap_works(tmp_path):
    marker = tmp_path / "marker"
    pickle.loads(dict(hostile(marker))["os.system"])
    assert marker.exists()


@pytest.mark.parametrize("dtype", ["O", "V1", "S1", "i1", "?", "<i8", ">f4", [("a", "u1")]])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(InputError, match=r"must hold 'data'|cannot be read"):
        read_batch(python3_batch(np.zeros((2, 3072), dtype)), "batch", "labels")


def test_every_cut_and_every_flipped_opcode_is_an_input_error_or_harmless():
    content = python2_batch(IMAGES[:1], [7])
    for end in (*range(200), *range(len(content) - 50, len(content))):
        with pytest.raises(InputError):
            read_batch(content[:end], "batch", "labels")
    for _, _, position in pickletools.genops(content):
        for other in (b"R", b"b", b"0", b"a", b"\x81", b"."):
            try:
                read_batch(content[:position] + other + content[position + 1 :], "batch", "labels")
            except InputError:
                continue


def test_a_list_repeated_a_billion_times_is_not_walked():
    value: list = []
    for _ in range(200):
        value = [value, value]
    images, _ = read_batch(pickle.dumps({"data": IMAGES, "labels": [7, 3], "rest": value}), "batch", "labels")
    assert images.shape == (2, 3, 32, 32)
