"""Small data sets of random images in the official formats, plain and compressed."""

import gzip
import io
import lzma
import pickle
import struct
from pathlib import Path

import numpy as np

CIFAR10 = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def batch(labels: list[int], rng=None, /, **entries: object) -> bytes:
    """Return a batch of CIFAR with keys of bytes, black unless there is a generator."""
    shape = len(labels), 3072
    pixels = np.zeros(shape, np.uint8) if rng is None else rng.integers(0, 256, shape, dtype=np.uint8)
    given = {"data": pixels, "labels": labels, "fine_labels": labels, "filenames": [b"0.png"]} | entries
    return pickle.dumps({name.encode(): value for name, value in given.items()})


def npz(**arrays: np.ndarray) -> bytes:
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getvalue()


def write_sets(home: Path) -> Path:
    """Write MNIST (20 + 10 images), CIFAR-10 (50 + 10), CIFAR-100 (200 + 100) and a small set (20 + 10)."""
    rng = np.random.default_rng(0)
    files = {f"cifar-10-batches-py/{stem}.xz": lzma.compress(batch([*range(10)], rng)) for stem in CIFAR10}
    for prefix, count in (("train", 20), ("t10k", 10)):
        images = rng.integers(0, 256, (count, 28, 28))
        files[f"mnist/{prefix}-images-idx3-ubyte.gz"] = gzip.compress(idx(images))
        files[f"mnist/{prefix}-labels-idx1-ubyte"] = idx(np.arange(count) % 10)
    files["cifar-100-python/train"] = batch([k % 100 for k in range(200)], rng)
    files["cifar-100-python/test.xz"] = lzma.compress(batch([*range(100)], rng))
    images = {f"x_{part}": np.zeros((count, 28, 28), np.uint8) for part, count in (("train", 20), ("test", 10))}
    files["mnist-small.npz"] = npz(**images, y_train=np.arange(20) % 10, y_test=np.arange(10))
    for place, content in files.items():
        (home / place).parent.mkdir(exist_ok=True)
        (home / place).write_bytes(content)
    return home
