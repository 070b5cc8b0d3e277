from .grid import Grid as Grid
from .grid import SweptParameter as SweptParameter
from .point import Point as Point
from .point import State as State
from .result import Sweep as Sweep
from .result import stored_sweeps as stored_sweeps
from .run import sweep as sweep
