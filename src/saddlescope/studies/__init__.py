"""Questions asked of a user's own data, where theory and flow meet: what it predicts, what it does, and the verdict."""

from saddlescope.studies.implicit_bias import ImplicitBias, implicit_bias
from saddlescope.studies.norms import NormVerdict, norm_verdict

__all__ = ["ImplicitBias", "NormVerdict", "implicit_bias", "norm_verdict"]
