"""The comparison of verdicts under other arithmetic, and two entries with and without noise."""

import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from saddlescope.reproduction import Outcome, find_entry

SCRIPT = Path(__file__).parents[2] / "scripts" / "portable.py"
ENTRIES = "deep-relu/proposition-3-4", "softmax-attention/kkt-residuals"
SETTINGS = "native", "noise-on-avx2"


@pytest.fixture(scope="module")
def portable():
    return runpy.run_path(str(SCRIPT), run_name="portable")


@pytest.fixture(scope="module")
def verdict(quick_run):
    return find_entry(ENTRIES[0]).judge(quick_run(ENTRIES[0]).run)[0]


def test_two_entries_have_the_same_verdicts_in_other_arithmetic(portable, tmp_path, monkeypatch, capfd):
    given = ["--out", str(tmp_path), "--entries", *ENTRIES, "--settings", *SETTINGS]
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *given])
    assert portable["main"]() == 0, capfd.readouterr()
    assert len(list(tmp_path.glob("*/*/*/*/quick.nc"))) == len(ENTRIES) * len(SETTINGS)
    assert ENTRIES[0] in capfd.readouterr().out
    assert portable["main"]() == 0
    assert ENTRIES[0] not in capfd.readouterr().out  # every run is stored


def two(verdict, field, values):
    """Return the results of two settings that differ in one field of a verdict."""
    given = zip(SETTINGS, values, strict=True)
    return {setting: {"entry": (replace(verdict, **{field: value}),)} for setting, value in given}


@pytest.mark.parametrize(
    ("outcomes", "listed"),
    [
        ((Outcome.HOLDS, Outcome.HOLDS), []),
        ((Outcome.HOLDS, Outcome.UNDECIDED), [False]),
        ((Outcome.NOT_TESTED, Outcome.FAILS), [False]),
        ((Outcome.HOLDS, Outcome.FAILS), [True]),
        ((Outcome.NOT_SEEN, Outcome.SEEN), [True]),
    ],
)
def test_a_claim_inside_and_outside_is_a_contradiction(portable, verdict, outcomes, listed):
    found = list(portable["changes"](two(verdict, "outcome", outcomes)))
    assert [contradicted for _, contradicted in found] == listed
    assert all(verdict.claim in sentence and all(name in sentence for name in SETTINGS) for sentence, _ in found)


@pytest.mark.parametrize(
    ("values", "uncertainty", "listed"),
    [((0.5, 0.54), 0.0, []), ((0.5, 0.56), 0.0, [True]), ((0.5, 0.56), 0.1, []), ((0.0, 0.0), 0.0, [])],
)
def test_a_decided_value_moves_by_a_tenth_of_its_distance_to_the_bound_at_most(
    portable, verdict, values, uncertainty, listed
):
    some = replace(verdict, outcome=Outcome.HOLDS, low=-10.0, high=1.0, uncertainty=uncertainty)
    assert [contradicted for _, contradicted in portable["changes"](two(some, "value", values))] == listed


def test_noise_is_of_a_few_ulp_and_the_same_for_equal_draws():
    """In a process of its own, since it replaces the generators of NumPy, JAX and PyTorch."""
    code = f"""
import runpy, jax, numpy as np, torch
def draws():
    with jax.enable_x64(True):
        of_jax = [jax.random.normal(jax.random.key(0), (9,)), jax.random.uniform(jax.random.key(0), (9,), "float32")]
    rng, make = np.random.default_rng(0), torch.Generator().manual_seed(0)
    of_numpy = [rng.standard_normal(9), rng.uniform(1, 2, 9), rng.random(9, np.float32), rng.normal(size=(3, 3))]
    of_torch = [torch.randn(9, generator=make), torch.empty(9, dtype=torch.float64).uniform_(generator=make)]
    return [np.asarray(x) for x in (*of_jax, *of_numpy, *of_torch)]
exact = draws()
runpy.run_path({str(SCRIPT)!r}, run_name="portable")["perturb_draws"](4)
for x, y, z in zip(exact, draws(), draws()):
    assert y.dtype == x.dtype
    assert (y != x).any() and (y == z).all()
    assert (abs(y - x) <= 5 * np.finfo(x.dtype).eps * abs(x)).all()
whole = [rng.integers(9, size=9) for rng in (np.random.default_rng(0), np.random.Generator(np.random.PCG64(0)))]
assert (whole[0] == whole[1]).all()
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
