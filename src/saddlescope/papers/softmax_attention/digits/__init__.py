"""Which norm does each flow minimise on real images, where Assumptions 2 to 4 do not hold?.

Tokens are the four patches of a handwritten digit, queries the image's mean patch, the head is fitted by ridge
regression (`digit_tokens`): the scores of patches are unequal, against Assumption 2, and Assumption 4 is far away. For
each pair of digits the study of `saddlescope.studies` answers which norm the flows minimise, from their excesses over
the least nuclear and the least Frobenius norm at ln t = 1e6. A flow is

    lost        at a minimum that attends to a wrong patch of some image: a margin is negative at the last time, and the
                loss stays above its infimum. Nothing excludes it where Assumption 3 does not hold
    unfollowed  not followed to the last time: the solver stops with an error
    undecided   with a direction that is not near either solution, or has nearly both norms
"""

import itertools
import math
from functools import partial

import numpy as np
import xarray as xr

from saddlescope._shared.progress import Report
from saddlescope.papers.softmax_attention import CITATION
from saddlescope.papers.softmax_attention.digits.claims import FLOWS, claims
from saddlescope.papers.softmax_attention.digits.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param

_PICTURED = 4  # images of the first pair


class Params(EntryParams):
    """All pairs of the first digits."""

    digits: int = param(10, "of 0, 1, ..., all pairs", ge=2.0, le=10.0)
    images: int = param(10, "of each digit", ge=1)
    skip: int = param(10, "images of each digit that are left out, for the pilot had them", ge=0)
    head: float = param(3.0, "factor of the fitted head: the size of the scores' gaps", gt=0)
    scale: float = param(
        0.1, "of the starts, as margins, of K and Q and of diagonal weights; W alone starts from 0", gt=0
    )
    times: int = param(25, "recorded times from ln t = 1 to 1e6", ge=2)
    seed: int = param(0, "of the starts", ge=0)


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Study every pair."""
    pairs = list(itertools.combinations(range(params.digits), 2))
    parts: list[xr.Dataset] = []
    for k, pair in enumerate(pairs):
        report = context.part(k / len(pairs), (k + 1) / len(pairs))
        parts.append(context.cached("{}-{}".format(*pair), partial(_study_pair, pair, params, report)))
    context.report(1.0, "done")
    return xr.concat(parts, "pair").merge(_select_example(params))


def _study_pair(pair: tuple[int, int], params: Params, report: Report) -> xr.Dataset:
    """Study one pair of digits."""
    from saddlescope.models.tokens.separability import separability
    from saddlescope.papers.softmax_attention.digits.digit_tokens import digit_tokens
    from saddlescope.studies import implicit_bias

    data, _ = digit_tokens(*pair, images=params.images, skip=params.skip, head=params.head)
    result = xr.Dataset(
        {
            "outcome": ("flow", np.full(len(FLOWS), "none", "U10")),
            "share": (("flow", "norm", "log_time"), np.full((len(FLOWS), 2, params.times), np.nan)),
            "margin": (("flow", "log_time"), np.full((len(FLOWS), params.times), np.nan)),
            "rank": ("norm", np.zeros(2)),
            "separable": separability(data).separable,
            "equal": bool(np.ptp(data.gaps, axis=1).max() <= 1e-9 * data.gaps.max()),
        },
        coords={
            "flow": list(FLOWS),
            "norm": ["nuclear", "Frobenius"],
            "log_time": np.geomspace(1.0, 1e6, params.times),
            "pair": "{}, {}".format(*pair),
        },
    )
    if not bool(result.separable):
        return result

    def named(fraction: float, note: str) -> None:
        report(fraction, f"digits {pair[0]} and {pair[1]}, {note}")

    record, log_scale = np.geomspace(1.0, 1e6, params.times), math.log(params.scale)
    study = implicit_bias(data, record=record, log_scale=log_scale, seed=params.seed, report=named)
    result["rank"].values[:] = study.nuclear.certificate.rank, study.frobenius.certificate.rank
    for k, name in enumerate(FLOWS):
        if name not in study.verdicts:
            continue
        of = study.dataset.sel(flow=name)
        result["share"].values[k], result["margin"].values[k] = of.share.values.T, of.margin.values
        last = float(of.margin[-1])
        result["outcome"].values[k] = (
            "unfollowed" if np.isnan(last) else "lost" if last <= 0 else study.verdicts[name].norm
        )
    return result


def _select_example(params: Params) -> xr.Dataset:
    """Return some images of the first pair, and the patch with the highest score of each."""
    from saddlescope.papers.softmax_attention.digits.digit_tokens import digit_tokens

    data, images = digit_tokens(0, 1, images=params.images, skip=params.skip, head=params.head)
    at = np.linspace(0, len(images) - 1, _PICTURED).round().astype(int)
    return xr.Dataset({"image": (("pictured", "row", "column"), images[at]), "optimal": ("pictured", data.optimal[at])})


entry = Entry(
    "softmax-attention/digits",
    "Which norm does each flow minimise on real images, where Assumptions 2 to 4 do not hold?",
    citation=CITATION,
    source="Section 4.2",
    params=Params,
    quick=dict(digits=2, images=4, skip=0, times=4),
    paper=dict(images=25),
    run=run,
    claims=claims,
    figures=figures,
)
