"""The tracker and the commands on checkpoints run in an environment that has only what the extra `torch` brings."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path

import torch
from safetensors.torch import save_file

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]

WITHOUT = '''
import sys

class Without:
    """Finder of modules that does not find some packages, as if they were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent}:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
'''


def distributions(requirements):
    return {re.split(r"[<>=\[ ]", one)[0].lower().replace("_", "-") for one in requirements}


def absent():
    """Return the import names of what other extras bring."""
    left_out = distributions(chain(*EXTRAS.values())) - distributions(PROJECT["dependencies"] + EXTRAS["torch"])
    brought = metadata.packages_distributions()
    names = {name for name, owners in brought.items() if (left_out - {"saddlescope"}) & {one.lower() for one in owners}}
    assert {"jax", "diffrax", "equinox", "sklearn", "transformers"} <= names
    return names | {"jaxlib"}


def run(code, *arguments):
    program = WITHOUT.format(absent=absent()) + code
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)


def test_the_tracker_runs_without_other_extras():
    done = run(
        "import torch\n"
        "from saddlescope.ranks import Angles, Every, RankTracker\n"
        "model = torch.nn.MultiheadAttention(6, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=1.0)\n"
        "tracker = RankTracker(model, schedule=Every(1), matrices='*out_proj*', recorders=[Angles(2)])\n"
        "tracker.watch(optimizer)\n"
        "x = torch.ones(3, 1, 6)\n"
        "model(x, x, x)[0].square().sum().backward()\n"
        "optimizer.step()\n"
        "print(dict(tracker.to_xarray().sizes)['step'], tracker.stable_rank('VO').shape)\n"
        "assert not {'jax', 'equinox', 'diffrax'} & set(sys.modules)\n"
    )
    assert done.stdout == "1 (1, 1, 2)\n", done.stderr


def test_spectra_and_adapters_of_checkpoints_run_without_other_extras(tmp_path):
    torch.manual_seed(0)
    files = [tmp_path / f"{name}.safetensors" for name in ("base", "tuned")]
    for file in files:
        names = [f"model.layers.0.self_attn.{kind}_proj.weight" for kind in "qkvo"]
        save_file({one: torch.randn(8, 8) for one in names}, file)
    spectra = ["spectra", *files, "--heads", "2", "--out", tmp_path / "s.nc", "--site", tmp_path / "site"]
    extract = ["extract-lora", *files, "--rank", "2", "--out", tmp_path / "lora"]
    main = "from saddlescope.cli import main\ncut = sys.argv.index('extract-lora')\n"
    done = run(main + "print(main(sys.argv[1:cut]), main(sys.argv[cut:]))", *spectra, *extract)
    assert done.stdout.splitlines()[-1] == "0 2", done.stderr
    assert (tmp_path / "s.nc").stat().st_size
    assert (tmp_path / "site" / "index.html").is_file()
    assert "The logits were not compared" in done.stderr  # these files have no config.json
    assert list((tmp_path / "lora").glob("*.safetensors"))


def test_what_needs_jax_says_what_to_install():
    done = run("import saddlescope as ss\ntry:\n    ss.gradient_flow\nexcept ImportError as error:\n    print(error)")
    sentence = "saddlescope.gradient_flow needs JAX: pip install 'saddlescope[jax]'; without it predictions"
    assert done.stdout.startswith(sentence), done.stderr
