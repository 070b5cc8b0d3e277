"""Spectra of all heads between two checkpoints of Llama-7B's shapes: peak memory, and time a layer.

The pair is made on the spot: the shapes of one layer (d = 4096, 32 heads of width 128, MLP of 11008) repeated, in
bfloat16, a shard a layer, with an embedding of 32000 tokens; the tuned one differs by a matrix of rank 4 in every
weight. Each measurement is a process of its own, whose peak of resident memory (mapped files included) is reported over
what it has after its imports. Tensors that are not attention are compared by samples. CPU time on one thread.

usage: benchmarks/checkpoints.py [--quick] [layers [folder]]
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy and PyTorch are loaded
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"

import torch
from board import Board, play
from safetensors.torch import save_file

from saddlescope.ranks.checkpoints import checkpoint_spectra

LLAMA, SMALL = (4096, 11008, 32000), (256, 512, 1000)  # d, width of the MLP, vocabulary
HEADS, RANK, ALL_LAYERS = 32, 4, 32
GIB = 2**30


def make(folder: Path, layers: int, sizes: tuple[int, int, int], tuned: bool) -> None:
    """Writes one of the two checkpoints."""
    folder.mkdir()
    d, mlp, vocabulary = sizes
    shapes = {f"self_attn.{name}_proj": (d, d) for name in "qkvo"}
    shapes |= {"mlp.gate_proj": (mlp, d), "mlp.up_proj": (mlp, d), "mlp.down_proj": (d, mlp)}
    generator = torch.Generator().manual_seed(0)
    layer = {}
    for name, (rows, columns) in shapes.items():
        weight = 0.02 * torch.randn(rows, columns, generator=generator)
        update = torch.randn(rows, RANK, generator=generator) @ torch.randn(RANK, columns, generator=generator)
        layer[name] = (weight + 1e-3 * update * tuned).to(torch.bfloat16)
    shards = {
        f"model-{k:05}.safetensors": {f"model.layers.{k}.{name}.weight": weight for name, weight in layer.items()}
        for k in range(layers)
    }
    embedding = torch.randn(vocabulary, d, generator=generator).to(torch.bfloat16)
    shards["model-embedding.safetensors"] = {"model.embed_tokens.weight": embedding}
    weight_map = {}
    for file, tensors in shards.items():
        save_file(tensors, folder / file)
        weight_map |= dict.fromkeys(tensors, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": HEADS}))


def peak() -> int:
    """The largest resident memory of this program so far, in bytes; `getrusage` would include that of its parent."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def child(folder: str) -> None:
    """Measure in a separate process, and print its CPU time and its peaks as JSON."""
    imported, start = peak(), time.process_time()
    ds = checkpoint_spectra(f"{folder}/base", f"{folder}/tuned")
    seconds = time.process_time() - start
    rank = float(ds.stable_rank.median())
    print(json.dumps({"seconds": seconds, "imported": imported, "peak": peak(), "rank": rank}))


def main(board: Board) -> None:
    """Prints the table."""
    sizes = SMALL if board.quick else LLAMA
    layers, place = int((*board.words, "3")[0]), (*board.words[1:], None)[0]
    columns = ("layers", "GB on disk", "CPU s", "s a layer", "peak over imports, GiB", "stable rank")
    print(*(f"{column:>{len(column) + 2}}" for column in columns), sep="")
    reported = []
    for count in sorted({1, layers}):
        with tempfile.TemporaryDirectory(dir=place) as folder:
            for name in ("base", "tuned"):
                make(Path(folder, name), count, sizes, tuned=name == "tuned")
            size = sum(file.stat().st_size for file in Path(folder).rglob("*.safetensors"))
            command = [sys.executable, __file__, "--child", folder]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout)
        reported.append((count, found["seconds"]))
        over = (found["peak"] - found["imported"]) / GIB
        problem = f"{count} layers of d = {sizes[0]}, {size / 1e9:.2g} GB on disk"
        board.report(problem, "checkpoint_spectra", "CPU time", found["seconds"], "s")
        board.report(problem, "checkpoint_spectra", "memory over that of the imports", over, "GiB")
        row = (count, size / 1e9, found["seconds"], found["seconds"] / count, over, found["rank"])
        print(*(f"{value:{len(column) + 2}.3g}" for column, value in zip(columns, row, strict=True)), sep="")
    (few, short), (many, long) = reported[0], reported[-1]
    per_layer = (long - short) / (many - few) if many > few else long
    whole = short + (ALL_LAYERS - few) * per_layer
    board.report(f"d = {sizes[0]}", "checkpoint_spectra", "CPU time of a further layer", per_layer, "s")
    print(f"{per_layer:.1f} s for each further layer: {whole / 60:.1f} min for {ALL_LAYERS} layers on one thread")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    else:
        play(main)
