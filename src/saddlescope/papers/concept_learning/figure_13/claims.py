"""Claims and metrics of the entry `figure_13`."""

from functools import partial

from saddlescope.papers.concept_learning.figure_13 import statistics
from saddlescope.papers.concept_learning.figure_13.simulations import DEEP, ONE, WIDE
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

_BAR = "a pilot on other seeds had .33, and half of it leaves room"

claims = (
    Claim(
        name="small-signals",
        says="With mu = (1, 2) such networks memorize for a while: part whose loss falls, rises and falls again",
        source=f"Figures 13 (left) and 14, one network each; {_BAR}",
        statistic=partial(statistics.transient_share, task="small"),
        low=0.15,
    ),
    Claim(
        name="large-signals",
        says="With mu = (2, 4) they do, too",
        source=f"Figures 13 (right) and 14, one network each; {_BAR}",
        statistic=partial(statistics.transient_share, task="large"),
        low=0.15,
    ),
    Claim(
        name="typical",
        says="It is what such a network usually does: part of the networks with mu = (1, 2)",
        source="F.2, 'exhibit significant Transient Memorization', if that is meant of most networks",
        statistic=partial(statistics.transient_share, task="small"),
        low=0.5,
    ),
    Claim(
        name="memorizing",
        says="Where the loss is highest again, transient networks are nearer to the strongest cluster than to the test "
        "point: part of them",
        source="section 3.3: turns toward the training set cluster with the strongest signal; all in the pilot",
        statistic=statistics.memorizing,
        low=0.8,
    ),
    Claim(
        name="more-layers",
        says="More layers memorize more easily: their share of transient networks less that of one layer, d = 3",
        source="F.2, 'models with more layers ... are easier to have Transient Memorization'; .31 in the pilot",
        statistic=partial(statistics.share_difference, kind=ONE),
        low=0.1,
    ),
    Claim(
        name="fewer-dimensions",
        says="So do fewer dimensions: their share less that of two layers at d = 64",
        source="F.2, '... and fewer input dimensions', beside Figure 11; .33 in the pilot",
        statistic=partial(statistics.share_difference, kind=WIDE),
        low=0.1,
    ),
    Claim(
        name="generalising",
        says="They generalise in the end: part of the networks whose loss falls below 1 % of its start",
        source="Figure 14, both curves; all in the pilot",
        statistic=statistics.generalising,
        low=0.95,
    ),
    Claim(
        name="sooner",
        says="Large signals are learned in fewer steps: ratio of steps until then, median over seeds",
        source="Figure 14 and a_p of section 4.1, four times as large but for sigma; 3.1 in the pilot",
        statistic=statistics.step_ratio,
        low=2.0,
    ),
)

metrics = (
    Metric(
        name="descents",
        says="descents of the loss of three layers, mean over networks",
        statistic=lambda run: float(run.descents.sel(kind=DEEP).mean()),
    ),
    Metric(
        name="transient",
        says="share of networks of three layers whose loss rises between descents",
        statistic=lambda run: float((run.descents.sel(kind=DEEP) > 1).mean()),
    ),
    Metric(
        name="steps",
        says="steps until three layers have learned, median over networks",
        statistic=lambda run: float(run.learned.sel(kind=DEEP).median()),
        scale="log",
    ),
    Metric(
        name="final_loss",
        says="final loss out of distribution of three layers, mean over networks",
        statistic=lambda run: float(run.test_loss.isel(step=-1).mean()),
        scale="log",
    ),
)
