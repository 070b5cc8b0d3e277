"""Section 4.2: W alone minimises the Frobenius norm, keys times queries the nuclear norm, on the same loss.

Gaussian data, outside Assumption 4 (within it one solution has both least norms), W alone from 0, K and Q from normal
entries of deviation scale/√d: neither aligned nor balanced, d columns each. Both flows are followed to t = 10^100000,
since directions converge in ln t, and compared with the certified optima of both problems.

    excess of a norm   |W| / μ over the least norm with margins of 1, less 1

In linear regression, y = X β* + noise with d > n, gradient flow on β from 0 ends at the least ℓ2 norm, in the row space
of X; flow on w₊ and w₋ of β = w₊² - w₋² is followed from several scales, and its ℓ1 norm compared with the least one.
"""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.shared.curves import flow_panel
from saddlescope.plot import Axis, Figure, Figures, Line, Panel
from saddlescope.reproduction import Claims, Entry, EntryParams, Estimate, RunContext, param

WEIGHTS, FACTORS = "W alone", "keys and queries"

_UNTIL = 1e4  # time of linear regression, by which its loss has vanished


class Params(EntryParams):
    """Sizes, draws and times."""

    samples: int = param(10, "number of samples n", ge=2)
    tokens: int = param(5, "number of tokens L per sample", ge=2)
    dim: int = param(50, "token dimension d above n, and number of columns of K and Q", ge=2)
    draws: int = param(24, "number of draws of the data, each with its own initial weights", ge=2)
    scale: float = param(0.1, "initial scale of K and Q, whose entries have deviation scale / √d", gt=0, scale="log")
    log10_times: tuple[float, ...] = param(
        (10.0, 20.0, 50.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5),
        "log10 of the recorded times t, with 100 among them",
        ge=5,
        least=2,
        order="increasing",
    )
    scales: tuple[float, ...] = param(
        (1.0, 0.3, 0.1, 0.03, 0.01),
        "initial scales of w₊ and w₋ in linear regression",
        ge=1e-3,
        le=10,
        least=2,
        order="decreasing",
        scale="log",
    )
    seed: int = param(40, "seed of the first draw; the next draws use the next seeds", ge=0)

    def check(self) -> None:
        if 100.0 not in self.log10_times:
            raise InputError(f"log10_times must have 100 among them; got {self.log10_times!r}.")
        if self.dim <= self.samples:
            raise InputError(f"dim must be above samples={self.samples!r}; got {self.dim!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Follow both flows and solve both problems of every draw, and one linear regression."""
    found = context.over({"draw": range(params.draws)}, partial(_compare_draw, params))
    times = ("time", list(params.log10_times))
    return found.assign_coords(flow=[WEIGHTS, FACTORS], log10_time=times, scale=list(params.scales))


def _compare_draw(params: Params, draw: int, step: RunContext) -> xr.Dataset:
    """Return the excesses of both flows of one draw, (flow, time), the ranks of both solutions, and a regression."""
    from saddlescope.models import gaussian_tokens
    from saddlescope.papers.softmax_attention.shared.flows import draw_head, in_balance, key_query_flow, matrix_flow
    from saddlescope.theory import frobenius_svm, nuclear_svm

    seed = params.seed + draw
    data = gaussian_tokens(params.samples, params.tokens, params.dim, seed=seed)
    log_times = np.array(params.log10_times) * np.log(10)
    head = draw_head((seed, 1), params.dim, params.dim, params.scale)
    alone = in_balance(partial(matrix_flow, data, log_times))
    pairs = in_balance(partial(key_query_flow, data, head, log_times))
    nuclear, frobenius = nuclear_svm(data).certificate, frobenius_svm(data).certificate
    spectra = np.array(
        [
            [np.linalg.svd(alone.weights(k), compute_uv=False) for k in range(len(log_times))],
            [pairs.spectrum(k) for k in range(len(log_times))],
        ]
    )
    margins = np.stack([alone.margin, pairs.margin])
    margins, norms = np.where(margins > 0, margins, np.nan), np.linalg.norm(spectra, axis=2)
    excesses = {  # over lower bounds of the least norms, so that none is understated
        "nuclear": (("flow", "time"), spectra.sum(axis=2) / margins / nuclear.dual - 1),
        "frobenius": (("flow", "time"), norms / margins / frobenius.dual - 1),
    }
    regression = _regress(params, seed)
    return regression.assign(excesses).assign(ranks=("flow", [frobenius.rank, nuclear.rank]))


def _regress(params: Params, seed: int) -> xr.Dataset:
    """Return the excess of the ℓ1 norm in linear regression: of flows on w₊ and w₋ by scale, and of that on β."""
    from scipy.integrate import solve_ivp
    from scipy.optimize import linprog

    n, d = params.samples, params.dim
    rng = np.random.default_rng((seed, 2))
    X = rng.standard_normal((n, d))
    y = X[:, :3].sum(axis=1) + rng.standard_normal(n)
    least = float(linprog(np.ones(2 * d), A_eq=np.concatenate([X, -X], axis=1), b_eq=y).fun)

    def velocity(_time: float, weights: np.ndarray) -> np.ndarray:
        plus, minus = np.split(weights, 2)
        push = 4 / n * X.T @ (y - X @ (plus**2 - minus**2))
        return np.concatenate([push * plus, -push * minus])

    norms, residuals = [], []
    for scale in params.scales:
        start = np.full(2 * d, scale)
        found = solve_ivp(velocity, (0, _UNTIL), start, "LSODA", t_eval=[_UNTIL], rtol=1e-9, atol=1e-12)
        plus, minus = np.split(found.y[:, -1], 2)
        norms.append(np.abs(plus**2 - minus**2).sum())
        residuals.append(np.linalg.norm(X @ (plus**2 - minus**2) - y) / np.linalg.norm(y))
    return xr.Dataset(
        {
            "squares_excess": ("scale", np.array(norms) / least - 1),
            "residual": ("scale", residuals),
            "beta_excess": np.abs(np.linalg.pinv(X) @ y).sum() / least - 1,
        }
    )


def regressions_fit(run: xr.Dataset) -> bool:
    """Every linear regression fits its data to 1e-6"""
    return bool(run.residual.max() < 1e-6)


claims = Claims(
    limits="One size, n = 10, L = 5, d = 50. Outside Assumption 4 nothing is proved about full keys and queries, and "
    "where their excess ends is open: at t = 10^100000 up to 2 % of the nuclear norm is left. From when on they are "
    "below W alone depends on size and start: one of 40 trial draws needed more than t = 1e50. Ranks depend on size; "
    "within Assumption 4 one solution has both least norms. Regressions have scales 1 to 0.01, at the last of which up "
    "to 9 % is left."
)


@claims.extension(
    "contrast",
    "On Gaussian data outside Assumption 4, the nuclear excess of keys times queries and the Frobenius excess of W "
    "alone fall from t = 1e100 on, and end below the other flow's",
    "after Section 4.2: 'different implicit regularization behavior under different parametrizations'",
    high=0.0,
)
def _exceptions(run: xr.Dataset) -> Estimate:
    """Number of draws in which a flow's own excess rises after t = 1e100, or ends above the other flow's."""
    late, right, ends = run.isel(time=run.log10_time.values >= 100), xr.ones_like(run.draw, bool), []
    for norm, own, other in (("nuclear", FACTORS, WEIGHTS), ("frobenius", WEIGHTS, FACTORS)):
        ours, theirs = late[norm].sel(flow=own), late[norm].sel(flow=other)
        right = right & (ours.diff("time") < 0).all("time") & (ours.isel(time=-1) < theirs.isel(time=-1))
        ends += [float(ours.isel(time=-1).max()), float(theirs.isel(time=-1).min())]
    remark = "of {}; nuclear {:.2g}, W alone {:.2g}; Frobenius {:.2g}, of keys times queries {:.2g}"
    return Estimate.number(~right, remark.format(right.size, *ends), over="draws of data")


@claims.reading(
    "low-rank",
    "On Gaussian data outside Assumption 4, the nuclear-norm solution has at most 75 % of the rank of the "
    "Frobenius-norm solution, on average",
    'Section 4.2, "encourages a low-rank structure"; the bound is this project\'s',
    high=0.75,
)
def _rank_ratio(run: xr.Dataset) -> Estimate:
    """Rank of the solution of least nuclear norm over that of least Frobenius norm, mean over draws."""
    return Estimate.mean((run.ranks.sel(flow=FACTORS) / run.ranks.sel(flow=WEIGHTS)).values)


@claims.reading(
    "linear-regression",
    "In linear regression on Gaussian data, flow on β = w₊² − w₋² ends nearer the least ℓ1 norm the smaller its scale, "
    "at the smallest nearer than flow on β from 0",
    "Section 4.2, which recalls Woodworth et al. (2020); no exception is allowed",
    high=0.0,
    requires=[regressions_fit],
)
def _regressions(run: xr.Dataset) -> Estimate:
    """Number of draws in which the ℓ1 excess rises from a scale to the next smaller one, or ends above that of β."""
    wrong = (run.squares_excess.diff("scale") >= 0).any("scale")
    wrong = wrong | (run.squares_excess.isel(scale=-1) >= run.beta_excess)
    ends = f"at the smallest scale {float(run.squares_excess.isel(scale=-1).max()):.2g} at most"
    ends += f", for β {float(run.beta_excess.min()):.2g} at least"
    return Estimate.number(wrong, f"of {wrong.size}; {ends}", over="draws of data")


@claims.extension(
    "nuclear-rate",
    "On Gaussian data, the nuclear-norm excess of keys times queries falls more slowly than 1/√(ln t) from t = 10^1000 "
    "to 10^100000, in the median over draws",
    "Not in the paper: the next term after ln t would give -1; bounds after a pilot on seeds 5000 to 5005 "
    "(-0.19 to -0.26)",
    low=-0.5,
    high=-0.05,
)
def _excess_exponent(run: xr.Dataset) -> Estimate:
    """Exponent of the excess as a power of ln t, from t = 1e1000 or later to the last time, median over draws."""
    since = int((run.log10_time.values >= 1e3).argmax())
    pairs, time = run.nuclear.sel(flow=FACTORS), run.log10_time.values
    slopes = np.log(pairs.isel(time=-1) / pairs.isel(time=since)) / np.log(time[-1] / time[since])
    return Estimate.median(slopes.values, f"{float(slopes.min()):.2g} to {float(slopes.max()):.2g}")


def figures(run: xr.Dataset) -> Figures:
    """Draw the excesses of both norms over time, and that of linear regression by initial scale."""

    def panel(title: str, values: xr.DataArray) -> Panel:
        time = run.log10_time.values
        rows = {flow: abs(values.sel(flow=flow)).transpose("draw", "time") for flow in (WEIGHTS, FACTORS)}
        middles = (
            Line(x=time, y=np.nanmedian(of, axis=0), group=flow, color=color, width=2.6)
            for color, (flow, of) in enumerate(rows.items())
        )
        x, y = Axis("log₁₀ t", scale="log"), Axis("excess", scale="log")
        return flow_panel(title, x, y, time, rows, width=0.8, opacity=0.5, more=middles)

    of_beta = run.beta_excess.broadcast_like(run.squares_excess)
    regressions = {"squares": run.squares_excess, "β": of_beta}
    x, y = Axis("initial scale", scale="log"), Axis("excess of the ℓ1 norm", scale="log")
    yield Figure(
        name="excess",
        title="Excess of both flows over the least nuclear and the least Frobenius norm",
        caption="Relative excess of the direction W / μ over the least norm with margins of 1, against time; "
        f"{run.sizes['draw']} draws of Gaussian data outside Assumption 4; wide lines: medians.",
        panels=(panel("nuclear norm", run.nuclear), panel("Frobenius norm", run.frobenius)),
    )
    yield Figure(
        name="regression",
        title="The ℓ1 norm that linear regression ends with, by parametrisation and initial scale",
        caption="Relative excess over the least ℓ1 norm of the data, for gradient flow on β (from 0) and on the "
        f"squares of β = w₊² − w₋², against the initial scale of w₊ and w₋; {run.sizes['draw']} draws.",
        panels=(flow_panel("linear regression", x, y, run.scale.values, regressions),),
    )


entry = Entry(
    "softmax-attention/section-4-2",
    "Section 4.2: each parametrisation minimises its own norm",
    source="Section 4.2",
    quick=dict(samples=4, dim=8, draws=4, log10_times=(10.0, 100.0, 1e3, 1e5), scales=(1.0, 0.1)),
    paper=dict(samples=20, tokens=10, dim=200),
)
