"""Claims of the entry `figure_6`, on diffusion models and on the predictions of the SIM theory.

Parts (a) to (c) are the paper's; the comparison with the theory of the SIM task in numbers is ours. Bounds were set
with an eye on models of seeds from 100 on, which no run judged here trains. Those named with numbers had circles
a little smaller (diameter .625) and 2000 steps of 32 images.
"""

from functools import partial

from saddlescope.papers.concept_learning.figure_6 import statistics
from saddlescope.reproduction.claim import Claim

_BAR = "this project's bar"
_READING = "this project's reading"
_PILOT = "models of other seeds (110 and 111) had"


_CONDITIONS = (
    Claim(
        name="blank",
        says="Few of the generated images are blank: share at the end, all classes",
        source=_BAR,
        statistic=statistics.blank,
        high=0.1,
    ),
    Claim(
        name="blank-unseen",
        says="Few of those of the unseen class are blank: the same",
        source=_BAR,
        statistic=statistics.blank_unseen,
        high=0.1,
    ),
    Claim(
        name="trained-classes",
        says="The classes trained on are learned: mean distance from their own place in concept space, at the end",
        source=f"needed for the figure to mean something; {_BAR}",
        statistic=statistics.trained_classes,
        high=0.15,
    ),
    Claim(
        name="classifier",
        says="The classifier is perfect on true images held out: its lowest accuracy",
        source="Appendix G.3: 'we achieve a 100% accuracy on a held out test set'",
        statistic=statistics.classifier,
        low=1.0,
    ),
    Claim(
        name="estimators",
        says="Classifier and direct estimator agree in the second half of training: share of coordinates on the same "
        "side of 1/2, of those that are further than 1/4 from it",
        source=_BAR,
        statistic=statistics.estimators,
        low=0.9,
    ),
)
_ORDER = (
    Claim(
        name="color-first",
        says="At the strongest colour signal colour is learned before size: share of seeds",
        source=f"Figure 6 (a): 'the signal intensity can reverse the order'; 3 of 4 is {_BAR}",
        statistic=partial(statistics.count_first, signal=statistics.STRONG, concept=0),
        low=0.75,
    ),
    Claim(
        name="size-first",
        says="At the weakest colour signal size is learned before colour: share of seeds",
        source="the same",
        statistic=partial(statistics.count_first, signal=statistics.WEAK, concept=1),
        low=0.75,
    ),
    Claim(
        name="reversal",
        says="The signal reverses the order: share of seeds with both, for seeds at large",
        source=f"the same; more often than not is {_READING}",
        statistic=statistics.reversal,
        low=0.5,
    ),
    Claim(
        name="classifier-order",
        says="The classifier tells these orders, too: share of the models of both signals",
        source=f"the same; the paper reads concepts off a classifier; 3 of 4 is {_BAR}",
        statistic=statistics.classifier_order,
        low=0.75,
    ),
    Claim(
        name="speed",
        says="A stronger signal is learned faster: log2 of the steps to colour, weakest signal over strongest",
        source="Section 5: 'speed and order of compositional generalization is determined by concept signal'",
        statistic=statistics.speed,
        low=0.0,
    ),
)
_MEMORY = (
    Claim(
        name="bend-strong",
        says="The trajectory bends toward (blue, big) at the strongest colour signal: largest lead of colour over size",
        source=f"Figure 6 (a): 'a bend towards the concept with stronger signal'; .2 is {_READING}; {_PILOT} .74, .59",
        statistic=partial(statistics.lead, signal=statistics.STRONG),
        low=0.2,
    ),
    Claim(
        name="bend-weak",
        says="It bends toward (red, small) at the weakest: the same lead, negative",
        source=f"the same; {_PILOT} -.51 and -.73",
        statistic=partial(statistics.lead, signal=statistics.WEAK),
        high=-0.2,
    ),
    Claim(
        name="rise",
        says="The concept space MSE rises before it falls: from dip to peak, found on half of a model's images, read "
        "off the other half",
        source=f"Figure 6 (b): 'the concept space MSE has a phase where it increases'; .02 is {_READING}, as records "
        f"can differ by .01; {_PILOT} .02 to .13",
        statistic=statistics.rise_by_images,
        low=0.02,
    ),
    Claim(
        name="rise-of-circles",
        says="So it does once samples show circles, from three times the step of the first record on",
        source="the same, with its bound; posed after a first look, as the largest rise of one model of ten, from step "
        "63 to 94, was among noise",
        statistic=statistics.rise_of_circles,
        low=0.02,
    ),
    Claim(
        name="rise-raw",
        says="So it does for weights as they are, without their moving average, from the same dip to the same peak",
        source="the same; the average must not make the rise",
        statistic=statistics.rise_raw,
        low=0.0,
    ),
    Claim(
        name="rise-strong",
        says="At the strongest signal it rises at the same steps in all seeds: of each one, where the others rise most",
        source="the same; the paper shows the mean over seeds",
        statistic=partial(statistics.rise_by_seeds, signal=statistics.STRONG),
        low=0.0,
    ),
    Claim(
        name="rise-weak",
        says="The same at the weakest signal",
        source="the same",
        statistic=partial(statistics.rise_by_seeds, signal=statistics.WEAK),
        low=0.0,
    ),
    Claim(
        name="memorizing",
        says="At the peak the images are nearer to a class trained on than to the unseen one: share of models",
        source=f"Section 4.2.2, 'Transient Memorization'; more often than not is {_READING}",
        statistic=statistics.memorizing,
        low=0.5,
    ),
    Claim(
        name="transient",
        says="The memorization passes: MSE at the end over that at the dip before the rise",
        source="Section 5: 'This bend is transient'",
        statistic=statistics.transient,
        high=1.0,
    ),
)
_SLOWING = (
    Claim(
        name="slows",
        says="Learning slows down: the last speed in concept space over the largest",
        source=f"Figure 6 (c): 'Concept learning gradually slows down'; a tenth is {_READING}",
        statistic=statistics.slows,
        high=0.1,
    ),
    Claim(
        name="exponential-speed",
        says="The speed falls exponentially from its peak, not as a power of the step: log likelihood of the one over "
        "the other, a record",
        source="Figure 6 (c): 'slows down at an exponential rate'",
        statistic=statistics.speed_law,
        low=0.0,
    ),
    Claim(
        name="exponential-approach",
        says="From 1/2 on the slower coordinate approaches its end exponentially, not as a power: the same, fitted to "
        "half of the images and held against the other half",
        source="the same, and Theorem 4.1; free of the noise that adds to every speed",
        statistic=statistics.terminal_law,
        low=0.0,
    ),
)
_COMPARISON = (
    Claim(
        name="predicted-order",
        says="The SIM theory predicts which concept is learned first at the other signals: share of models",
        source=f"Section 5: 'the findings from our theory and the SIM task [...] generalize'; 3 of 4 is {_BAR}",
        statistic=statistics.predicted_order,
        low=0.75,
    ),
    Claim(
        name="predicted-ratio",
        says="It predicts the ratio of the times of both concepts at the other signals: log2 of predicted over real",
        source=f"the same; a factor of 2 is {_BAR}",
        statistic=statistics.predicted_ratio,
        low=-1.0,
        high=1.0,
    ),
    Claim(
        name="predicted-bend",
        says="It predicts the bend at the other signals: predicted minus measured lead",
        source=f"the same; .15 is {_BAR}; {_PILOT} -.03 and .19",
        statistic=statistics.predicted_lead,
        low=-0.15,
        high=0.15,
    ),
    Claim(
        name="predicted-rise",
        says="It predicts how much the MSE rises: predicted minus measured, all signals",
        source=f"the same; .02 is {_BAR}; {_PILOT} -.12 to .01",
        statistic=statistics.predicted_rise,
        low=-0.02,
        high=0.02,
    ),
    Claim(
        name="predicted-rate",
        says="It predicts the terminal rate at the other signals: log2 of predicted over measured",
        source=f"the same; a factor of 2 is {_BAR}",
        statistic=partial(statistics.predicted_rate, adam=False),
        low=-1.0,
        high=1.0,
    ),
    Claim(
        name="predicted-rate-adam",
        says="The same at AdamW's pace",
        source="the same",
        statistic=partial(statistics.predicted_rate, adam=True),
        low=-1.0,
        high=1.0,
    ),
    Claim(
        name="pace",
        says="As many steps make a unit of time at the other signals as at the first: log2 of their own fit's over it",
        source=f"gradient flow; a factor of 2 is {_BAR}; {_PILOT} -2.1 and -1.9",
        statistic=partial(statistics.pace, adam=False),
        low=-1.0,
        high=1.0,
    ),
    Claim(
        name="pace-adam",
        says="Steps in a unit of time are in proportion to a_1 + a_2: log2 of their own fit's over that",
        source=f"AdamW does not see how large gradients are; a factor of 2 is {_BAR}; {_PILOT} .04 and .17",
        statistic=partial(statistics.pace, adam=True),
        low=-1.0,
        high=1.0,
    ),
    Claim(
        name="matching",
        says="mu and sigma matter: error of the predicted trajectory over that of the first signal's, other signals",
        source=f"needed for a prediction to say something; {_PILOT} 1.2 and .9",
        statistic=partial(statistics.matching, adam=False),
        high=1.0,
    ),
    Claim(
        name="matching-adam",
        says="The same at AdamW's pace",
        source=f"the same; {_PILOT} .67 and .56",
        statistic=partial(statistics.matching, adam=True),
        high=1.0,
    ),
    Claim(
        name="two-layers",
        says="Two layers fit the trajectory better than one: error over error, at the first signal",
        source=f"Section 4: one layer has no transient memorization; {_PILOT} 1.10 and 1.15",
        statistic=partial(statistics.against, other="one layer"),
        high=1.0,
    ),
    Claim(
        name="orthogonal",
        says="Orthogonal directions, as the SIM task has them, fit no worse than the images' own: error over error",
        source=f"Section 2.1; {_PILOT} .87 and .78",
        statistic=partial(statistics.against, other="overlapping"),
        high=1.0,
    ),
)
claims = (*_CONDITIONS, *_ORDER, *_MEMORY, *_SLOWING, *_COMPARISON)
