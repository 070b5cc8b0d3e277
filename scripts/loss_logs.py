"""Train the three small networks whose logs are in docs/loss-logs, and draw them (a few minutes on one core).

deep_linear.csv    a linear network of three layers learns four modes, one after the other
grokking.jsonl     addition modulo 31: the training loss falls first, the test loss stays on a plateau and then drops
language.log       a transformer of two layers reads pieces of this project's pages twice: bigrams, then copying

python scripts/loss_logs.py [NAME ...]
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn import functional

from saddlescope.measure import find_plateaus
from saddlescope.store.loss_logs import read_loss

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "loss-logs"


def deep_linear() -> str:
    """Gradient descent from small weights to a diagonal map of strengths 4, 2, 1 and 1/2."""
    draw = np.random.default_rng(0)
    target = np.diag([4.0, 2.0, 1.0, 0.5])
    layers = [0.02 * draw.standard_normal(shape) for shape in ((8, 4), (8, 8), (4, 8))]
    lines = ["step,loss"]
    for step in range(20_001):
        a, b, c = layers
        error = c @ b @ a - target
        if step % 20 == 0:
            lines.append(f"{step},{0.5 * np.sum(error**2):.8g}")
        slopes = ((c @ b).T @ error, c.T @ error @ a.T, error @ (b @ a).T)
        layers = [w - 0.01 * slope for w, slope in zip(layers, slopes, strict=True)]
    return "\n".join(lines) + "\n"


def grokking(modulus: int = 31, width: int = 200) -> str:
    """AdamW with weight decay on 60 % of all sums, by quadratic neurons (Gromov 2023, arXiv 2301.02679)."""
    torch.manual_seed(0)
    pairs = torch.cartesian_prod(torch.arange(modulus), torch.arange(modulus))[torch.randperm(modulus**2)]
    x = functional.one_hot(pairs, modulus).flatten(1).float()
    y = functional.one_hot(pairs.sum(1) % modulus, modulus).float()
    shapes = (2 * modulus, width), (width, modulus)
    W, V = (torch.nn.Parameter(1.5 * torch.randn(shape) / shape[0] ** 0.5) for shape in shapes)
    optimizer = torch.optim.AdamW([W, V], lr=1e-3, weight_decay=2.0)
    split, lines = int(0.6 * len(x)), []
    for step in range(3001):
        errors = (((x @ W) ** 2 @ V - y) ** 2).sum(1)
        loss, test = errors[:split].mean(), errors[split:].mean()
        if step % 10 == 0:
            lines.append(json.dumps({"step": step, "train_loss": loss.item(), "test_loss": test.item()}))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return "\n".join(lines) + "\n"


class Attention(torch.nn.Module):
    """Causal attention of four heads and a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(seen.transpose(1, 2).reshape(n, length, width))


def language(length: int = 24, width: int = 64) -> str:
    """Next characters of a piece of text followed by the same piece."""
    torch.manual_seed(0)
    text = "".join(page.read_text() for page in sorted((ROOT / "docs").glob("*.md"))[:8])
    known = sorted(set(text))
    symbols = torch.tensor([known.index(c) for c in text])
    tokens = torch.nn.Embedding(len(known), width)
    places = torch.nn.Parameter(0.02 * torch.randn(2 * length, width))
    blocks = torch.nn.Sequential(Attention(width), Attention(width), torch.nn.LayerNorm(width))
    head = torch.nn.Linear(width, len(known))
    modules = torch.nn.ModuleList([tokens, blocks, head])
    optimizer = torch.optim.Adam([*modules.parameters(), places], lr=1e-3)
    lines = []
    for step in range(3001):
        starts = torch.randint(len(symbols) - length, (32,))
        piece = symbols[starts[:, None] + torch.arange(length)]
        both = torch.cat([piece, piece], 1)
        logits = head(blocks(tokens(both[:, :-1]) + places[:-1]))
        loss = functional.cross_entropy(logits.flatten(0, 1), both[:, 1:].flatten())
        if step % 5 == 0:
            lines.append(f"iter {step}: loss {loss.item():.4f}, lr 1e-3")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return "\n".join(lines) + "\n"


LOGS = {"deep_linear.csv": deep_linear, "grokking.jsonl": grokking, "language.log": language}
SHOWN = {"grokking.jsonl": "test_loss"}


def draw(file: Path) -> None:
    """Draw all logs with their plateaus and drops."""
    drawing, panels = plt.subplots(1, len(LOGS), figsize=(11, 3), layout="constrained")
    for panel, name in zip(panels, LOGS, strict=True):
        log = read_loss(FOLDER / name, SHOWN.get(name))
        find_plateaus(log.losses, steps=log.steps).plot(panel)
        panel.set_title(name)
    drawing.savefig(file, dpi=90)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[1:] or LOGS:
        (FOLDER / name).write_text(LOGS[name]())
        print(f"Wrote {FOLDER / name}.")
    draw(ROOT / "docs" / "loss-stages.png")
