"""Parts of a run that are made side by side, in processes of their own.

For parts that keep one processor busy whatever they are given: small networks in PyTorch, whose threads wait for each
other longer than they work. A part is made as `RunContext.kept` makes it, so that a killed run goes on with what is
finished, and each part with its own checkpoint; the number of processes changes no result.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.reproduction.context import RunContext
from saddlescope.reproduction.process_pool import (
    Report,
    TaskDone,
    TaskEnded,
    TaskFailed,
    TaskProgress,
    TaskRefused,
    run_parallel,
)


def run_parallel_parts(
    context: RunContext, parts: Mapping[str, Callable[[RunContext], xr.Dataset]], *, processes: int
) -> list[xr.Dataset]:
    """The parts of the run of those names: what a killed run has finished already, else what the callables make.

    Args:
        context: of the run; its progress is the mean of that of the parts.
        parts: what makes each, given a context of its own; with more than one process it is pickled, so it must be a
            function of a module, or an instance of its class.
        processes: how many parts are made at a time; 1 makes them here, one after the other.

    Returns:
        The parts in their order.

    Raises:
        InputError: what a part raised, or its process was killed; finished parts stay.
        RuntimeError: a part failed; standard error has its traceback.
    """
    missing = [name for name in parts if not context.has(name)]
    if min(processes, len(missing)) > 1:
        _make(context, parts, missing, processes)
    share = 1 / len(parts)
    here = [context.subtask(k * share, (k + 1) * share) for k in range(len(parts))]
    return [
        context.cached(name, partial(part, own)) for (name, part), own in zip(parts.items(), here, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True)
class _Kept:
    """The task of a process: one part, kept in the scratch folder of the run."""

    name: str
    part: Callable[[RunContext], xr.Dataset]
    scratch: Path
    data: Path | None

    def __call__(self, report: Report) -> None:
        context = RunContext(self.scratch, report, self.data)
        context.cached(self.name, partial(self.part, context))


def _make(
    context: RunContext,
    parts: Mapping[str, Callable[[RunContext], xr.Dataset]],
    missing: list[str],
    processes: int,
) -> None:
    fractions = {name: float(name not in missing) for name in parts}
    tasks = {name: _Kept(name, parts[name], context.scratch, context.data) for name in missing}
    with closing(run_parallel(tasks, processes=processes)) as happened:
        for news in happened:
            match news:
                case TaskProgress(name, fraction, note):
                    fractions[name] = fraction
                    context.report(sum(fractions.values()) / len(fractions), note)
                case TaskDone(name):
                    fractions[name] = 1.0
                case TaskRefused(_, sentence):
                    raise InputError(sentence)
                case TaskFailed(name, error):
                    raise RuntimeError(f"The part {name} failed, {error}; its traceback stands above.")
                case TaskEnded(name, status) if status < 0:
                    raise InputError(
                        f"processes must be few enough for the memory there is; the one of {name} was killed by signal "
                        f"{-status}. The same command goes on; a smaller processes= takes less memory."
                    )
                case TaskEnded(name, status):
                    raise RuntimeError(f"The process of {name} ended with status {status} in the middle of its work.")
