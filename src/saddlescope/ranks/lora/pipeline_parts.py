"""Parts of pipelines of image and video models, by their names in Diffusers and in kohya's scripts."""

import re
from dataclasses import dataclass

from saddlescope._shared.errors import InputError
from saddlescope.ranks.checkpoints.adapted import INSIDE
from saddlescope.ranks.checkpoints.files import Checkpoint

KOHYA_PARTS = {  # by the names of parts in Diffusers
    "unet": "lora_unet",
    "prior": "lora_prior_unet",
    "transformer": "lora_transformer",
    "text_encoder": "lora_te",
    "text_encoder_2": "lora_te2",
}
_CLASSES = {
    r"UNet.*": "unet",
    r".*Prior.*": "prior",
    r".*Transformer\w*Model": "transformer",
    r"CLIPTextModel": "text_encoder",
    r"CLIPTextModelWithProjection": "text_encoder_2",
}
_OF_KOHYA = r".*\b(attentions|resnets|downsamplers|upsamplers)\..*"  # weights of a UNet that kohya's scripts adapt
_OF_CLIP = r"(text_model\.)?encoder\..*"  # Transformers 5 has no text_model in memory; files of adapters do


@dataclass(frozen=True)
class PipelinePart:
    """Part of a pipeline.

    Attributes:
        name: its name in Diffusers.
        weights: pattern of the names of weights that the format can hold.
        prefix: of the names of its modules in the checkpoint, where they have one.
        inside: prefix of the names in the adapter, in place of it.
    """

    name: str
    weights: str = ".*"
    prefix: str = ""
    inside: str = ""

    def holds(self, weight: str) -> bool:
        """Return True for a weight that the format can hold."""
        return re.fullmatch(self.weights, weight) is not None

    def module(self, own: str) -> str:
        """Return the name of a module after that of its part."""
        return f"{self.name}.{self.inside}{own.removeprefix(self.prefix)}"


def part_of_class(kind: str) -> str | None:
    """Return the part of a pipeline that a class of Diffusers or Transformers is; None for others."""
    return next((part for pattern, part in _CLASSES.items() if re.fullmatch(pattern, kind)), None)


def pipeline_part(checkpoint: Checkpoint, form: str) -> PipelinePart:
    """Return the part of a pipeline that a checkpoint holds.

    Raises:
        InputError: it holds another model.
    """
    stated = checkpoint.config.get("_class_name") or next(iter(checkpoint.config.get("architectures") or [""]))
    folder = next(iter(checkpoint.tensors.values())).file.parent.name
    part = folder if folder in KOHYA_PARTS and stated else part_of_class(str(stated))
    if part is not None and str(stated).startswith("CLIPText"):
        return PipelinePart(part, _OF_CLIP, "text_model.", "text_model.")
    if part is not None:
        return PipelinePart(part, _OF_KOHYA if (part, form) == ("unet", "kohya") else ".*")
    if form == "kohya" and not stated:  # names of its authors, which ComfyUI and kohya's scripts use, too
        inside = any(name.startswith(INSIDE) for name in checkpoint.tensors)
        return PipelinePart("unet", re.escape(INSIDE) + ".*" if inside else ".*", INSIDE)
    raise InputError(
        f"{checkpoint.path} must be a part of a pipeline, such as a folder unet or transformer of Diffusers, for the "
        f"format {form}; got {stated or 'no class in a config.json'}. Choose the format peft."
    )
