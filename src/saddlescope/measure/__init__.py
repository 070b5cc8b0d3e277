"""Numbers from arrays: spectra, ranks and staircases, for NumPy, JAX and PyTorch through the array API."""

from saddlescope.measure.bottleneck import bottleneck_rank, bulk_count, nonlinearity, second_ratio
from saddlescope.measure.comparison import Comparison, compare
from saddlescope.measure.descents import Descents, find_descents
from saddlescope.measure.entry_histories import EntryHistories, EntryHistory, EntryKind, entry_histories
from saddlescope.measure.loss_stages import Drop, LossStages, Plateau, Rise
from saddlescope.measure.plateaus import find_plateaus
from saddlescope.measure.rank import effective_rank, energy_rank, numerical_rank, stable_rank
from saddlescope.measure.rank_staircase import rank_staircases, rank_stairs
from saddlescope.measure.singular_values import Spectrum
from saddlescope.measure.spectrum import (
    product_spectrum,
    product_update_spectrum,
    spectrum,
    update_noise_floor,
    update_spectrum,
)
from saddlescope.measure.stages import Stage, Staircase, find_stages
from saddlescope.measure.subspaces import Subspaces, principal_angles, product_update_subspaces, subspace_overlap
from saddlescope.measure.update_orders import UpdateOrders, product_update_orders

__all__ = [
    "Comparison",
    "Descents",
    "Drop",
    "EntryHistories",
    "EntryHistory",
    "EntryKind",
    "LossStages",
    "Plateau",
    "Rise",
    "Spectrum",
    "Stage",
    "Staircase",
    "Subspaces",
    "UpdateOrders",
    "bottleneck_rank",
    "bulk_count",
    "compare",
    "effective_rank",
    "energy_rank",
    "entry_histories",
    "find_descents",
    "find_plateaus",
    "find_stages",
    "nonlinearity",
    "numerical_rank",
    "principal_angles",
    "product_spectrum",
    "product_update_orders",
    "product_update_spectrum",
    "product_update_subspaces",
    "rank_staircases",
    "rank_stairs",
    "second_ratio",
    "spectrum",
    "stable_rank",
    "subspace_overlap",
    "update_noise_floor",
    "update_spectrum",
]
