"""Training steps of one optimiser or several, counted by hooks on the optimisers.

    round       from one counted step to the next: each of the optimisers has stepped at least once
    counted     when the last of the optimisers steps that has not yet stepped in this round

An optimiser that steps several times in a round, such as the critic of a GAN, counts once. Skipped steps (of mixed
precision, or of accumulated gradients under Accelerate) call no hook. The optimisers themselves are not changed.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from saddlescope._shared.errors import InputError

# Classes that pass their steps to the optimiser in their attribute `optimizer`: Accelerate's, Lightning's and Fabric's.
_WRAPPERS = frozenset({"AcceleratedOptimizer", "LightningOptimizer", "_FabricOptimizer"})


class OptimizerSteps:
    """Caller of a function after each training step of some optimisers, until `close`.

    Args:
        optimizers: the optimisers; those of Accelerate and Lightning may wrap them.
        after_step: function to call after each training step.
        stepped: positions of the optimisers that have stepped in a round that is not complete, of a resumed run.

    Raises:
        InputError: no optimiser, one that is given twice, or an object without PyTorch's hooks.
    """

    def __init__(
        self, optimizers: Sequence[Any], after_step: Callable[[], None], *, stepped: Iterable[int] = ()
    ) -> None:
        self.optimizers = tuple(_unwrap(optimizer) for optimizer in optimizers)
        if not self.optimizers:
            raise InputError("optimizers must be one or more; got none.")
        if len({id(optimizer) for optimizer in self.optimizers}) < len(self.optimizers):
            raise InputError("optimizers must differ; got the same one twice. Pass each once.")
        self._after_step = after_step
        self._stepped = {position for position in stepped if position < len(self.optimizers)}
        self._hooks = [
            optimizer.register_step_post_hook(self._hook_of(position))
            for position, optimizer in enumerate(self.optimizers)
        ]

    @property
    def stepped(self) -> tuple[int, ...]:
        """Positions of the optimisers that have stepped in the present round."""
        return tuple(sorted(self._stepped))

    def require_fresh(self) -> None:
        """Raise InputError if an optimiser has made steps already.

        Raises:
            InputError: an optimiser has state of its steps. Adagrad's state before the first step does not count.
        """
        for optimizer in self.optimizers:
            moved = sum(_has_stepped(state) for state in optimizer.state.values())
            if moved:
                raise InputError(
                    f"optimizer must not have made a step yet; got state for {moved} parameters. Build the tracker "
                    "before training starts, load its own state, or call tracker.step() to count updates from here."
                )

    def missing(self, weights: Mapping[str, Tensor]) -> list[str]:
        """Return the names of trainable weights that no optimiser holds, if the optimisers hold any of the others.

        Optimisers that hold none of the weights keep copies of their own, as DeepSpeed's do.
        """
        held = {id(one) for optimizer in self.optimizers for group in optimizer.param_groups for one in group["params"]}
        trainable = {name: weight for name, weight in weights.items() if weight.requires_grad}
        lacking = [name for name, weight in trainable.items() if id(weight) not in held]
        return lacking if len(lacking) < len(trainable) else []

    def close(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _hook_of(self, position: int) -> Callable[..., None]:
        def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            if _within_another_step(optimizer):
                return
            self._stepped.add(position)
            if len(self._stepped) == len(self.optimizers):
                self._stepped.clear()
                self._after_step()

        # A compiled step must compile neither this nor the measurement.
        return cast("Callable[..., None]", torch.compiler.disable(hook))


def _within_another_step(optimizer: torch.optim.Optimizer) -> bool:
    """Return True in a step of the base class that the optimiser's own `step` has called.

    PyTorch wraps the `step` of each class in a function that calls the hooks. The `step` of a class that calls that of
    its base class has its hooks called twice, if the base class was used before: then this function is on the stack
    twice. In a compiled step its code is another object of the same name.
    """
    wrapper = getattr(type(optimizer).step, "__code__", None)
    if wrapper is None:
        return False
    frame, found = sys._getframe(1), 0
    while frame is not None:
        code = frame.f_code
        if (code.co_name, code.co_filename) == (wrapper.co_name, wrapper.co_filename):
            given = frame.f_locals.get("args", ())
            found += bool(given) and given[0] is optimizer
        frame = frame.f_back
    return found > 1


def _unwrap(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimiser whose `step` calls hooks."""
    inner = optimizer
    while any(kind.__name__ in _WRAPPERS for kind in type(inner).__mro__):
        inner = inner.optimizer
    if isinstance(inner, torch.optim.Optimizer) and hasattr(inner, "_optimizer_step_post_hooks"):
        return inner
    raise InputError(
        f"optimizers must be of torch.optim.Optimizer, whose step can be watched; got {type(inner).__name__}. Call "
        "tracker.step() after each of its steps instead."
    )


def _has_stepped(state: Any) -> bool:
    """Return True for the state of a parameter after a step; schedule-free's and Adagrad's exist before the first."""
    if isinstance(state, Mapping) and "step" in state:
        return float(state["step"]) > 0
    return not isinstance(state, Mapping) or any(value is not None for value in state.values())
