"""Studies of your own data that combine theory and simulation: prediction, flow and verdict."""

from saddlescope.studies.front_door import Prediction, predict, simulate
from saddlescope.studies.implicit_bias import ImplicitBias, implicit_bias
from saddlescope.studies.norms import NormVerdict, norm_verdict

__all__ = ["ImplicitBias", "NormVerdict", "Prediction", "implicit_bias", "norm_verdict", "predict", "simulate"]
