"""Claims of the entry `appendix_g`."""

from functools import partial

from saddlescope.papers.concept_learning.appendix_g import statistics
from saddlescope.reproduction.claim import Claim

_BAR = "bar of this project, for single precision"
claims = (
    *(
        Claim(
            name=f"{term}-term",
            says=f"The {term} term of the full model is its definition by hand: largest relative difference",
            source=f"appendix G.2 and Kingma et al. (2021); {_BAR}",
            statistic=partial(statistics.term_error, term=term),
            high=1e-4,
        )
        for term in ("diffusion", "prior", "reconstruction")
    ),
    Claim(
        name="gradient",
        says="The diffusion term's gradient along random directions of the weights, and by the schedule, is that of its"
        " definition by hand: largest difference over the gradient's norm",
        source=f"appendix G.2; {_BAR}",
        statistic=statistics.gradient_error,
        high=1e-4,
    ),
    Claim(
        name="information",
        says="With the best prediction, the diffusion term is the information that noise takes away between time 0 and"
        " time 1: their ratio",
        source="normal law: I(x; z_0) - I(x; z_1) in closed form; 2 % is this project's bar",
        statistic=statistics.information_ratio,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="sampler",
        says="Ancestral sampling has the covariance of the Markov chain it stands for: squared deviation over chance",
        source="normal law, whose chain is a linear map; 1 but for chance",
        statistic=statistics.chain_deviation,
        low=0.8,
        high=1.2,
    ),
    Claim(
        name="mean",
        says="Ancestral sampling recovers the mean of a known normal law: mean squared deviation over its chance",
        source="normal law; 1 but for chance",
        statistic=statistics.mean_deviation,
        low=0.5,
        high=1.5,
    ),
    Claim(
        name="covariance",
        says="Ancestral sampling recovers the covariance of a known normal law: relative error of a direction beyond"
        " chance, root of the mean square",
        source="normal law; 5 % is this project's bar",
        statistic=statistics.covariance_error,
        high=0.05,
    ),
    Claim(
        name="hundred-steps",
        says="The paper's 100 sampling steps are enough where the schedule has learned the data noise: the largest part"
        " of a variance that is lost",
        source="appendix G.2: 'we use 100 steps for generation'; bar of this project, from another seed's exact law",
        statistic=statistics.hundred_step_loss,
        high=0.15,
    ),
    Claim(
        name="classifier",
        says="The classifier is right on true images it was not trained on: share, worst concept and signal",
        source="appendix G.3: '100 % accuracy on a held out test set', to one in a thousand",
        statistic=statistics.accuracy,
        low=0.999,
    ),
    Claim(
        name="agreement",
        says="Classifier and direct estimator give true images the same class: share, worst concept and signal",
        source="both are meant to measure concept space; 99 % is this project's bar",
        statistic=statistics.agreement,
        low=0.99,
    ),
    *(
        Claim(
            name=f"coordinate-{concept}",
            says=f"The classifier's probability is a coordinate of {concept}: on the way from one class mean to the"
            " other its mean takes this part of the way to rise from .1 to .9; a coordinate takes .8",
            source="appendix G.3 takes it for the representation in concept space; half of .8 is this project's bar",
            statistic=partial(statistics.rise_width, concept=concept),
            low=0.4,
        )
        for concept in ("color", "size")
    ),
)
