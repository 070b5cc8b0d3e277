"""Figure 11: two-layer linear networks learn the stronger and the more diverse concept first   (Appendix F, Figure 11)

As Figure 2 with two layers, at d = 64 with 64 hidden units, trained by SGD in the conventions of `_perceptrons`.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saddlescope.papers.concept_learning import _orders as orders
from saddlescope.papers.concept_learning._perceptrons import Training
from saddlescope.papers.context import RunContext

if TYPE_CHECKING:
    import xarray as xr

    from saddlescope.plot.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Params:
    """The paper's training, for several seeds."""

    mu: tuple[float, ...] = (1.0, 2.0)  # signals of panel "diversity"; mu_2 is that of panel "signal", too
    varied_mu: tuple[float, ...] = (1.0, 1.5, 2.5, 3.0)  # mu_1 in panel "signal"
    sigma: float = 0.05  # of both concepts, in panel "diversity" of the second; as printed, used as a variance
    varied_sigma: tuple[float, ...] = (0.05, 0.5, 1.5, 2.0)  # sigma_1 in panel "diversity"
    seeds: int = 40  # networks for every task
    seed: int = 0  # of samples, rotation, start and SGD of the first network; the others have the next ones
    dim: int = 64  # d, also the width of the hidden layer
    samples: int = 5000  # of each cluster
    epochs: int = 40  # of SGD with batch 128 and learning rate 0.1
    every: int = 5  # steps between two marks

    def __post_init__(self) -> None:
        orders.check(self)

    @classmethod
    def quick(cls) -> "Params":
        """Seconds: fewer dimensions, which makes the steps longer, and fewer samples."""
        return cls(varied_mu=(1.0, 3.0), varied_sigma=(0.05, 2.0), seeds=20, dim=24, samples=1500, every=20)

    @classmethod
    def paper(cls) -> "Params":
        """The default has the paper's sizes."""
        return cls()


def run(params: Params, context: RunContext) -> "xr.Dataset":
    """All networks at once."""
    training = Training(depth=2, dim=params.dim, samples=params.samples, epochs=params.epochs, every=params.every)
    found = orders.run_panels(training, params, context)
    context.report(1.0, "done")
    return found


claims = (*orders.order_claims("Figure 11"), orders.arrival_claim("Figure 11"))


def traces(run: "xr.Dataset") -> "list[Figure]":
    """The paper's two panels."""
    from saddlescope.plot import Figure

    return [
        Figure(
            name="trajectories",
            title="Two linear layers keep the order of one",
            caption="The output at the test point, for one seed, in the plane of the two concepts; points "
            "at equal times, large points where it must end. Two layers leave the origin later "
            "and turn more sharply than one.",
            panels=orders.trajectory_panels(run),
            table=orders.order_table(run),
        )
    ]
