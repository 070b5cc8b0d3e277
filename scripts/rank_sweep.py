"""The phase diagram of docs/training-runs.md, when the rank of a ViT's updates rises, from a stored sweep.

    --from results     reads results/sweeps/gradual-rank/figure-4/points; writes docs/vit-sweep.csv and .png

The sweep, at some points also with epochs=120, depth=2, depth=6 or --seeds 1,2:

    saddlescope sweep gradual-rank/figure-4 --data DIR --set seeds=0 \\
        --grid initial_scale=1,0.1 --grid learning_rate=2e-4,8e-4,3.2e-3 \\
        --grid warmup_epochs=0,10 --set depth=3 --set epochs=30 --set dataset=cifar10 \\
        --set images=2500 --set patch=4 --set embedding=64 --set heads=4 --set mlp=64 \\
        --set batch=64 --set test_every=5
"""

import argparse
import csv
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

from saddlescope.plot.theme import LIGHT
from saddlescope.store import read

DOCS = Path(__file__).resolve().parents[1] / "docs"
AXES = ("initial_scale", "warmup_epochs", "depth", "epochs")
PRODUCTS = {"KQ": "$W_K W_Q^{\\top}$", "VO": "$W_V W_O^{\\top}$"}


def row(run: xr.Dataset) -> dict[str, float]:
    """The settings of a run, its losses, and the stable rank of its updates after one epoch and at the end."""
    params = json.loads(run.attrs["params"])
    one = run.isel(seed=0)
    first = int(abs(one.step.values - run.attrs["steps_per_epoch"]).argmin())
    found = {name: params[name] for name in (*AXES, "learning_rate")} | {"seed": params["seeds"][0]}
    found |= {"first_loss": float(one.train_loss[0]), "last_loss": float(one.train_loss[-1])}
    found |= {"test_accuracy": float(one.test_accuracy[-1])}
    for product in PRODUCTS:
        rank = one.stable_rank.sel(product=product).transpose("step", "layer", "head").values
        rise = rank[-1] - rank[first]
        found |= {
            f"{product}_initial_product": float(one.initial_stable_rank.sel(product=product).mean()),
            f"{product}_after_one_epoch": rank[first].mean(),
            f"{product}_least": rank[first:].mean(axis=(1, 2)).min(),
            f"{product}_last": rank[-1].mean(),
            f"{product}_rising_heads": (rise > 0).mean(),
        }
    return found


def draw(rows: list[dict[str, float]], file: Path) -> None:
    """A map for each product: the rise after the first epoch, and the share of rising heads; seeds averaged."""
    kinds = sorted({tuple(one[name] for name in AXES) for one in rows}, reverse=True)
    rates = sorted({one["learning_rate"] for one in rows})
    drawing, panels = plt.subplots(1, 2, figsize=(10, 0.62 * len(kinds) + 1.4), sharey=True, layout="constrained")
    for panel, (product, name) in zip(panels, PRODUCTS.items(), strict=True):
        shades = np.full((len(kinds), len(rates)), np.nan)
        for y, kind in enumerate(kinds):
            for x, rate in enumerate(rates):
                here = [r for r in rows if r["learning_rate"] == rate and tuple(r[a] for a in AXES) == kind]
                if here:
                    shades[y, x] = np.mean([r[f"{product}_last"] - r[f"{product}_after_one_epoch"] for r in here])
                    share = np.mean([r[f"{product}_rising_heads"] for r in here])
                    last = np.mean([r[f"{product}_last"] for r in here])
                    text = f"{shades[y, x]:+.2f} to {last:.2f}\n{share:.0%} of heads"
                    ink = "white" if abs(shades[y, x]) > 1.2 else LIGHT.ink
                    panel.text(x, y, text, ha="center", va="center", fontsize=8, color=ink)
        panel.imshow(shades, cmap="PuOr", vmin=-2, vmax=2, aspect="auto")
        panel.set_title(f"rise of the stable rank of the update of {name}", fontsize=10)
        panel.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        panel.set_xlabel("peak learning rate (Adam)")
        panel.set_yticks(range(len(kinds)), ["scale {:g}, warm-up {:g}\ndepth {}, {} epochs".format(*k) for k in kinds])
        panel.tick_params(labelsize=8)
    drawing.savefig(file, dpi=110)


def main() -> None:
    """Write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="results", type=Path, required=True)
    points = parser.parse_args().results / "sweeps/gradual-rank/figure-4/points"
    rows = [row(read(file)) for file in sorted(points.glob("*.nc"))]
    rows.sort(key=lambda one: tuple(one[name] for name in (*AXES, "learning_rate", "seed")))
    with (DOCS / "vit-sweep.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({name: f"{value:.6g}" for name, value in one.items()} for one in rows)
    draw(rows, DOCS / "vit-sweep.png")


if __name__ == "__main__":
    main()
