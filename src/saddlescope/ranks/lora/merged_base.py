"""A base with the updates of adapters: W + sum_i w_i (W_i - W), where W_i is the weight with adapter i alone.

Sums are computed in float64 and rounded once, to the type of the base, in whose precision small updates can vanish.
"""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope._shared.progress import Report, silent
from saddlescope._shared.reprs import ReprMixin
from saddlescope.ranks.checkpoints.adapted import adapted
from saddlescope.ranks.checkpoints.adapter_files import CONFIG
from saddlescope.ranks.checkpoints.files import SHARD, Checkpoint, raise_error, require_finite
from saddlescope.ranks.checkpoints.opened_model import open_model
from saddlescope.ranks.checkpoints.transformers_model import LoadedCheckpoint
from saddlescope.ranks.lora.adapter import require_type, written_folder
from saddlescope.ranks.lora.merge import open_adapters, require_weights

_COPIED = ("*.json", "*.txt", "*.model", "*.jinja")  # settings and tokenizers beside weights
_NOT_COPIED = ("*.index.json", CONFIG, "trainer_state.json", "*_results.json")  # of adapters, and of Trainer


@dataclass(frozen=True, eq=False, repr=False)
class MergedBase(ReprMixin):
    """Result of `merge_into_base`.

    Attributes:
        folder: folder of the weights.
        rounding: largest |stored - exact|_F / |update|_F of a weight: the share of an update that rounding takes.
        changed: names of the changed weights.
        remarks: sentences on the base and the adapters.
    """

    folder: Path
    rounding: float
    changed: tuple[str, ...]
    remarks: tuple[str, ...] = ()


@validate_arguments
@torch.no_grad()
def merge_into_base(
    base: str | Path,
    adapters: Sequence[str | Path],
    out: str | Path,
    *,
    weights: Sequence[float] | None = None,
    dtype: str | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> MergedBase:
    """Write a base with the weighted sum of the updates of adapters, in the files of the base, one in memory at a time.

    Args:
        base: the checkpoint that the adapters were trained on; see `saddlescope.ranks.checkpoints.checkpoint_spectra`.
        adapters: files or folders of adapters, of any method that changes weights.
        out: new folder.
        weights: w_i, one per adapter; None for 1.
        dtype: type of the changed weights, "float32", "float16" or "bfloat16"; None for that of the base.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on parts of an adapter that cannot be used. The default raises.

    Raises:
        InputError: files or numbers that cannot be used, such as a quantized base, or adapters that do not fit the
            base.
    """
    from safetensors.torch import save_file

    stored_type, out = require_type(dtype), Path(out)
    require_writable_folder(out)
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} must be a new folder; got one with files. Name another with --out.")
    found = open_adapters(adapters)
    scales = require_weights(weights, len(found))
    model = open_model(Checkpoint.open(base, on_error=on_error), 1, on_error)
    parts = [adapted(model.base, one, model.model, on_error) for one in found]
    changed = {name for part in parts for name in part.tensors if name not in part.frozen}
    raw, stored = model.base, {name: name for name in changed}
    if isinstance(raw, LoadedCheckpoint):
        stored, raw = raw.stored_names(changed), raw.origin or raw
    if scaled := next((name for name, one in raw.tensors.items() if one.scale is not None), None):
        raise InputError(
            f"{raw.path} must hold weights without scales; got quantized ones, such as {scaled}. Dequantize the model "
            "first, by the program that wrote it."
        )
    merged = {theirs: own for own, theirs in stored.items()}
    names: dict[Path, list[str]] = {}
    for name, one in raw.tensors.items():
        names.setdefault(one.file, []).append(name)
    rounding, index = 0.0, {}
    with written_folder(out) as new:
        for number, (file, held) in enumerate(names.items()):
            report(number / len(names), file.name)
            tensors = raw.read(held)
            for name in held:
                if name in merged:
                    require_finite(raw.path, name, tensors[name])
                    exact, update = _summed(tensors[name], merged[name], parts, scales)
                    tensors[name] = exact.to(stored_type or tensors[name].dtype)
                    if not bool(tensors[name].isfinite().all()):
                        raise InputError(f"{name} with its update must be finite in its type. Choose another dtype.")
                    error = float((tensors[name].double() - exact).norm())
                    rounding = max(rounding, error / (float(update.norm()) or 1.0))
            written = re.sub(r"^pytorch_model", "model", file.stem) + ".safetensors"
            contents = {raw.tensors[name].name: one.clone().contiguous() for name, one in tensors.items()}
            save_file(contents, new / written, metadata={"format": "pt"})
            index |= dict.fromkeys(contents, written)
        if len(names) > 1:
            shard = SHARD.fullmatch(next(iter(index.values())))
            stem = "model" if shard is None else shard["name"]
            content: dict[str, Any] = {"metadata": {}, "weight_map": index}
            (new / f"{stem}.safetensors.index.json").write_text(json.dumps(content, indent=2), encoding="utf-8")
        beside = next(iter(names)).parent if Path(base).is_dir() else None
        for file in [file for pattern in _COPIED if beside for file in beside.glob(pattern)]:
            if not any(fnmatchcase(file.name, pattern) for pattern in _NOT_COPIED):
                shutil.copyfile(file, new / file.name)
    remarks = (*model.base.remarks, *model.remarks, *(remark for one in found for remark in one.remarks))
    return MergedBase(out, rounding, tuple(sorted(changed)), tuple(dict.fromkeys(remarks)))


def _summed(weight: Tensor, name: str, parts: Sequence[Checkpoint], scales: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return a weight with updates, and their sum."""
    update = torch.zeros_like(weight, dtype=torch.float64)
    for part, scale in zip(parts, scales, strict=True):
        if name not in part.frozen:
            update += scale * (part.read([name])[name] - weight.double())
    return weight.double() + update, update
