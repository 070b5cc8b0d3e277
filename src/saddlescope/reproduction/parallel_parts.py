"""Parts of a run that are computed in parallel, in worker processes.

For parts that cannot use more than one processor: small networks in PyTorch, whose threads wait for each other longer
than they work. Parts are cached by `RunContext.cached`, so that a killed run resumes from its finished parts, and each
part from its own checkpoint; the number of processes changes no result.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope._shared.progress import Report
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.process_pool import run_tasks


def run_parallel_parts(
    context: RunContext, parts: Mapping[str, Callable[[RunContext], xr.Dataset]], *, processes: int
) -> list[xr.Dataset]:
    """Return the cached parts of those names, computing absent ones in parallel.

    Args:
        context: of the run; its progress is the mean of that of the parts.
        parts: functions that compute each part, given its own context; with more than one process they are pickled, so
            each must be a function, or an instance of a class, of a module.
        processes: number of worker processes; 1 computes the parts here, one after the other.

    Returns:
        The parts in their order.

    Raises:
        InputError: a part raised it, or its process was killed; finished parts stay cached.
        RuntimeError: a part failed; standard error has its traceback.
    """
    missing = [name for name in parts if not context.has(name)]
    if min(processes, len(missing)) > 1:
        made = partial(_CachedPart, context.scratch, context.data, context.data_sets)
        tasks = {name: made(name, parts[name]) for name in missing}
        _, rest = context.split(len(parts) - len(missing), len(missing))
        run_tasks(tasks, processes=processes, report=rest.report, ended=_ended)
    return [own.cached(name, partial(part, own)) for (name, part), own in context.steps(parts.items())]


@dataclass(frozen=True)
class _CachedPart:
    """Task of a process: one part, cached in the scratch folder of the run."""

    scratch: Path
    data: Path | None
    data_sets: Mapping[str, str]
    name: str
    part: Callable[[RunContext], xr.Dataset]

    def __call__(self, report: Report) -> None:
        context = RunContext(self.scratch, report, self.data, data_sets=self.data_sets)
        context.cached(self.name, partial(self.part, context))


def _ended(name: str, status: int) -> None:
    if status >= 0:
        raise RuntimeError(f"The process of {name} ended with status {status} in the middle of its work.")
    raise InputError(
        f"processes must be few enough for the memory; the process of {name} was killed by signal {-status}. Rerun the "
        "same command to resume, with a smaller processes= to use less memory."
    )
