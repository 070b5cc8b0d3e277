"""Files from an attacker, each read in a fork of this process: program of `test_hostile_content.py`.

For every attack it prints the outcome, the message, the memory at its peak and the time.
"""

import contextlib
import io
import json
import os
import pickle
import struct
import sys
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
import xarray as xr
from safetensors.torch import save_file

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

import tiny  # noqa: E402
from saddlescope import cli, store  # noqa: E402
from saddlescope._shared.errors import InputError  # noqa: E402
from saddlescope.flow.descent import checkpoint_file  # noqa: E402
from saddlescope.models.tokens.data import load_tokens  # noqa: E402
from saddlescope.reproduction import catalogue, reproduce  # noqa: E402
from saddlescope.reproduction import entry as entries  # noqa: E402
from saddlescope.store import netcdf  # noqa: E402
from saddlescope.training.data.small_sets import read_small  # noqa: E402
from saddlescope.training.data.untrusted_pickle import unpickle  # noqa: E402

ESCAPE = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202e"
DEEP = "[" * 100_000 + "]" * 100_000
NESTED = "[" * 500 + "]" * 500

Attack = Callable[[Path], None]
ATTACKS: dict[str, Attack] = {}
HARMLESS: list[Path] = []  # the stored run that attacks change
BOMB: list[Path] = []  # the file of zeros that attacks read


def attack(function: Attack) -> Attack:
    """Add an attack, which gets an empty folder, under its name in words."""
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


def command(*words: str) -> None:
    """Run a command; raise its sentence if it refuses."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        status = cli.main([*words])
    text = said.getvalue()
    if "Traceback" in text or status == 70:
        raise AssertionError(text)
    if any((ord(sign) < 32 and sign not in "\n\t") or 0x7F <= ord(sign) < 0xA0 or sign == "\u202e" for sign in text):
        raise AssertionError(f"a control character reached the terminal: {text!r}")
    if status == 2:
        raise InputError(text)


def sealed(folder: Path, fill: Callable[[h5py.File], object]) -> Path:
    """Write a file of HDF5 with a valid seal."""
    path = folder / "run.nc"
    with h5py.File(path, "w") as file:
        fill(file)
    content = path.read_bytes()
    path.write_bytes(content + netcdf._seal(content))
    return path


def stored(folder: Path, change: Callable[[xr.Dataset], xr.Dataset]) -> None:
    """Store a changed run, and judge, show and open it."""
    store.write(change(store.read(HARMLESS[0])), folder / "runs/tiny/staircase/quick.nc")
    refused = []
    for words in (
        ["check", "runs"],
        ["show", "tiny/staircase", "--out", "runs"],
        ["run", "tiny/staircase", "--size", "quick", "--out", "runs"],
    ):
        try:
            command(*words)
        except InputError as error:
            refused.append(str(error))
    if refused:
        raise InputError(refused[0])


ALWAYS = ("nothing at all", "written", "terabytes", "a key", "73 TiB", "compressed")  # in every selection
TEXT = h5py.string_dtype()


@attack
def nothing_at_all(folder):
    """Measure the memory of a fork."""
    store.read(HARMLESS[0])


@attack
def millions_of_strings_never_written(folder):
    store.read(sealed(folder, lambda file: file.create_dataset("a", (8_000_000,), TEXT, chunks=(2**20,))))


@attack
def many_strings_by_a_long_fill_value(folder):
    def fill(file):
        file.create_dataset("a", (100_000,), TEXT, chunks=(1000,), fillvalue="x" * 60_000)

    store.read(sealed(folder, fill))


@attack
def a_table_of_strings_never_written(folder):
    store.read(sealed(folder, lambda file: file.create_dataset("a", (3, 3, 900_000), TEXT, chunks=(1, 1, 2**16))))


@attack
def terabytes_of_zeros(folder):
    def fill(file):
        file.create_dataset("a", (2**17, 2**20), "f8", chunks=(2**10, 2**10), compression="gzip")

    store.read(sealed(folder, fill))


@attack
def bytes_that_are_decoded_to_numbers(folder):
    def fill(file):
        array = file.create_dataset("a", (2**26,), "i1", chunks=(2**20,))
        array.attrs["scale_factor"] = 1.5

    store.read(sealed(folder, fill))


@attack
def arrays_of_arrays(folder):
    store.read(sealed(folder, lambda file: file.create_dataset("a", (9,), h5py.vlen_dtype("f8"))))


@attack
def references(folder):
    store.read(sealed(folder, lambda file: file.create_dataset("a", (9,), h5py.ref_dtype)))


@attack
def attributes_of_strings(folder):
    def fill(file):
        file["a"] = np.zeros(3)
        for k in range(30):
            file.attrs.create(f"a{k}", ["x" * 60_000] * 3, dtype=TEXT)

    store.read(sealed(folder, fill))


@attack
def thousands_of_variables(folder):
    def fill(file):
        for k in range(3000):
            file[f"v{k}"] = 1.0

    store.read(sealed(folder, fill))


@attack
def a_group_in_a_group(folder):
    store.read(sealed(folder, lambda file: file.create_group("a/b/c")))


for _name in ("settings", "params", "versions", "verdicts"):
    for _text in (
        DEEP,
        NESTED,
        '{"a":' * 100 + "1" + "}" * 100,
        '{"a": ' + "9" * 5000 + "}",
        '{"a": 1e999}',
        '"\\ud800"',
    ):

        def _json(folder, name=_name, text=_text):
            stored(folder, lambda run: run.assign_attrs({name: text}))

        ATTACKS[f"{_name} {_text[:12]} of {len(_text)}"] = _json


def _extreme(value):
    return lambda folder: stored(
        folder, lambda run: run.assign(loss=run.loss * 0 + value, rank=run["rank"] * 0 + value)
    )


for _value in (1e308, -1e308, 5e-324, np.inf, np.nan):
    ATTACKS[f"values of {_value}"] = _extreme(_value)


@attack
def alternating_extremes(folder):
    stored(folder, lambda run: run.assign(loss=run.loss * 0 + 1e308 * (-1) ** np.arange(run.sizes["t"])))


@attack
def extreme_provenance(folder):
    stored(folder, lambda run: run.assign_attrs(cpu_seconds=1e308, resumed=10**18, centres=np.array([1e308, -1e308])))


for _name in ("entry", "size", "settings", "params", "seed", "finished", "versions", "platform", "command", "reported"):
    for _text in (ESCAPE, json.dumps({ESCAPE: [ESCAPE]})):

        def _escaping(folder, name=_name, text=_text):
            stored(folder, lambda run: run.assign_attrs({name: text}))

        ATTACKS[f"escapes in {_name}, {len(_text)}"] = _escaping


@attack
def escapes_in_stored_words_and_names(folder):
    stored(folder, lambda run: run.assign_coords(name=("stage", [ESCAPE] * run.sizes["stage"])).rename(scale=ESCAPE))


@attack
def escapes_in_words_of_a_command(folder):
    for words in (
        ["run", ESCAPE],
        ["run", "tiny/staircase", "--set", f"{ESCAPE}={ESCAPE}"],
        ["show", ESCAPE],
        [ESCAPE],
    ):
        with contextlib.suppress(InputError):
            command(*words)
    command("check", ESCAPE)


def pair() -> dict[str, torch.Tensor]:
    """Return the weights of an attention block."""
    draw = torch.Generator().manual_seed(0)
    return {f"layers.0.{name}_proj.weight": torch.randn(6, 6, generator=draw) for name in "qkvo"}


for _sign in ("\0", "\x1b[2J", "\n", "\u202e", "\x9b"):

    def _named(folder, sign=_sign):
        weights = pair() | {f"a{sign}b.weight": torch.ones(3, 3)}
        save_file(weights, folder / "base.safetensors")
        save_file({name: 2 * one for name, one in weights.items()}, folder / "tuned.safetensors")
        command("spectra", "base.safetensors", "tuned.safetensors", "--heads", "2", "--matrices", "*")

    ATTACKS[f"a tensor's name with {_sign!r}"] = _named


def forged(folder: Path, content: bytes, *, compressed: bool = False) -> None:
    """Compare a file of `torch.save` with a pickle of the attacker."""
    kind = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(folder / "bad.pt", "w", kind) as archive:
        archive.writestr("bad/data.pkl", content)
        archive.writestr("bad/byteorder", "little")
        archive.writestr("bad/version", "3\n")
    torch.save(pair(), folder / "good.pt")
    command("spectra", "bad.pt", "good.pt", "--heads", "2")


def doubled(levels: int, inner: bytes = b"N") -> bytes:
    """Return the operations that build a tuple of one tuple twice, and so on."""
    return inner + b"\x85" + b"2\x86" * levels


KEYS = {
    "a key of doubled tuples": b"\x80\x02}" + doubled(60) + b"Ns.",
    "a key of tuples remembered": b"\x80\x02}N\x85q\x00h\x00h\x00\x86q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"Ns.",
    "a key of tuples in each other": b"\x80\x02}N" + b"\x85" * 200_000 + b"Ns.",
    "a set of doubled tuples": b"\x80\x04\x8f(" + doubled(60) + b"\x90.",
    "a frozen set of doubled tuples": b"\x80\x04(" + doubled(60) + b"\x91.",
    "a place beyond memory": b"\x80\x02}r" + struct.pack("<I", 2**31 - 2) + b".",
    "an array of bytes beyond memory": b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",
    "bytes beyond the file": b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b"a.",
    "lists in each other": b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".",
    "a number of a million digits": b"\x80\x02L" + b"9" * 1_000_000 + b"L\n.",
    "marks": b"\x80\x02" + b"(" * 200_000 + b"N.",
    "nothing": b".",
    "a shape of doubled tuples": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
    + b"(cnumpy\nndarray\nK\x00\x85U\x01btR(K\x01"
    + doubled(60)
    + b"cnumpy\ndtype\n(U\x02u1K\x00K\x01tR(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x00tb.",
    "a function": pickle.dumps(os.system),
    "a call": b"\x80\x02cbuiltins\nbytearray\n\x8a\x06" + (2**40).to_bytes(6, "little") + b"\x85R.",
}
for _name, _content in KEYS.items():
    ATTACKS[f"pickle: {_name}"] = lambda folder, content=_content: unpickle(content, "batch")
    ATTACKS[f"checkpoint: {_name}"] = lambda folder, content=_content: forged(folder, content)


@attack
def a_compressed_checkpoint(folder):
    forged(folder, b"\x80\x02}." + bytes(2**26), compressed=True)


@attack
def a_storage_beyond_its_file(folder):
    save = io.BytesIO()
    torch.save({"w": torch.zeros(3)}, save)
    with zipfile.ZipFile(save) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    name = next(one for one in members if one.endswith("data.pkl"))
    members[name] = members[name].replace(b"K\x03", b"J\xff\xff\xff\x7f")
    with zipfile.ZipFile(folder / "bad.pt", "w") as archive:
        for one, content in members.items():
            archive.writestr(one, content)
    command("spectra", "bad.pt", "bad.pt")


@attack
def a_sparse_tensor_of_terabytes(folder):
    sparse = torch.sparse_coo_tensor(torch.tensor([[0], [0]]), torch.tensor([1.0]), (2**30, 2**30))
    torch.save(pair() | {"w.weight": sparse}, folder / "bad.pt")
    command("spectra", "bad.pt", "bad.pt", "--heads", "2")


@attack
def a_repeated_entry_of_terabytes(folder):
    torch.save(pair() | {"w.weight": torch.zeros(1, 1).expand(2**20, 2**20)}, folder / "bad.pt")
    command("spectra", "bad.pt", "bad.pt", "--heads", "2", "--matrices", "w.weight")


for _text in (
    DEEP,
    NESTED,
    "",
    "[]",
    '{"a": NaN}',
    '{"num_attention_heads": 1e400}',
    '{"num_attention_heads": -1}',
    "\xff",
):

    def _config(folder, text=_text):
        for name in ("base", "tuned"):
            (folder / name).mkdir()
            save_file(pair(), folder / name / "model.safetensors")
            (folder / name / "config.json").write_text(text, "latin-1")
        command("spectra", "base", "tuned")

    ATTACKS[f"config.json {_text[:30]!r} of {len(_text)}"] = _config


@attack
def a_header_longer_than_its_file(folder):
    (folder / "bad.safetensors").write_bytes(struct.pack("<Q", 2**40) + b"{}")
    command("spectra", "bad.safetensors", "bad.safetensors")


@attack
def a_header_of_nested_lists(folder):
    text = b'{"a":' + DEEP.encode() + b"}"
    (folder / "bad.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    command("spectra", "bad.safetensors", "bad.safetensors")


def npz(folder: Path, content: bytes, kind: int = zipfile.ZIP_STORED) -> Path:
    """Write an .npz file whose arrays all have this content."""
    path = folder / "mnist.npz"
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name in ("X", "z", "y", "v", "x_train", "y_train", "x_test", "y_test", "run"):
            archive.writestr(f"{name}.npy", content)
    return path


def bomb(folder: Path) -> Path:
    """Write an .npz file of 128 MiB of zeros in each of two arrays, which takes half a second."""
    path = npz(folder, b"", zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("X", "z", "y", "v", "x_train", "y_train", "x_test", "y_test"):
            with archive.open(f"{name}.npy", "w") as array:
                array.write(npy(f"({2**24},)"))
                for _ in range(2**27 // 2**20 if name in ("X", "x_train") else 0):
                    array.write(bytes(2**20))
    return path


def npy(shape: str, kind: str = "'<f8'", data: bytes = b"") -> bytes:
    """Return the bytes of a file of one array."""
    header = f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


ARRAYS = {
    "a shape of 73 TiB": npy("(10000000000000,)"),
    "a shape of many axes": npy("(" + "1000000," * 40 + ")"),
    "a negative shape": npy("(-1,)"),
    "a shape of text": npy("('a',)"),
    "a header of brackets": npy("(" * 30_000),
    "objects": npy("(1,)", "'|O'", pickle.dumps([os.system])),
    "records of objects": npy("(1,)", "[('a', '|O')]"),
    "bytes of no array": bytes(100),
    "nothing": b"",
    "the version 9": b"\x93NUMPY\x09\x00" + bytes(100),
    "infinities": npy("(2, 2, 2)", data=np.full(8, np.inf).tobytes()),
    "one number": npy("()", data=np.zeros(1).tobytes()),
}
READERS = {
    "tokens": load_tokens,
    "images": lambda path: read_small("mnist", path.parent),
    "descent": lambda path: checkpoint_file.read(path, "run"),
}
for _reader, _read in READERS.items():
    for _name, _content in ARRAYS.items():
        ATTACKS[f"{_reader}: {_name}"] = lambda folder, content=_content, read=_read: read(npz(folder, content))

    def _bomb(folder, read=_read):
        (folder / "mnist.npz").symlink_to(BOMB[0])
        read(folder / "mnist.npz")

    def _unknown(folder, read=_read):
        path = npz(folder, npy("(1,)", data=bytes(8)))
        content = bytearray(path.read_bytes())
        for place in range(len(content) - 4):
            if content[place : place + 4] == b"PK\x01\x02":
                content[place + 10 : place + 12] = struct.pack("<H", 77)  # method of compression
        path.write_bytes(content)
        read(path)

    def _encrypted(folder, read=_read):
        path = npz(folder, npy("(1,)", data=bytes(8)))
        content = bytearray(path.read_bytes())
        for place in range(len(content) - 4):
            if content[place : place + 4] == b"PK\x01\x02":
                content[place + 8] |= 1
        path.write_bytes(content)
        read(path)

    ATTACKS |= {f"{_reader}: zeros compressed": _bomb, f"{_reader}: an unknown compression": _unknown}
    ATTACKS[f"{_reader}: encrypted"] = _encrypted


def outcome(name: str, folder: Path) -> tuple[str, str]:
    """Run one attack in its folder; return what came of it, and the message."""
    folder.mkdir()
    os.chdir(folder)
    try:
        ATTACKS[name](folder)
    except InputError as error:
        return "refused", str(error)
    except BaseException:
        return "error", traceback.format_exc()
    return "accepted", ""


def measured(name: str, folder: Path) -> tuple[str, str, float, float]:
    """Run one attack in a fork; return also MiB of memory at its peak, and seconds of CPU time."""
    reader, writer = os.pipe()
    if not (child := os.fork()):
        os.close(reader)
        os.write(writer, json.dumps(outcome(name, folder)).encode()[:50_000])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        text = answer.read()
    _, status, used = os.wait4(child, 0)
    what, message = json.loads(text) if text else ("error", f"it ended with the wait status {status}")
    return what, message, used.ru_maxrss / 2**10, used.ru_utime + used.ru_stime


if __name__ == "__main__":
    entries.find_entry, catalogue.entry_names = tiny.find_entry, lambda: tiny.NAMES
    catalogue.entry_heading = lambda name: tiny.HEADING
    here = Path(sys.argv[1])
    HARMLESS.append(reproduce(tiny.ENTRY, out=here / "first", size="quick").file)  # loads for all forks
    BOMB.append(bomb(here))
    with contextlib.suppress(InputError):
        (here / "first.pt").parent.mkdir(exist_ok=True)
        torch.save(pair(), here / "first.pt")
        os.chdir(here)
        command("spectra", "first.pt", "first.pt", "--heads", "2")
    chosen = [name for k, name in enumerate(ATTACKS) if k % int(sys.argv[2]) == 0 or any(map(name.count, ALWAYS))]
    print(json.dumps({name: measured(name, here / f"{k}") for k, name in enumerate(chosen)}))  # noqa: T201
