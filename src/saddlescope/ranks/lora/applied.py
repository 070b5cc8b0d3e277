"""Check of a written adapter: weights of the base with it, as Diffusers loads them, against those after training."""

import importlib
import importlib.util
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saddlescope._shared.arguments import validate_arguments
from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.adapted import adapted
from saddlescope.ranks.checkpoints.adapter_files import AdapterFile
from saddlescope.ranks.checkpoints.files import Checkpoint, raise_error, read_json
from saddlescope.ranks.checkpoints.formats.tensor_file import first_line
from saddlescope.ranks.checkpoints.opened_model import open_model
from saddlescope.ranks.checkpoints.tensor_matching import match_tensors
from saddlescope.ranks.checkpoints.transformers_model import at_most, offline, without_downloads
from saddlescope.ranks.lora.adapter import Format
from saddlescope.ranks.lora.pipeline_parts import pipeline_part


@dataclass(frozen=True)
class WeightsError:
    """Difference of the adapted weights from those after training.

    Attributes:
        relative: |with adapter - tuned|_F / |base - tuned|_F over all adapted weights: sqrt(1 - energy) for the best
            adapter.
        loaded: True if Diffusers has loaded the adapter, False if it was read by saddlescope alone.
    """

    relative: float
    loaded: bool


@validate_arguments
@torch.no_grad()
def weights_error(base: Path, tuned: Path, adapter: Path, *, format: Format) -> WeightsError:
    """Compare weights of the base with an adapter and those after training.

    Args:
        base: the checkpoint at the start.
        tuned: the checkpoint after training.
        adapter: the adapter.
        format: its format.

    Raises:
        InputError: files that cannot be read, or an adapter that Diffusers does not load.
    """
    opened = open_model(Checkpoint.open(base), 1, raise_error)
    file = AdapterFile.open(adapter)
    if file is None:
        raise InputError(f"{adapter} must be an adapter; got something else.")
    own = adapted(opened.base, file, opened.model, raise_error)
    match = match_tensors(opened.base, opened.named(Checkpoint.open(tuned)), (), raise_error)
    fused = None if format == "peft" else _in_diffusers(base, opened.base, adapter, format)
    missed = whole = 0.0
    for name in own.tensors:
        if name not in own.frozen and name in match.names:
            after = match.checkpoint.read([match.names[name]])[match.names[name]].double()
            if fused is not None and name not in fused:
                raise InputError(f"{adapter} must fit the model of Diffusers; got one without {name} for {base}.")
            found = own.read([name])[name] if fused is None else fused[name].double()
            missed += float((found - after).norm()) ** 2
            whole += float((opened.base.read([name])[name].double() - after).norm()) ** 2
    return WeightsError((missed / whole) ** 0.5 if whole else 0.0, fused is not None)


def _in_diffusers(folder: Path, base: Checkpoint, adapter: Path, form: Format) -> Mapping[str, Tensor] | None:
    """Return the weights of a model of Diffusers with an adapter fused by it; None if it cannot build the model."""
    if importlib.util.find_spec("diffusers") is None:
        return None
    diffusers: Any = importlib.import_module("diffusers")  # optional, and its names are imported on request
    kind: Any = getattr(diffusers, str(base.config.get("_class_name")), None)
    part = pipeline_part(base, form).name
    built = isinstance(kind, type) and issubclass(kind, diffusers.ModelMixin) and folder.is_dir()
    if not built or (form == "kohya" and part != "unet"):
        return None
    place, file = next(iter(base.tensors.values())).file.parent, {"weight_name": adapter.name}
    try:
        with warnings.catch_warnings(), offline():
            warnings.simplefilter("ignore")
            config = without_downloads(read_json(place / "config.json"))
            with torch.device("meta"), at_most(4 * len(base.tensors) + 1000):
                empty = kind.from_config(config)
            stored = sum(math.prod(one.shape) for one in base.tensors.values())
            if sum(one.numel() for one in empty.parameters()) > 2 * stored:  # all of which would take memory
                raise InputError(f"{place / 'config.json'} states more parameters than the files hold")
            model: Any = kind.from_pretrained(place, torch_dtype=torch.float32, local_files_only=True)
            if form == "kohya":
                pipeline = diffusers.StableDiffusionXLPipeline
                state, alphas = pipeline.lora_state_dict(str(adapter.parent), **file)
                pipeline.load_lora_into_unet(state, network_alphas=alphas, unet=model)
            else:
                model.load_lora_adapter(str(adapter.parent), prefix=part, **file)
            model.fuse_lora(safe_fusing=True)
            model.unload_lora()
    except Exception as error:  # of Diffusers or PEFT, of any kind
        raise InputError(f"{adapter} must be one that Diffusers loads; got an error: {first_line(error)}.") from error
    return model.state_dict()
