"""Adapters from adapters: one with other ranks, or the weighted sum of several.

The sum of w_i s_i B_i A_i is decomposed for each module and truncated: there are no cross terms, and ranks may differ.
Updates of other formulas (LoHa, LoKr, full differences) become factors, too.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import require_writable_folder
from saddlescope._shared.progress import Report, silent
from saddlescope.ranks.checkpoints.adapted import KOHYA
from saddlescope.ranks.checkpoints.adapter_files import CONFIG, INNER, AdapterFile
from saddlescope.ranks.checkpoints.files import raise_error
from saddlescope.ranks.lora.adapter import (
    Format,
    LoraFactors,
    refuse_foreign,
    require_format,
    require_type,
    single_precision,
    with_both_projections,
    write_adapter,
)
from saddlescope.ranks.lora.chosen_weights import ChosenWeight, Kind
from saddlescope.ranks.lora.extract import ExtractedLayer, Extraction
from saddlescope.ranks.lora.pipeline_parts import KOHYA_PARTS, part_of_class
from saddlescope.ranks.lora.truncated_svd import TruncatedSVD, Truncation
from saddlescope.ranks.tracker.matrix_selection import parameter_name


@validate_arguments
@torch.no_grad()
def merge_lora(
    adapters: Sequence[str | Path],
    out: str | Path,
    *,
    weights: Sequence[float] | None = None,
    energy: float | None = None,
    rank: int | None = None,
    max_rank: int | None = None,
    format: str | None = None,
    dtype: str | None = None,
    report: Report = silent,
    on_error: Callable[[str], None] = raise_error,
) -> Extraction:
    """Write the weighted sum of the updates of adapters as one adapter, the best one of its ranks.

    Args:
        adapters: files or folders, of one format, with any ranks and scales; a single one gets other ranks.
        out: folder of the new adapter; an earlier one there is replaced.
        weights: w_i, one per adapter; None for 1.
        energy: fraction of the energy of each sum to keep, in (0, 1].
        rank: rank of every module, in place of `energy`; without both, nothing is lost.
        max_rank: with `energy`, the largest rank.
        format: "peft", "diffusers" or "kohya"; None for that of the first adapter.
        dtype: type of the stored numbers, "float32", "float16" or "bfloat16"; None for float32.
        report: called with the finished fraction and a note.
        on_error: called with a sentence on tensors that cannot be used. The default raises.

    Raises:
        InputError: files or numbers that cannot be used, or an adapter that needs its base.
    """
    given = any(one is not None for one in (energy, rank, max_rank))
    cut = Truncation.stated(energy, rank, max_rank) if given else Truncation()
    out, stored_type = Path(out), require_type(dtype)
    refuse_foreign(out)
    require_writable_folder(out)
    opened = open_adapters(adapters)
    if any(out.resolve() in (path := one.stored.path.resolve(), *path.parents) for one in opened):
        raise InputError(f"out must be a folder that holds none of the adapters; got {out}. Name a new one.")
    scales = require_weights(weights, len(opened))
    formats: list[Format] = [_format_of(one) for one in opened]
    form: Format = formats[0] if format is None else require_format(format)
    if odd := next((one.path for one, own in zip(opened, formats, strict=True) if own != formats[0]), None):
        raise InputError(
            f"adapters must have one format; got {opened[0].path} and {odd}. Resize one to --format first."
        )
    for one in opened:
        one.require_own_update()
        one.report(on_error)
    names = list(dict.fromkeys(name for one in opened for name in one.matrices))
    parts = sorted({name.partition(".")[0] for name in names}) if (formats[0], form) == ("diffusers", "peft") else []
    if len(parts) > 1:  # whose modules may have the same names
        raise InputError(
            f"{opened[0].path} must adapt one part of a pipeline, for the format peft; got {', '.join(parts)}. Choose "
            "the format diffusers."
        )
    factors: dict[str, LoraFactors] = {}
    layers = []
    whole = opened[0].other_tensors() if len(opened) == 1 and scales == [1] and formats[0] == form == "peft" else {}
    left_out = [name for one in opened for name in [*one.other_tensors().values(), *one.vectors]]
    grouped: dict[str, list[str]] = {}  # the experts of one parameter have one rank
    for name, weight in {name: one.updates[name].weight for one in opened for name in one.matrices}.items():
        grouped.setdefault(parameter_name(weight), []).append(name)
    for number, (parameter, members) in enumerate(grouped.items()):
        name = members[0]
        report(number / len(grouped), name)
        pairs = [(one, weight) for one, weight in zip(opened, scales, strict=True) if name in one.updates]
        shape, first = _shape(pairs[0][0], name), pairs[0][0].updates[name]
        held = ((one, _shape(one, name), one.updates[name].expert) for one, _ in pairs)
        if other := next((one for one, *sizes in held if sizes != [shape, first.expert]), None):
            raise InputError(f"{other.path} must have the shapes of {opened[0].path}; got others for {name}.")
        svds = [_decomposed(pairs, member) for member in members]
        kept, sides = cut.of(svds)
        size = shape[0], math.prod(shape[1:])
        for member, svd in zip(members, svds, strict=True):
            values = np.pad(svd.values.numpy(), (0, min(size) - len(svd.values)))  # beyond the rank of the product
            layers.append(ExtractedLayer(member, size, values, kept, svd.energy))
        if kept:
            kind: Kind = "experts" if first.expert else "convolution" if len(shape) > 2 else "linear"
            own = ChosenWeight(name, kind, transposed=False, modules=()).factors(
                sides, shape, embedding=first.embedding
            )
            stored_name = _renamed(parameter if first.expert else name, opened[0], formats[0], form)
            factors[stored_name] = single_precision(opened[0].path, name, own, stored_type or torch.float32)
    if not factors:
        paths = " and ".join(dict.fromkeys(str(one.path) for one in opened))
        raise InputError(f"{paths} must change weights by factors; got updates of 0. Leave out what changes nothing.")
    factors = with_both_projections(factors, [name.removesuffix(INNER) for name in names if name.endswith(INNER)])
    config = opened[0].config
    kept_whole = {name: opened[0].stored.read([stored])[stored] for name, stored in whole.items()}
    base, transposed = config.get("base_model_name_or_path"), bool(config.get("fan_in_fan_out"))
    write_adapter(
        out, factors, form=form, base=base, transposed=transposed, task=config.get("task_type"), whole=kept_whole,
        dtype=stored_type,
    )  # fmt: skip
    left_out = [name for name in left_out if name not in whole.values()]
    remarks = [remark for one in opened for remark in one.remarks]
    if len(opened) > 1 and not set.intersection(*(set(one.updates) for one in opened)):
        remarks.append("The adapters have no module in common. Were they trained on one model?")
    report(1.0, "done")
    numbers = sum(tensor.numel() for tensor in kept_whole.values())
    unique = tuple(dict.fromkeys(remarks))
    return Extraction(out, tuple(layers), tuple(left_out), tuple(kept_whole), numbers, unique, form)


def open_adapters(paths: Sequence[str | Path]) -> list[AdapterFile]:
    """Open adapters; raise InputError for anything else."""
    found = []
    for path in paths:
        adapter = AdapterFile.open(path)
        if adapter is None:
            lacks = f" without {CONFIG}" if Path(path).is_dir() and not (Path(path) / CONFIG).is_file() else ""
            raise InputError(f"{path} must be an adapter, a file or a folder; got something else{lacks}.")
        found.append(adapter)
    if not found:
        raise InputError("adapters must be one or more; got none.")
    return found


def require_weights(weights: Sequence[float] | None, count: int) -> list[float]:
    """Return the weights of adapters; raise InputError for others than finite numbers, or zeros alone."""
    found = [1.0] * count if weights is None else [float(one) for one in weights]
    if len(found) != count or not all(torch.tensor(found).isfinite()) or not any(found):
        raise InputError(f"weights must be {count} finite numbers, one per adapter, not all 0; got {weights!r:.80}.")
    return found


def _format_of(adapter: AdapterFile) -> Format:
    """Return the format of an adapter by its settings and the names of its modules."""
    if (adapter.stored.path.parent / CONFIG).is_file() and "lora_parameters" not in adapter.config:
        return "peft"
    if all(KOHYA.match(name) for name in adapter.updates):
        return "kohya"
    if all(name.partition(".")[0] in KOHYA_PARTS for name in adapter.updates):
        return "diffusers"
    return "peft"


def _renamed(name: str, adapter: AdapterFile, old: Format, new: Format) -> str:
    """Return the name of a module in another format."""
    if old == new:
        return name
    if old == "peft":
        kind = (adapter.config.get("auto_mapping") or {}).get("base_model_class")
        part = part_of_class(str(kind))
        if part is None:
            raise InputError(
                f"{adapter.path} must name a class of Diffusers as base_model_class in {CONFIG}, for the format {new}; "
                f"got {kind}. Choose the format peft."
            )
        return f"{part}.{name}"
    if old == "kohya" or name.partition(".")[0] not in KOHYA_PARTS:
        raise InputError(
            f"{adapter.path} must have dots in the names of its modules, for the format {new}; got {name}. Load it by "
            "Diffusers, and save it by save_lora_weights."
        )
    return name.partition(".")[2] if new == "peft" else name


def _shape(adapter: AdapterFile, name: str) -> tuple[int, ...]:
    """Return the shape of an update, without computing products of factors."""
    one = adapter.updates[name]
    if one.factors is None:
        return tuple(adapter.update(name).shape)
    down, up = (adapter.stored.tensors[one.parts[role]].shape for role in one.factors)
    if one.factors[0].endswith("turned"):
        down, up = down[::-1], up[::-1]
    return (down[1], up[0]) if one.embedding else (up[0], *down[1:])


def _decomposed(pairs: Sequence[tuple[AdapterFile, float]], name: str) -> TruncatedSVD:
    """Return the singular value decomposition of the weighted sum of updates."""
    left, right = [], []
    for adapter, weight in pairs:
        found, one = adapter.factors(name), adapter.updates[name]
        if found is None:
            return TruncatedSVD.exactly(sum(w * own.update(name).flatten(1) for own, w in pairs))  # type: ignore[arg-type]
        B, A = (side.double() for side in (found if not one.embedding else (found[1].T, found[0].T)))
        left.append(weight * one.scale * B)
        right.append(A)
    B, A = torch.cat(left, 1), torch.cat(right)
    if not float(B.abs().max()) * float(A.abs().max()) < torch.finfo(torch.float32).max:
        raise InputError(f"{pairs[0][0].path}: {name} must have an update that float32 can hold; got a larger one.")
    return TruncatedSVD.of_product(B, A)
