"""Lemmas 4.1 and A.1: their claims hold, except the one on equation 27 as printed, and spoilt runs refute them."""

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.models import SelectionLoss, attention_loss, gaussian_tokens
from saddlescope.papers.softmax_attention.shared.parameter_flow import KEYS_AND_QUERIES, SQUARES, parameter_flow
from saddlescope.reproduction import find_entry

EQUIVALENCE, CLOSED_FORM = find_entry("softmax-attention/lemma-4-1"), find_entry("softmax-attention/lemma-a-1")


def test_lemma_4_1_holds_at_the_quick_size(quick_run, outcomes):
    found = outcomes(EQUIVALENCE, quick_run(EQUIVALENCE.name).run)
    assert found.pop("sums-of-squares-matter") == "undecided"  # one data set
    assert set(found.values()) == {"reproduced"}


def test_lemma_a_1_holds_and_equation_27_as_printed_does_not(quick_run, outcomes):
    found = outcomes(CLOSED_FORM, quick_run(CLOSED_FORM.name).run)
    assert found.pop("equation-27-as-printed") == "refuted"
    assert set(found.values()) == {"reproduced"}


@pytest.mark.parametrize(
    ("entry", "variable", "value", "claim"),
    [
        (EQUIVALENCE, "difference", 2e-10, "equivalence"),
        (EQUIVALENCE, "drift_of_keys", 2e-10, "keys-and-queries-conserve"),
        (EQUIVALENCE, "drift_of_squares", 2e-10, "squares-conserve"),
        (EQUIVALENCE, "control", 0.0, "sums-of-squares-matter"),
        (CLOSED_FORM, "closed_form", 2e-10, "closed-form"),
        (CLOSED_FORM, "speed", 2e-6, "speed"),
        (CLOSED_FORM, "fall", 0.25, "equation-27-corrected"),
    ],
)
def test_a_spoilt_run_refutes_the_claim(quick_run, outcomes, entry, variable, value, claim):
    run = quick_run(entry.name).run.copy(deep=True)
    at = int((run.log10_time.values >= 3).argmax())
    run[variable].values[1, at] = value
    run = run.isel(case=[0, 1, 0, 1])
    assert outcomes(entry, run)[claim] == "refuted"


def test_equation_27_as_printed_would_hold_for_one_sample(quick_run, outcomes):
    run = quick_run(CLOSED_FORM.name).run.copy(deep=True)
    run["samples"] = run.samples * 0 + 1
    assert outcomes(CLOSED_FORM, run)["equation-27-as-printed"] == "reproduced"


@pytest.mark.parametrize("parametrisation", [KEYS_AND_QUERIES, SQUARES])
def test_the_parameter_flow_is_that_of_the_softmax_in_plain_time(parametrisation):
    """Small steps of Euler in raw time with the softmax's own gradient, extrapolated: no code is shared."""
    import jax

    data = gaussian_tokens(2, 3, 4, seed=3, gap=1.0)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    rng = np.random.default_rng(0)
    start = rng.normal(size=4), rng.normal(size=4)
    gradient = jax.jit(jax.grad(lambda parts: attention_loss(data)(parametrisation.beta(*parts)), allow_int=False))

    def euler(steps, until=0.5):
        parts = start
        for _ in range(steps):
            parts = tuple(part - until / steps * g for part, g in zip(parts, gradient(parts), strict=True))
        return np.array(parametrisation.beta(*parts))

    flow = parameter_flow(data, loss, parametrisation, start, np.log([0.5]))
    coarse, fine, finest = (euler(steps) for steps in (64, 128, 256))
    twice = 2 * fine - coarse
    extrapolated = (4 * (2 * finest - fine) - twice) / 3
    np.testing.assert_allclose(flow.beta[0], extrapolated, rtol=1e-5, atol=1e-6)


def test_values_out_of_range_are_refused_at_once():
    for settings, sentence in (
        ({"dims": "8"}, "samples, tokens and dims must be as many"),
        ({"log10_times": "1,2"}, "log10_times must rise by 0.1 or more"),
        ({"scale": "0"}, "scale must be positive"),
    ):
        for entry in (EQUIVALENCE, CLOSED_FORM):
            with pytest.raises(InputError, match=sentence):
                entry.configure("default", settings)
