"""Examples of the README: its Python runs, its commands exist, its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import torch

import saddlescope
from saddlescope.reproduction import entry_names, find_entry
from saddlescope.train import ViT, ViTConfig

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.S)


def test_ten_lines_find_the_predicted_staircase():
    names_made: dict = {}
    exec(BLOCKS[0], names_made)
    comparison = saddlescope.compare(names_made["predicted"], names_made["found"])
    assert comparison.exact_order_prefix >= 5
    assert not comparison.extra


def test_the_origin_of_a_deep_relu_network():
    made = {"jax": jax, "np": np, "ss": saddlescope}
    exec(BLOCKS[2], made)
    np.testing.assert_allclose(made["found"].speeds.max(), 0.5, atol=1e-12)


def test_concepts_of_figure_8(capsys):
    made = {"np": np, "ss": saddlescope}
    exec(BLOCKS[3], made)
    times = made["concept_stages"](made["strengths"], made["starts"][0]).times
    assert times[0] > times[1] > times[2]
    counts = np.bincount(saddlescope.find_descents(made["flows"].turning_losses).counts)
    assert str(counts) in capsys.readouterr().out
    assert counts.sum() == 1000
    assert 3 <= counts[3] <= 25  # one start in a hundred has three


def test_which_norm_attention_minimises():
    made = {"np": np, "ss": saddlescope}
    exec(BLOCKS[4], made)
    verdicts = made["answer"].verdicts
    assert verdicts["keys and queries"].norm == "nuclear"
    assert verdicts["W alone"].norm == "Frobenius"


def test_the_tracker_in_three_lines():
    sizes = {"image_size": 8, "channels": 1, "patch": 4, "embedding": 16, "depth": 2, "heads": 2, "head_width": 4}
    model = ViT(ViTConfig(**sizes, mlp_width=16))

    def train(model, optimizer):
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 1, 8, 8)).square().sum().backward()
            optimizer.step()

    made = {"ss": saddlescope, "model": model, "optimizer": torch.optim.Adam(model.parameters()), "train": train}
    exec(BLOCKS[1], made)
    assert made["tracker"].stable_rank("KQ").shape == (4, 2, 2)


def test_commands_exist():
    consoles = "".join(re.findall(r"```console\n(.*?)```", README, re.S))
    entry = "(?:gradual-rank|deep-relu|concept-learning|softmax-attention)/\\S+"
    commands = re.findall(rf"^saddlescope (\S+)(?: ({entry}))?", consoles, re.M)
    assert len(commands) >= 4
    known = subprocess.run(
        [sys.executable, "-m", "saddlescope.cli", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command, entry in commands:
        assert command in known
        assert not entry or find_entry(entry)


def test_every_entry_is_in_the_table():
    assert all(f"| {name} |" in README for name in entry_names())


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists(), target
