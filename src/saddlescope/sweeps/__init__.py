"""Sweeps: one entry at many points of its parameters, over processes or machines; one labelled data set comes out."""

from saddlescope.sweeps.grid import Grid, SweptParameter
from saddlescope.sweeps.point import Point, State
from saddlescope.sweeps.result import Sweep, stored_sweeps
from saddlescope.sweeps.run import sweep

__all__ = ["Grid", "Point", "State", "Sweep", "SweptParameter", "stored_sweeps", "sweep"]
