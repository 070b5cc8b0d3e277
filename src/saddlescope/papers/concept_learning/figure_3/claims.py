"""Claims and metrics of the entry `figure_3`."""

from functools import partial

from saddlescope.papers.concept_learning.figure_3 import statistics
from saddlescope.papers.concept_learning.figure_3.simulations import HIGH, LOW, SMALL, WHOLE, WIDE, WIDE_SGD
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

_FIGURE = "Figure 3, section 3.3"

claims = (
    Claim(
        name="low-dimension",
        says="In low dimension deep networks memorize for a while: part of the networks whose out-of-distribution loss "
        "falls, rises, and falls again",
        source=f"{_FIGURE}; the bound is this project's bar, from trial runs of another implementation",
        statistic=partial(statistics.transient_share, kind=LOW),
        low=0.4,
    ),
    Claim(
        name="no-noise",
        says="It is no noise of SGD: the same part where every step sees all samples",
        source="section 4.2, which explains it by gradient flow; the bound is that of SGD",
        statistic=partial(statistics.transient_share, kind=WHOLE),
        low=0.4,
    ),
    Claim(
        name="high-dimension",
        says="In high dimension the loss slows down but never rises: part of the networks in which it does",
        source=f"{_FIGURE}: does not actually exhibit non-monotonic behavior",
        statistic=partial(statistics.transient_share, kind=HIGH, none=True),
        high=0.0,
    ),
    Claim(
        name="memorizing",
        says="Where the loss is highest again, the output has turned to the strongest training cluster: part of the "
        "transient networks that are nearer to it than to the test point",
        source="section 3.3: turns toward the training set cluster with the strongest signal; the bound is this "
        "project's bar",
        statistic=statistics.memorizing,
        low=0.8,
    ),
    Claim(
        name="generalising",
        says="With enough training they generalise: part of the transient networks that end below 1 % of the loss at "
        "the start",
        source="section 3.3: generalizes OOD; the bound is this project's bar",
        statistic=statistics.generalising,
        low=0.8,
    ),
    Claim(
        name="deeper",
        says="Transient memorization comes with depth: transient part of the deepest networks less that of two layers",
        source="appendix F: models with more layers are easier to have it",
        statistic=statistics.depth_difference,
        low=0.0,
    ),
    Claim(
        name="one-layer",
        says="One layer cannot, as the paper has it without a condition: part of the one-layer networks in low "
        "dimension, from PyTorch's start, whose loss falls, rises, and falls again",
        source="section 4.1: monotonic and rather regular; as printed",
        statistic=partial(statistics.transient_share, kind=LOW, depth=1, none=True),
        high=0.0,
    ),
    Claim(
        name="one-layer-small",
        says="One layer cannot from a small start: the same from a hundredth of PyTorch's",
        source="section 4.1, corrected: the noise term of equation 4.2 must be small",
        statistic=partial(statistics.transient_share, kind=SMALL, depth=1, none=True),
        high=0.0,
    ),
    Claim(
        name="width",
        says="It is the width of the hidden layers, not the dimension of the data, that prevents it: transient part of "
        "deep networks in low dimension whose hidden layers are wide, without minibatches",
        source="this project's, against section 3.3, which names the dimension; the bound from trial runs of symmetric "
        "networks",
        statistic=partial(statistics.transient_share, kind=WIDE),
        high=0.1,
    ),
    Claim(
        name="width-sgd",
        says="So it is under SGD, whose ripples are counted: the same part with minibatches",
        source="the claim before it as it was first posed, before the noise of SGD was told apart; the same bound",
        statistic=partial(statistics.transient_share, kind=WIDE_SGD),
        high=0.1,
    ),
)

metrics = (
    Metric(
        name="descents",
        says="descents of the loss in low dimension, mean over seeds",
        statistic=lambda run: float(statistics.select_networks(run, LOW, run.attrs["paper_depth"]).descents.mean()),
    ),
    Metric(
        name="transient",
        says="share of networks in low dimension whose loss rises between descents",
        statistic=lambda run: float(
            (statistics.select_networks(run, LOW, run.attrs["paper_depth"]).descents > 1).mean()
        ),
    ),
    Metric(
        name="rise",
        says="largest rise of the loss in low dimension over its start, mean over seeds",
        statistic=lambda run: float(statistics.select_networks(run, LOW, run.attrs["paper_depth"]).rise.mean()),
    ),
    Metric(
        name="final_loss",
        says="final loss out of distribution in low dimension, mean over seeds",
        statistic=lambda run: float(
            statistics.select_networks(run, LOW, run.attrs["paper_depth"]).test_loss.isel(step=-1).mean()
        ),
        scale="log",
    ),
)
