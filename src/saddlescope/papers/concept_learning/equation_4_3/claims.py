"""Claims of the entry `equation_4_3`."""

from functools import partial

from saddlescope.papers.concept_learning.equation_4_3 import statistics
from saddlescope.papers.concept_learning.shared.two_layer_runs import EXACT_LAW, stored_error
from saddlescope.reproduction.claim import Claim

_EXACT, _CLOSED, _LATE, _SCHUR = 1e-12, 1e-9, 0.02, 1e-3  # this project's bars

claims = (
    Claim(
        name="identity",
        says="Corrected: gradient flow of equation 4.1 is dW/dt = 2 (G - S - N): largest relative difference from "
        "autodiff",
        source="The gradient of the loss, exact; this project's bar",
        statistic=partial(statistics.largest_value, name="identity_error"),
        high=_EXACT,
    ),
    Claim(
        name="printed",
        says="Printed: it is dW/dt = G - S - N: the same difference",
        source="Equation 4.3 and D.2 (D.1, with the gradient of the same loss, is twice D.2)",
        statistic=statistics.printed_error,
        high=_EXACT,
    ),
    Claim(
        name="log-det",
        says="d/dt log det W = 4 tr(A (1 - W)) from every start of every scale: largest error over the run",
        source="Jacobi's formula, exact; this project's bar",
        statistic=statistics.log_det_error,
        high=EXACT_LAW,
    ),
    *(
        Claim(
            name=name.replace("_", "-"),
            says=f"The closed form for {says} is the flow: largest difference of an entry of W",
            source="theory.concepts; this project's bar",
            statistic=partial(stored_error, name=f"{name}_error"),
            high=_CLOSED,
        )
        for name, says in (
            ("rank_one", "a W of rank one, by a quadrature,"),
            ("diagonal", "a diagonal W, logistic,"),
            ("proportional", "equal strengths, logistic in the eigenvalues,"),
        )
    ),
    Claim(
        name="noise-omitted",
        says="Printed: the noise is never too large and may be left out: error that this makes in the time of the last "
        "stage to be wrong, at the smallest scale; median over starts",
        source=f"Section 4.2, Lemma D.8; {_LATE} is this project's bar for stage times",
        statistic=partial(statistics.stage_time_error, predicted="bare_time", scale=-1),
        high=_LATE,
        unit="t",
    ),
    Claim(
        name="noise-lasting",
        says="Corrected: the error without noise is the same at every small scale: its ratio at the two smallest",
        source="log(w_kk(0) / s_k) / (4 a_k), with the Schur complement s_k: the scale cancels",
        statistic=statistics.error_ratio,
        low=0.95,
        high=1.05,
    ),
    Claim(
        name="noise-size",
        says="Corrected: the noise is as large as the growth it works against: largest N_kk / G_kk over the run for "
        "the weakest concept, at the smallest scale; median over starts",
        source="Two entries of size w make one of size w^2 in N; half for 'as large as', before the run",
        statistic=statistics.noise_share,
        low=0.5,
    ),
    Claim(
        name="schur",
        says="With the noise, by Schur complements, the stage times are right: largest error, at the smallest scale; "
        "median over starts",
        source="theory.concepts.concept_stages; this project's bar at scale 1e-5",
        statistic=partial(statistics.stage_time_error, predicted="schur_time", scale=-1),
        high=_SCHUR,
        unit="t",
    ),
)
