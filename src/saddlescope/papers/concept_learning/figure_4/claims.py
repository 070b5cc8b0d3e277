"""Claims and metrics of the entry `figure_4`."""

from functools import partial

from saddlescope.papers.concept_learning.figure_4 import statistics
from saddlescope.papers.concept_learning.figure_4.simulations import LATER
from saddlescope.papers.concept_learning.figure_4.statistics import TURN
from saddlescope.papers.concept_learning.shared.two_layer_runs import METRICS
from saddlescope.reproduction.claim import Claim

_WHERE = "Section 4.2.1"
_BAR = "theory.concepts.concept_stages; this project's bar"


def _prediction_claims(
    prefix: str, predicted: str, name: str, errors: statistics.Errors, scale: int, bar: float, share: float, unit: str
) -> tuple[Claim, Claim]:
    """Return two claims: all errors of a prediction are within a bar, and most are."""
    kind = "relative errors" if unit == "" else "errors of w_kk = 1/2"
    return (
        Claim(
            name=f"{prefix}-{name}",
            says=f"Schur complements tell {predicted} from every start of the {name} scale: largest of the {kind}",
            source=_BAR,
            statistic=partial(statistics.largest_error, errors=errors, scale=scale),
            high=bar,
            unit=unit,
        ),
        Claim(
            name=f"{prefix}-{name}-most",
            says=f"And from most starts of the {name} scale: share of {kind} of at most {bar:g}",
            source=f"{_BAR}; the share from a pilot on other seeds, 1 for times, .94 and 1 for peaks",
            statistic=partial(statistics.share_within, errors=errors, scale=scale, bar=bar),
            low=share,
        ),
    )


claims = (
    Claim(
        name="irrelevant",
        says="Irrelevant entries do not contribute to the output at the test point: its change with other ones",
        source=f"{_WHERE}, exact",
        statistic=partial(statistics.value, name="irrelevant_at_once"),
        high=0.0,
    ),
    Claim(
        name="irrelevant-later",
        says="Not in the paper: they act on it later, by the noise in minor entries: its largest change along the "
        f"flow, with other irrelevant entries at a start of scale {LATER:g}",
        source="N_ip has w_iq w_qp for q and i beyond the concepts; far above rounding",
        statistic=partial(statistics.value, name="irrelevant_later"),
        low=1e-6,
    ),
    Claim(
        name="initial-growth",
        says="Every entry grows as e^(2 (a_i + a_j) t) until the largest is .001: largest error, in parts of "
        "(w_ii w_jj)^(1/2)",
        source=f"{_WHERE}, in the true time; at a largest entry of .001, errors of a few times that",
        statistic=statistics.growth_error,
        high=0.005,
    ),
    Claim(
        name="faster",
        says="Each entry grows faster than those below it or to its right, a descending: neighbours that do not",
        source=_WHERE,
        statistic=statistics.slower_entries,
        high=0.0,
    ),
    Claim(
        name="suppression",
        says="A minor entry turns when w_kk of its stronger concept is 2 (a_i + a_k) / (3 a_k + a_i): largest error",
        source=f"{_WHERE}: after w_kk is 'significant'; the value from equation 4.3 without noise, in the limit",
        statistic=statistics.suppressor_error,
        high=TURN,
    ),
    Claim(
        name="groups",
        says="Groups are suppressed one after the other, in the order in which their concepts are learned: minor "
        "entries out of order, or never suppressed",
        source=_WHERE,
        statistic=statistics.out_of_order,
        high=0.0,
    ),
    *(
        claim
        for name, scale, bar, share in (("larger", 0, 0.02, 0.95), ("smaller", 1, 1e-3, 0.99))
        for claim in _prediction_claims(
            "stage-times", "when concepts are learned", name, statistics.stage_errors, scale, bar, share, "t"
        )
    ),
    *(
        claim
        for name, scale, share in (("larger", 0, 0.9), ("smaller", 1, 0.99))
        for claim in _prediction_claims(
            "peaks", "how high minor entries come", name, statistics.peak_errors, scale, 0.01, share, ""
        )
    ),
)

metrics = METRICS
