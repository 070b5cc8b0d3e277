"""Figures as data, and two ways to draw them: Matplotlib for paper, Plotly for pages."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
