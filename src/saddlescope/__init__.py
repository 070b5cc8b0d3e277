"""saddlescope: in which stages does a neural network learn?

Networks trained from small weights learn in a staircase: long plateaus near saddles, short drops between them.
The package predicts that staircase (`theory`), simulates it (`flow`), measures it in networks that people really
train (`measure`, `train`), and holds the three against each other (`papers`, and `studies` on data of one's own).

Importing this package loads nothing heavy: every public name is resolved when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saddlescope._shared.progress import show_progress
    from saddlescope.flow import (
        diagonal_margin_flow,
        escape_flow,
        factored_flow,
        gradient_descent,
        gradient_flow,
        gradient_flow_batched,
        key_query_margin_flow,
        matrix_margin_flow,
        sgd,
        sgd_batched,
        symmetric_flows,
        symmetric_path,
    )
    from saddlescope.measure import (
        Stage,
        Staircase,
        compare,
        effective_rank,
        energy_rank,
        entry_histories,
        find_descents,
        find_plateaus,
        find_stages,
        numerical_rank,
        principal_angles,
        product_update_spectrum,
        rank_staircases,
        richardson,
        spectrum,
        stable_rank,
        update_spectrum,
    )
    from saddlescope.models import DiagonalNetwork, LayeredLoss, TokenData, attention_teacher_task
    from saddlescope.studies import implicit_bias
    from saddlescope.sweeps import Sweep, sweep
    from saddlescope.theory import (
        certified_escape_speed,
        escape_directions,
        frobenius_svm,
        incremental_learning,
        l1_svm,
        low_rank_learning,
        nuclear_svm,
    )
    from saddlescope.train import RankTracker, allocate_ranks, checkpoint_spectra, extract_lora

_HOME = {
    "DiagonalNetwork": "saddlescope.models",
    "LayeredLoss": "saddlescope.models",
    "RankTracker": "saddlescope.train",
    "Stage": "saddlescope.measure",
    "Staircase": "saddlescope.measure",
    "Sweep": "saddlescope.sweeps",
    "TokenData": "saddlescope.models",
    "allocate_ranks": "saddlescope.train",
    "attention_teacher_task": "saddlescope.models",
    "certified_escape_speed": "saddlescope.theory",
    "checkpoint_spectra": "saddlescope.train",
    "compare": "saddlescope.measure",
    "diagonal_margin_flow": "saddlescope.flow",
    "effective_rank": "saddlescope.measure",
    "energy_rank": "saddlescope.measure",
    "entry_histories": "saddlescope.measure",
    "escape_directions": "saddlescope.theory",
    "escape_flow": "saddlescope.flow",
    "extract_lora": "saddlescope.train",
    "factored_flow": "saddlescope.flow",
    "find_descents": "saddlescope.measure",
    "find_plateaus": "saddlescope.measure",
    "find_stages": "saddlescope.measure",
    "frobenius_svm": "saddlescope.theory",
    "gradient_descent": "saddlescope.flow",
    "gradient_flow": "saddlescope.flow",
    "gradient_flow_batched": "saddlescope.flow",
    "implicit_bias": "saddlescope.studies",
    "incremental_learning": "saddlescope.theory",
    "key_query_margin_flow": "saddlescope.flow",
    "l1_svm": "saddlescope.theory",
    "low_rank_learning": "saddlescope.theory",
    "matrix_margin_flow": "saddlescope.flow",
    "nuclear_svm": "saddlescope.theory",
    "numerical_rank": "saddlescope.measure",
    "principal_angles": "saddlescope.measure",
    "product_update_spectrum": "saddlescope.measure",
    "rank_staircases": "saddlescope.measure",
    "sgd": "saddlescope.flow",
    "sgd_batched": "saddlescope.flow",
    "richardson": "saddlescope.measure",
    "show_progress": "saddlescope._shared.progress",
    "spectrum": "saddlescope.measure",
    "stable_rank": "saddlescope.measure",
    "sweep": "saddlescope.sweeps",
    "symmetric_flows": "saddlescope.flow",
    "symmetric_path": "saddlescope.flow",
    "update_spectrum": "saddlescope.measure",
}

__all__ = [
    "DiagonalNetwork",
    "LayeredLoss",
    "RankTracker",
    "Stage",
    "Staircase",
    "Sweep",
    "TokenData",
    "allocate_ranks",
    "attention_teacher_task",
    "certified_escape_speed",
    "checkpoint_spectra",
    "compare",
    "diagonal_margin_flow",
    "effective_rank",
    "energy_rank",
    "entry_histories",
    "escape_directions",
    "escape_flow",
    "extract_lora",
    "factored_flow",
    "find_descents",
    "find_plateaus",
    "find_stages",
    "frobenius_svm",
    "gradient_descent",
    "gradient_flow",
    "gradient_flow_batched",
    "implicit_bias",
    "incremental_learning",
    "key_query_margin_flow",
    "l1_svm",
    "low_rank_learning",
    "matrix_margin_flow",
    "nuclear_svm",
    "numerical_rank",
    "principal_angles",
    "product_update_spectrum",
    "rank_staircases",
    "richardson",
    "sgd",
    "sgd_batched",
    "show_progress",
    "spectrum",
    "stable_rank",
    "sweep",
    "symmetric_flows",
    "symmetric_path",
    "update_spectrum",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("saddlescope")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'saddlescope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
