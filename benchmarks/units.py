"""The prediction of stages from one unit beside the flow of all units past the last stage, from 1e-32.

ReLU neurons on eight orthogonal samples with labels of both signs: two stages. Both get the same directions, and are
timed once compiled. The flow's tolerance is 1e-5; the difference is that of its final loss from the predicted.

    python benchmarks/units.py [--quick]
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # read when NumPy is loaded

import time

import jax
import numpy as np
from board import Board, play

import saddlescope as ss
from saddlescope.flow.units.unit_flow import UnitTrajectory
from saddlescope.papers.beyond.shared.units import half_square, relu_neuron
from saddlescope.theory.units.results import UnitLearning

LABELS = np.array([1.2, -0.5, 0.7, -1.0, 0.9, -0.3, 0.4, -0.8])


def main(board: Board) -> None:
    """Measure at several widths."""
    jax.config.update("jax_enable_x64", True)
    data = np.eye(len(LABELS)), LABELS
    one = {"w": np.zeros(len(LABELS)), "a": np.zeros(())}
    for width in (4,) if board.quick else (8, 24):
        into = np.abs(np.random.default_rng(0).standard_normal((width, len(LABELS))))
        signs = np.where(np.arange(width) % 2 == 0, 1, -1)  # a balanced neuron keeps the sign of its output
        start = {"w": into, "a": signs * np.linalg.norm(into, axis=1)}

        def predict(weights: dict[str, np.ndarray] = start) -> UnitLearning:
            return ss.unit_learning(relu_neuron, data, half_square, parameters=one, weights=weights)

        end = 1.2 * predict().stages[-1].time  # compiles

        def follow(until: float, weights: dict[str, np.ndarray] = start, end: float = end) -> UnitTrajectory:
            return ss.unit_flow(
                relu_neuron, data, half_square, weights, degree=2.0, log_scale=-32 * np.log(10), until=until * end,
                tolerance=1e-5,
            )  # fmt: skip

        follow(0.01)  # compiles
        before = time.process_time()
        learned = predict()
        between = time.process_time()
        run = follow(1.0)
        after = time.process_time()
        times = {"unit_learning": between - before, "unit_flow from 1e-32": after - between}
        problem = f"{width} ReLU neurons, 8 orthogonal samples"
        board.compare(problem, "CPU time", "s", times, own=("unit_flow from 1e-32",))
        error = abs(run.losses[-1] - learned.stages[-1].loss) / learned.stages[0].loss
        board.report(problem, "unit_flow from 1e-32", "difference of the last level", float(error))
        print(problem, times, error)


if __name__ == "__main__":
    play(main)
