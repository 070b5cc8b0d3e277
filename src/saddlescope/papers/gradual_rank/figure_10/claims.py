"""The claims of Figure 10, with their bounds and sources."""

from saddlescope.papers.gradual_rank.figure_10.statistics import (
    beta_closest_return,
    beta_final_displacement,
    conservation_distance,
    end_difference,
    smallest_curvature,
    weights_closest_return,
)
from saddlescope.reproduction.claim import Claim

LEFT = 0.05

# The bounds. "Converge to the original", "tends back" have no number: read here as at most 5 % of the displacement
# left. For learned coordinates alone there is no next stage that could interfere, and 1e-3 leaves room for the error of
# the integration only. A minimum is strict where c_k is above rounding: 1e-12 of the loss at the origin.
claims = (
    Claim(
        name="strict-minima",
        says="The plateaus of all stages are strict local minima on their support: smallest c_k",
        source="Assumption 4.4, with - L(theta^k), which is missing there",
        statistic=smallest_curvature,
        low=0.0,
    ),
    Claim(
        name="same-rest",
        says="Followed without the negligible coordinates, beta comes to the same rest with noise as without: what is "
        "left of its displacement, at worst",
        source="Appendix A: 'the weights were close to a strict local minimum'; 1e-3 for the integration",
        statistic=end_difference,
        high=1e-3,
    ),
    Claim(
        name="beta-returns",
        says="Within 1000 epochs beta comes back to the undisturbed beta: what is left of its displacement at the "
        "closest approach, at worst",
        source="Figure 10 as it can hold, for beta instead of the weights; at most 5 %",
        statistic=beta_closest_return,
        high=LEFT,
    ),
    Claim(
        name="beta-stays",
        says="After 1000 epochs beta is where it would be without noise: what is left of its displacement, at worst",
        source="Appendix A: 'the training dynamics quickly converge to the original'; at most 5 %",
        statistic=beta_final_displacement,
        high=LEFT,
    ),
    Claim(
        name="weights-return",
        says="Each weight comes back to the undisturbed weight: what is left of the displacement at the closest "
        "approach, at worst",
        source="Figure 10, caption, as printed: 'quickly brings each weight back'; at most 5 %",
        statistic=weights_closest_return,
        high=LEFT,
    ),
    Claim(
        name="weights-conserve",
        says="The weights go where u^2 - v^2, conserved since the noise, and the undisturbed beta put them: distance "
        "over displacement at the closest approach, at worst",
        source="Lemma 4.2, instead of Figure 10 as printed; at most 5 %",
        statistic=conservation_distance,
        high=LEFT,
    ),
)
