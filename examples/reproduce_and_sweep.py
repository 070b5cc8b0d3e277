"""Reproduce an entry of a paper from Python, then sweep it over initial scales and seeds."""

# %% Run one entry at its quick size; what is stored already is read, not run again
from pathlib import Path

from saddlescope.reproduction import find_entry, reproduce

out = Path("results")
entry = find_entry("gradual-rank/diagonal-linear")
made = reproduce(entry, out=out, size="quick")
for verdict in made.verdicts:
    print(f"{verdict.claim}: {verdict.value:.3g} +- {verdict.uncertainty:.1g}, {verdict.outcome}")

# %% The stored run is an xarray data set with its provenance
print(made.file)
print(made.run.sizes)

# %% The same entry over a grid: two initial scales, two seeds. Finished points are kept, and passed by next time
from saddlescope.sweeps import Grid, sweep

grid = Grid.parse(entry, ["log10_scale=-4,-64"], seeds="0:2", size="quick", settings={"problems": "1"})
swept = sweep(entry, grid, out=out)
print(swept.counts)

# %% One labelled data set: verdicts and numbers over the axes of the grid
print(swept.data.outcome.sel(claim="flow").to_pandas())
print(swept.data.metrics.sel(metric="excess").mean("seed").to_pandas())
