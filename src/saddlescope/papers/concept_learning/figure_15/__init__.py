"""Figure 15: a signal for colour and a signal for size, measured in the images.

Circles of the process that section 5 trains its diffusion models on. The figure shows a distribution with more signal
in colour and one with more in size, without their numbers; taken here are the ends of appendix G.1, colours that differ
by 0.7 and by 0.2, with diameters that differ by 0.4 in both. Section 5 calls "difference of class mean pixel values"
what a concept's signal is, and appendix G.1 has the two "controlled independently"; here they are measured.

    setting      what is set: the difference of two colours' channels, or of two diameters as a fraction of the side
    signal       what comes of it: the L2 distance of class means over all pixels and channels
    image signal root mean square distance of images that differ in the class of one concept alone
    mu, sigma    of the matching SIM task: distance of the class means of the trained classes, and spread within a class
                 along the same direction; the overlap is the cosine of the angle between the two directions
    position     colour and size of an image by the direct estimator; 0 and 1 are the class means
"""

from functools import partial

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.papers.concept_learning import CITATION
from saddlescope.papers.concept_learning.figure_15 import measurements
from saddlescope.papers.concept_learning.figure_15.claims import claims
from saddlescope.papers.concept_learning.figure_15.figures import figures
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.entry import Entry
from saddlescope.reproduction.parameters import EntryParams, param


class Params(EntryParams):
    """Images of appendix G's size."""

    pixels: int = param(32, "along a side", ge=4)
    compared: tuple[float, ...] = param((0.7, 0.2), "colour settings of the two distributions, left and right")
    color_settings: tuple[float, ...] = param((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), "at size setting 0.4")
    size_settings: tuple[float, ...] = param((0.1, 0.2, 0.3, 0.4, 0.5), "at colour setting 0.4")
    images: int = param(512, "of each class, by which a signal is measured", ge=2)
    seeds: tuple[int, ...] = param((0, 1, 2, 3, 4), "of independent measurements")
    read: int = param(1024, "true images of either distribution that the direct estimator reads", ge=4)
    shown: int = param(6, "images of each class in the pictures", ge=1)

    def check(self) -> None:
        for name in ("color_settings", "size_settings"):
            settings = getattr(self, name)
            if len(settings) < 2 or sorted(set(settings)) != list(settings):
                raise InputError(f"{name} must be two or more, increasing; got {settings!r}.")
        if len(self.compared) != 2 or not set(self.compared) <= set(self.color_settings):
            raise InputError(f"compared must be two of color_settings, left and right; got {self.compared!r}.")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise InputError(f"seeds must be distinct and at least 0, such as 0,1,2; got {self.seeds!r}.")


def run(params: Params, context: RunContext) -> xr.Dataset:
    """Measure signals seed by seed, then draw the images that are shown and read."""
    for color in params.color_settings:  # raise InputError for impossible settings before any work
        measurements.circle_process(params, color=color)
    for size in params.size_settings:
        measurements.circle_process(params, size=size)
    of_seeds: list[xr.Dataset] = []
    for k, seed in enumerate(params.seeds):
        report = context.part(0.9 * k / len(params.seeds), 0.9 * (k + 1) / len(params.seeds))
        of_seeds.append(context.cached(f"seed-{seed}", partial(measurements.measure_signals, params, seed, report)))
    context.report(0.9, "images")
    signals = xr.concat(of_seeds, xr.DataArray(list(params.seeds), dims="seed", name="seed"))
    merged = xr.merge([signals, measurements.example_images(params), measurements.read_positions(params)]).assign_attrs(
        compared=params.compared
    )
    context.report(1.0, "done")
    return merged


entry = Entry(
    "concept-learning/figure-15",
    "Figure 15: a signal for colour and a signal for size, measured in the images",
    citation=CITATION,
    source="Figure 15, appendix G.1",
    params=Params,
    quick=dict(
        pixels=16, color_settings=(0.2, 0.4, 0.7), size_settings=(0.2, 0.4), images=32, seeds=(0, 1), read=128, shown=3
    ),
    paper=dict(images=2048),
    run=run,
    claims=claims,
    figures=figures,
)
