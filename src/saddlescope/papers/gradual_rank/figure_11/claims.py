"""The claims of Figure 11, with their bounds and sources."""

from saddlescope.papers.gradual_rank.figure_11.statistics import endpoint_distance, path_distance, tracking_distance
from saddlescope.reproduction.claim import Claim

# The bounds. "Tend to the limiting endpoint", "track the original dynamics" have no number. Read here as: at most 5 %
# of the transition's size from the endpoint, as in Figure 10; at most 10 % of it, what an eye sees, from the curve.
claims = (
    Claim(
        name="endpoint",
        says="After noise at its beginning a transition still ends at theta^k: least distance in units of its size, "
        "at worst",
        source="Assumption 4.5 and Appendix A: 'tend to the limiting endpoint'; at most 5 %",
        statistic=endpoint_distance,
        high=0.05,
    ),
    Claim(
        name="tracks",
        says="The noisy training tracks the one without noise: largest distance at the same time in units of the "
        "transition's size, at worst",
        source="Figure 11, caption, as printed; at most 10 %",
        statistic=tracking_distance,
        high=0.1,
    ),
    Claim(
        name="same-path",
        says="The transition takes the same path, only sooner: largest distance at the same progress, 10 % to 90 %, in "
        "units of its size, at worst",
        source="Figure 3 (b): 'same nonlinear evolution', as it can hold; at most 10 %",
        statistic=path_distance,
        high=0.1,
    ),
)
