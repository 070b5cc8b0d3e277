"""Networks trained once per seed, for all entries that need the same training."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import xarray as xr

from saddlescope.reproduction import EntryParams, RunContext, parameters


def train_seeds(
    kind: str,
    params: EntryParams,
    training: type[EntryParams],
    others: Mapping[str, Any],
    context: RunContext,
    train: Callable[[int, RunContext], xr.Dataset],
) -> xr.Dataset:
    """Train once per seed, or read what another entry has trained, and join the records along `seed`.

    Args:
        kind: of the networks, as in `RunContext.shared_part`.
        params: of the entry, with `seeds`.
        training: the class of those parameters that the training depends on; an entry's own ones are left out.
        others: what else it depends on, such as a digest of the data.
        context: of the run.
        train: trains with one seed.
    """
    values = {name: value for name, value in asdict(params).items() if name in parameters(training)}
    seeds, runs = values.pop("seeds"), []
    for seed, step in context.steps(seeds):
        step = replace(step, report=step.note(f"seed {seed}"))
        runs.append(step.shared_part(kind, {**values, "seed": seed, **others}, partial(train, seed)))
    return xr.concat(runs, dim="seed", combine_attrs="override").assign_coords(seed=list(seeds))


def report_slow_precision(precision: str, device: str, context: RunContext) -> None:
    """Report that a run in bfloat16 is on a processor without it, and what is faster there."""
    from saddlescope.training.torch_settings import has_bfloat16

    if precision == "bf16" and not has_bfloat16(device):
        context.report(0.0, "this processor has no bfloat16: float32 is ten times as fast, --set precision=float32")
