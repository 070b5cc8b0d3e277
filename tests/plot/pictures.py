"""Figures and panels of the tests, of some marks."""

from saddlescope.plot import Axis, Figure, Panel

X, Y = Axis("t"), Axis("y")


def figure(*panels, **options):
    return Figure(name="f", title="t", caption="c", panels=panels, **options)


def panel(*marks, x=X, y=Y):
    return Panel(x=x, y=y, marks=marks)
