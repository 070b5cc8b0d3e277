"""The live page: move the parameters of an entry in a browser and see prediction, simulation and verdicts change.

A server on this machine alone (`server`) shows forms made from the records of parameters (`controls`). Worker processes
that stay warm (`worker`, `live_runs`) run the entries and answer with pictures and verdicts (`answer`). The server's
own process loads neither JAX nor PyTorch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
