"""Claims of the entry `figure_15`."""

from functools import partial

from saddlescope.papers.concept_learning.figure_15 import statistics
from saddlescope.reproduction.claim import Claim

_PLACE = "appendix G.1"
_BAR = "the bound is this project's bar"
_DERIVED = "this project's, derived: see `saddlescope.train.diffusion.signals`"

claims = (
    Claim(
        name="left",
        says="On the left, colours 0.7 apart, colour has the stronger signal: mu of colour over mu of size",
        source="Figure 15, left; the setting is the upper end of appendix G.1",
        statistic=partial(statistics.signal_ratio, side=0),
        low=1.0,
    ),
    Claim(
        name="right",
        says="On the right, colours 0.2 apart, size has the stronger signal: the same ratio",
        source="Figure 15, right; the setting is the lower end of appendix G.1",
        statistic=partial(statistics.signal_ratio, side=1),
        high=1.0,
    ),
    Claim(
        name="sensitivity",
        says="On the left colour is stronger as well where single images are compared that differ in one concept alone",
        source="section 1, the signal as sensitivity of the process; the bound is that of `left`",
        statistic=statistics.image_ratio,
        low=1.0,
    ),
    Claim(
        name="small-circles",
        says="On the left colour is stronger whatever the size: its signal over size's among small circles, where the "
        "unseen class lies",
        source="Figure 15 has one signal for each concept; the bound is that of `left`",
        statistic=statistics.small_circle_ratio,
        low=1.0,
    ),
    Claim(
        name="crossing",
        says="Between the two settings the signals change places: colour setting at which they are equal",
        source="Figure 6 (a), whose order of learning is reversed between 0.2 and 0.7",
        statistic=statistics.crossing,
        low=0.2,
        high=0.7,
    ),
    Claim(
        name="proportional",
        says="Colour's signal is proportional to its setting: exponent, up to settings of 0.8",
        source=_DERIVED,
        statistic=statistics.signal_exponent,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="big-and-small",
        says="A big circle carries more of colour's signal: that among big circles over that among small ones",
        source=f"{_DERIVED}; {_BAR}",
        statistic=statistics.big_over_small,
        low=2.0,
    ),
    Claim(
        name="red-and-blue",
        says="Red and blue circles carry size's signal alike: that among red ones over that among blue ones",
        source=_DERIVED,
        statistic=statistics.red_over_blue,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="size-independent",
        says="Size's signal does not depend on colour's setting: that on the left over that on the right",
        source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
        statistic=statistics.size_by_color,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="color-independent",
        says="Colour's signal does not depend on size's setting: that among big circles at the largest setting over "
        "that at the least",
        source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
        statistic=statistics.color_by_size,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="orthogonal",
        says="The two concepts are orthogonal in pixels, as in the SIM task: cosine of the angle between the means of "
        "the trained classes, on the left",
        source=f"section 2, whose clusters lie on coordinate axes; {_BAR}",
        statistic=statistics.overlap,
        low=-0.1,
        high=0.1,
    ),
    Claim(
        name="reads-color",
        says="The direct estimator reads colour off true images: root mean square error, in units of the distance of "
        "the class means",
        source="this project's bar",
        statistic=partial(statistics.reading_error, concept="color"),
        high=0.1,
    ),
    Claim(
        name="reads-size",
        says="The direct estimator reads size off true images: root mean square error, in the same units",
        source="this project's bar",
        statistic=partial(statistics.reading_error, concept="size"),
        high=0.1,
    ),
    Claim(
        name="calibrated",
        says="It is right on average in every class: largest mean error",
        source="this project's bar",
        statistic=statistics.reading_bias,
        high=0.05,
    ),
    Claim(
        name="seen",
        says="It sees the circle in every true image: fraction called blank",
        source="this project's bar",
        statistic=statistics.blank_share,
        high=0.0,
    ),
)
