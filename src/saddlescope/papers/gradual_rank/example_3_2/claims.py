"""The claims of Example 3.2, with their bounds and sources."""

from saddlescope.papers.gradual_rank.example_3_2.statistics import (
    ORDERS,
    convergence_ratio,
    correction_gain,
    median_error,
    missed_stages,
    product_dependence,
    rank_rises,
    remaining_loss,
    wrong_coordinates,
)
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

# The bounds. For two layers of one head this project had set itself before any run: every stage with T < 12 T_1 found
# in its window at 1e-128, median error under 0.2 %; and the finite-alpha correction to make the error at 1e-32 at least
# five times smaller. Both predictions are compared with the first bar, which shows which of them meets it. Where
# the run has no two layers of one head (the quick size), the deepest network with the fewest heads stands for it.
claims = (
    Claim(
        name="products",
        says="The output depends on w_K, w_Q, w_V, w_O through their products alone: its largest relative change when "
        "u -> c u, v -> v / c",
        source="Example 3.2; rounding",
        statistic=product_dependence,
        high=1e-10,
    ),
    Claim(
        name="rank",
        says="With one head a layer, at most one coordinate enters in each resolved stage: the most that do",
        source="Theorem 4.1: the sparsity increases by at most one",
        statistic=rank_rises,
        high=1.0,
    ),
    Claim(
        name="support",
        says="On each plateau that the smallest scale resolves, in every network, exactly the predicted coordinates "
        "are learned: wrong ones",
        source="Theorem 4.1; with tied heads, its correction",
        statistic=wrong_coordinates,
        high=0.0,
    ),
    *(
        claim
        for order, prediction in zip(ORDERS, ("T_k alone", "T_k + C_k / log(1/alpha)"), strict=True)
        for claim in (
            Claim(
                name=f"window-{order}",
                says="Two layers of one head, smallest scale: every stage with T < 12 T_1 is found in the window that "
                f"{prediction} predicts; missed",
                source="Theorem 4.1; this project's bar, set before the run",
                statistic=missed_stages(order),
                high=0.0,
            ),
            Claim(
                name=f"median-{order}",
                says=f"Two layers of one head, smallest scale: median relative error of {prediction}",
                source="Theorem 4.1; this project's bar, set before the run",
                statistic=median_error(order),
                high=0.002,
            ),
        )
    ),
    Claim(
        name="converges",
        says="The median error of T_k falls with alpha in every network: largest ratio of the errors at one scale and "
        "the one before",
        source="Theorem 4.1",
        statistic=convergence_ratio,
        high=1.0,
    ),
    Claim(
        name="correction",
        says="The finite-alpha correction makes the median error at 1e-32 smaller in every network: least factor",
        source="beyond the paper; this project's bar for one head, held here against every network",
        statistic=correction_gain,
        low=5.0,
    ),
    Claim(
        name="end",
        says="Algorithm 1 ends where nothing is left to learn: largest remaining share of the loss",
        source="Theorem 4.1; the teacher has loss 0",
        statistic=remaining_loss,
        high=1e-12,
    ),
)

metrics = (
    Metric(
        name="stages",
        says="stages that Algorithm 1 predicts, mean over networks",
        statistic=lambda run: float(run.predicted_time.notnull().sum("stage").mean()),
    ),
    Metric(
        name="resolved",
        says="plateaus that the smallest α resolves, mean over networks",
        statistic=lambda run: float(run.resolved.isel(scale=-1).sum("stage").mean()),
    ),
    Metric(
        name="final_loss",
        says="final loss at the smallest α, mean over networks",
        statistic=lambda run: float(run.loss.isel(scale=-1, time=-1).mean()),
        scale="log",
    ),
)
