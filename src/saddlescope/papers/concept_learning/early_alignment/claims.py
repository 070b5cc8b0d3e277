"""Claims of the entry `early_alignment`."""

from saddlescope.papers.concept_learning.early_alignment import statistics
from saddlescope.reproduction.claim import Claim

_PILOT = "this project's prediction; bound from a pilot on other seeds"

claims = (
    Claim(
        name="fastest",
        says="One neuron escapes fastest along the strongest concept: angle between the two",
        source=f"{_PILOT}: 1.9, by the noise of finitely many samples",
        statistic=statistics.fastest_angle,
        high=5.0,
        unit="degrees",
    ),
    Claim(
        name="every-neuron",
        says="At the smallest scale neurons have the directions predicted when the loss leaves: part within 5 degrees",
        source=f"{_PILOT}: .98 to 1",
        statistic=statistics.neurons_as_predicted,
        low=0.95,
    ),
    Claim(
        name="predicted",
        says="The same by weight: mean cosine to the prediction, worst network",
        source=f"{_PILOT}: .99999",
        statistic=statistics.cosine_to_prediction,
        low=0.999,
    ),
    Claim(
        name="in-and-out",
        says="Output weights align with input weights: mean cosine by weight, smallest scale, worst network",
        source=f"{_PILOT}: .99999",
        statistic=statistics.cosine_of_layers,
        low=0.999,
    ),
    Claim(
        name="aligned",
        says="From small weights the network leaves along the fastest direction: mean cosine by weight, smallest scale",
        source="Appendix E.4, 'each neuron converges to a fixed direction'; .9999 in the pilot",
        statistic=statistics.smallest_scale_alignment,
        low=0.999,
    ),
    Claim(
        name="too-large",
        says="From weights of scale .1 it leaves before it has aligned: the same, best network",
        source="the contrary, for weights that are not small; about .5 in the pilot",
        statistic=statistics.largest_scale_alignment,
        high=0.9,
    ),
    Claim(
        name="left-over",
        says="What is missing of the alignment is what is predicted: ratio, smallest scale",
        source=f"{_PILOT}: 1.00 to 1.02",
        statistic=statistics.missing_alignment,
        low=0.8,
        high=1.25,
    ),
    Claim(
        name="time",
        says="The loss leaves its plateau at the time predicted: largest relative error, smallest scale",
        source=f"{_PILOT}: .013, most of it by the finite learning rate",
        statistic=statistics.leaving_time_error,
        high=0.03,
    ),
    Claim(
        name="linear",
        says="The network is like a linear one on the training data from there to the end: least R^2",
        source="Appendix E.4, 'make the model behaves like a linear model'; .993 in the pilot",
        statistic=statistics.linear_r_squared,
        low=0.98,
    ),
    Claim(
        name="linear-outside",
        says="So it is at the test point: largest error of the best linear map, relative",
        source="the same, out of distribution; .036 in the pilot",
        statistic=statistics.linear_error,
        high=0.1,
    ),
)
