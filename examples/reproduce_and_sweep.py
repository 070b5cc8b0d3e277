"""Reproduce an entry of a paper from Python, then sweep it over initial scales and seeds."""

# %% Run one entry at its quick size, or read the stored run
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

# %% Sweep the entry over two initial scales and two seeds; finished points are skipped next time
from saddlescope.sweeps import Grid, sweep

grid = Grid.parse(entry, ["log10_scale=-4,-64"], seeds="0:2", size="quick", settings={"problems": "1"})
swept = sweep(entry, grid, out=out)
print(swept.counts)

# %% One labelled data set has verdicts and metrics over the axes of the grid
print(swept.data.outcome.sel(claim="flow").to_pandas())
print(swept.data.metrics.sel(metric="excess").mean("seed").to_pandas())
