"""Study of your own data against the solutions, the flows, and data with a known answer."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from saddlescope.flow import matrix_margin_flow
from saddlescope.flow.status import Status
from saddlescope.models.tokens.data import TokenData
from saddlescope.models.tokens.generators import aligned_tokens, conditioned_tokens, gaussian_tokens
from saddlescope.models.tokens.losses import SelectionLoss
from saddlescope.studies import implicit_bias
from saddlescope.studies.implicit_bias import FLOWS


@pytest.fixture(scope="module")
def study():
    return implicit_bias(
        conditioned_tokens(3, 4, 8, seed=2), log_until=1e5, record=np.geomspace(1.0, 1e5, 8), tolerance=1e-5
    )


def test_each_flow_minimises_its_own_norm(study):
    assert [study.verdicts[name].norm for name in FLOWS] == ["nuclear", "Frobenius", "nuclear"]
    last = study.dataset.isel(log_time=-1)
    assert np.all(last.distance.sel(norm="nuclear", flow=["keys and queries", "diagonal"]) < 0.005)
    assert last.distance.sel(norm="Frobenius", flow="W alone") < 1e-4
    assert np.all(last.distance.sel(norm="Frobenius", flow=["keys and queries", "diagonal"]) > 0.01)


def test_the_dataset_agrees_with_the_flow_and_the_solutions(study):
    data, ds = study.data, study.dataset.sel(flow="W alone")
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    times = study.dataset.log_time.values
    flow = matrix_margin_flow(loss, data.differences, data.z, log_until=times[-1], record=times, tolerance=1e-5)
    W = flow.weights(3)
    mu = data.margins(W).min()
    assert float(ds.margin[3]) == pytest.approx(mu, rel=1e-12)
    assert float(ds.log_loss_excess[3]) == pytest.approx(loss.log_excess(data.margins(W)), rel=1e-12)
    nuclear, frobenius = np.linalg.norm(W, "nuc") / mu, np.linalg.norm(W) / mu
    assert ds.singular_values[3].sum() == pytest.approx(nuclear, rel=1e-9)
    assert ds.optimum.values == pytest.approx([study.nuclear.certificate.primal, study.frobenius.certificate.primal])
    assert ds.excess[3].values == pytest.approx(np.array([nuclear, frobenius]) / ds.optimum.values - 1, abs=1e-9)
    WN, WF = study.nuclear.weights, study.frobenius.weights
    assert ds.contrast.values == pytest.approx(
        [np.linalg.norm(WF, "nuc") / ds.optimum.values[0] - 1, np.linalg.norm(WN) / ds.optimum.values[1] - 1]
    )
    assert ds.share[3].values == pytest.approx(ds.excess[3].values / ds.contrast.values)
    assert data.margins(ds.direction.values).min() == pytest.approx(1, abs=1e-9)
    assert np.linalg.norm(ds.direction.values - WF) / np.linalg.norm(WF) == pytest.approx(float(ds.distance[-1, 1]))


def test_diagonal_weights_are_compared_with_diagonal_solutions(study):
    data, ds = study.data, study.dataset.sel(flow="diagonal")
    B = data.features.reshape(-1, data.dim)
    least = minimize(
        lambda beta: beta @ beta,
        study.l1.beta,
        jac=lambda beta: 2 * beta,
        constraints={"type": "ineq", "fun": lambda beta: B @ beta - 1, "jac": lambda beta: B},
        options={"ftol": 1e-14, "maxiter": 500},
    ).x
    assert ds.optimum.values == pytest.approx([np.abs(study.l1.beta).sum(), np.linalg.norm(least)], rel=1e-6)
    direction = ds.direction.values
    assert np.all(direction == np.diag(np.diag(direction)))


def test_aligned_data_cannot_distinguish_the_norms():
    study = implicit_bias(
        aligned_tokens(2, 3, 4, seed=0), log_until=300.0, record=np.geomspace(1.0, 300.0, 3), tolerance=1e-5
    )
    for name in FLOWS[:2]:
        assert study.verdicts[name].norm == "undecided"
        assert "The two solutions coincide" in study.verdicts[name].says
        assert np.isnan(study.verdicts[name].nuclear_share)
    assert float(study.dataset.excess.sel(flow="W alone", norm="nuclear")[-1]) < 1e-2  # both problems are solved


def test_short_runs_are_undecided():
    study = implicit_bias(
        gaussian_tokens(4, 5, 12, seed=3), log_until=3.0, record=np.geomspace(1.0, 3.0, 3), tolerance=1e-4
    )
    assert study.verdicts["keys and queries"].norm == "undecided"
    assert "not resolved" in study.verdicts["keys and queries"].says


def test_data_that_diagonal_weights_do_not_separate_leave_out_the_diagonal_flow():
    study = implicit_bias(gaussian_tokens(3, 4, 3, seed=2), log_until=5.0, record=[1.0], tolerance=1e-4)
    assert study.l1 is None
    assert list(study.verdicts) == list(FLOWS[:2])
    assert study.dataset.sizes["flow"] == 2
    assert "diagonal" not in str(study).split("flow", 1)[1]


def test_data_with_zero_features():
    tokens = TokenData(np.array([[[0.0, 1.0], [0.0, 0.0]]]), np.array([[1.0, 0.0]]), np.ones(1), np.array([0.0, 1.0]))
    study = implicit_bias(tokens, log_until=3.0, record=[1.0], tolerance=1e-4)
    assert list(study.verdicts) == list(FLOWS[:2])


def test_a_flow_without_a_direction_says_so():
    study = implicit_bias(
        gaussian_tokens(2, 3, 4, seed=1, gap=1e-3), log_until=1.0001, record=[1.0], log_scale=np.log(1e-3)
    )
    verdict = study.verdicts["keys and queries"]
    assert verdict.norm == "undecided"
    assert "There is no direction" in verdict.says
    assert "smallest margin is -" in verdict.says


def broken(flow, log_times, status):
    """Return a run that ended before its last time, or out of balance."""
    tables = ("margins", "log_excess", "log_rates", "rate_signs", "margin_speeds", "energy_defects", "phi")
    cut = {name: getattr(flow, name)[: len(log_times)] for name in tables}
    return replace(flow, **cut, log_times=np.asarray(log_times), status=status)


@pytest.mark.parametrize("early", [True, False])
def test_a_flow_that_ended_early_gives_no_verdict_and_nan(monkeypatch, early):
    def follow(*arguments, **policies):
        flow = matrix_margin_flow(*arguments, **policies)
        times = flow.log_times
        return broken(
            flow, [*times[:-2], times[-2] * 0.9] if early else times, Status(False, "stuck", "It broke.", "Mend it.")
        )

    monkeypatch.setattr(sys.modules["saddlescope.studies.implicit_bias"], "matrix_margin_flow", follow)
    study = implicit_bias(
        conditioned_tokens(3, 4, 8, seed=2), log_until=1e5, record=np.geomspace(1.0, 1e5, 5), tolerance=1e-5
    )
    verdict, found = study.verdicts["W alone"], study.dataset.sel(flow="W alone")
    assert verdict.norm == "undecided"
    assert "It broke." in verdict.says
    assert np.isnan(found.margin.values).tolist() == [False] * 3 + [early] * 2
    assert np.isnan(found.share.values[3:]).all() == early
    assert study.verdicts["keys and queries"].norm == "nuclear"


def test_a_lost_sample_is_named():
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((5, 4, 10)), rng.standard_normal((5, 10))
    data = TokenData(X, z, np.sign(rng.standard_normal(5)), rng.standard_normal(10))
    study = implicit_bias(data, log_until=100.0, record=np.geomspace(1.0, 100.0, 3), tolerance=1e-5)
    loss = SelectionLoss(data.optimal_scores, data.gaps)
    gap = data.gaps[1].min() / data.samples * np.exp(-data.optimal_scores[1])  # at least the loss of sample 1
    assert float(study.dataset.log_loss_excess.sel(flow="diagonal")[-1]) > np.log(gap) > np.log(loss.least) - 10
    assert "Sample 1 attends to a wrong token at the last time." in study.verdicts["diagonal"].says


def test_the_start_is_one_in_units_of_margins():
    data = gaussian_tokens(3, 4, 6, seed=5)

    def first_margin(size, scale):  # so small that nothing has moved yet
        shrunk = TokenData(size * data.X, size * data.z, data.y, data.v / size)
        study = implicit_bias(shrunk, log_until=1.01, record=[1.0], log_scale=np.log(scale), tolerance=1e-5)
        return float(study.dataset.margin.sel(flow="keys and queries")[0])

    margin = first_margin(1e-5, 0.1)
    assert margin == pytest.approx(first_margin(1e-6, 0.1), rel=1e-6)
    assert margin == pytest.approx(10 * first_margin(1e-5, 0.01), rel=1e-6)
    K, Q = np.random.default_rng(0).standard_normal((2, 6, 6))
    margins = data.margins((K, Q))
    assert margin == pytest.approx(0.1 * margins.min() / np.sqrt(np.mean(margins**2)), rel=1e-6)


def test_the_repr_and_the_summary(study):
    found = str(study)
    assert "3 samples of 4 tokens in dimension 8" in found
    assert "keys and queries  nuclear" in found
    assert "l1, diagonal" in found
    assert max(len(line) for line in found.splitlines()) < 200
    summary = study.summary()
    assert summary["flows"]["W alone"]["norm"] == "Frobenius"
    assert summary["problems"]["l1"]["value"] == pytest.approx(np.abs(study.l1.beta).sum())
    assert summary["assumptions"]["paired"]["number"] is None  # infinite: an even number of tokens does not pair


def test_files_equal_arrays_and_seeds_differ(study, tmp_path):
    data, short = study.data, {"log_until": 5.0, "record": [1.0], "tolerance": 1e-4}
    np.savez(tmp_path / "data.npz", X=data.X, z=data.z, y=data.y, v=data.v)
    of_file = implicit_bias(tmp_path / "data.npz", **short).dataset
    assert of_file.identical(implicit_bias(data, **short).dataset)
    other = implicit_bias(data, **short, seed=1).dataset
    assert not np.array_equal(other.direction.sel(flow=FLOWS[0]), of_file.direction.sel(flow=FLOWS[0]))
