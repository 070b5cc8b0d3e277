"""Records of figures, which entries import from `saddlescope.plot` together with what draws them."""

from saddlescope.figures.records import AnyMark as AnyMark
from saddlescope.figures.records import Axis as Axis
from saddlescope.figures.records import Band as Band
from saddlescope.figures.records import Figure as Figure
from saddlescope.figures.records import Figures as Figures
from saddlescope.figures.records import Film as Film
from saddlescope.figures.records import Heat as Heat
from saddlescope.figures.records import Kind as Kind
from saddlescope.figures.records import Kinds as Kinds
from saddlescope.figures.records import Line as Line
from saddlescope.figures.records import Mark as Mark
from saddlescope.figures.records import Panel as Panel
from saddlescope.figures.records import Picture as Picture
from saddlescope.figures.records import Table as Table
