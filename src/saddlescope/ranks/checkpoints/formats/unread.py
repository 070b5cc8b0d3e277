"""Formats that are recognised and not read, each with the line that converts it; and shards that are not a model."""

import re
from pathlib import Path

from saddlescope._shared.errors import InputError

_RANK = re.compile(r"(?:^|[-_.])(?:rank|mp_rank|tp_rank|tp|mp)[-_](\d+)(?=[-_.]|$)")


def require_known(source: Path) -> None:
    """Raise InputError for a file or folder in a format that needs a conversion, or for one process's part of a model.

    Raises:
        InputError: with the line that converts it, or the folder to pass instead.
    """
    sentence = _of_folder(source) if source.is_dir() else _of_file(source)
    if sentence:
        raise InputError(sentence)


def _of_folder(folder: Path) -> str:
    tags = [folder, *(child for child in sorted(folder.iterdir()) if child.is_dir())]
    shard = next((file for tag in tags for file in tag.glob("*zero_pp_rank_*_states.pt")), None)
    if shard is not None or (folder / "zero_to_fp32.py").is_file():
        root = folder if shard is None or shard.parent != folder else folder.parent
        return (
            f"{folder} is a checkpoint of DeepSpeed ZeRO, whose parts are not matrices. Convert it: "
            f"python {root / 'zero_to_fp32.py'} {root} {root / 'whole'} --safe_serialization"
        )
    if any(folder.glob("model_world_size_*_rank_*.pt")):
        return (
            f"{folder} has one part of the model per process of FSDP. Join them with verl: python -m verl.model_merger "
            f"merge --backend fsdp --local_dir {folder} --target_dir joined"
        )
    ranks = sorted(tag.name for tag in tags if _RANK.search(tag.name))
    if len(ranks) > 1:
        root = folder.parent if (folder.parent / "latest_checkpointed_iteration.txt").is_file() else folder
        return (
            f"{folder} has one part of the model per process: {', '.join(ranks[:3])}. Join them with Megatron-LM: "
            f"python tools/checkpoint/convert.py --model-type GPT --loader core --saver core --load-dir {root} "
            "--save-dir joined --target-tensor-parallel-size 1 --target-pipeline-parallel-size 1"
        )
    if any(folder.glob("*.index")) and any(folder.glob("*.data-*-of-*")):
        return (
            f"{folder} is a checkpoint of TensorFlow. Convert it: np.savez('new.npz', **{{name: tf.train.load_variable("
            f"{str(folder)!r}, name) for name, _ in tf.train.list_variables({str(folder)!r})}})"
        )
    if (folder / "_METADATA").is_file() or (folder / "_CHECKPOINT_METADATA").is_file():
        return (
            f"{folder} is a checkpoint of Orbax (JAX). Restore it, and store its arrays by name: "
            "np.savez('new.npz', **arrays)"
        )
    return ""


def _of_file(file: Path) -> str:
    try:
        with file.open("rb") as stored:
            start = stored.read(8)
    except OSError:
        return ""
    if file.suffix == ".distcp":
        return f"{file} is one part of a checkpoint of torch.distributed. Pass its folder {file.parent}."
    if re.search(r"zero_pp_rank_\d+|_optim_states\.pt$", file.name):
        return f"{file} is one part of a checkpoint of DeepSpeed ZeRO. " + _of_folder(file.parent).partition(". ")[2]
    if start.startswith(b"GGUF"):
        return (
            f"{file} is GGUF, mostly quantised. Use the model's safetensors, or convert it: AutoModelForCausalLM."
            f"from_pretrained({str(file.parent)!r}, gguf_file={file.name!r}).save_pretrained('new')"
        )
    if start == b"\x89HDF\r\n\x1a\n" or file.suffix == ".keras":
        load = f"{str(file)!r}), or where it holds weights alone by model.load_weights({str(file)!r}"
        return (
            f"{file} is of Keras. Load its model by keras.models.load_model({load}). Then convert it: "
            "np.savez('new.npz', **{w.path: w.numpy() for w in model.weights})"
        )
    for place in (file.name, file.parent.name):
        if (found := _RANK.search(place)) is not None:
            around = file.parent if place == file.name else file.parent.parent
            beside = place[: found.start(1)], place[found.end(1) :]
            others = sorted(
                one.name
                for one in around.iterdir()
                if one.name != place and one.name.startswith(beside[0]) and one.name.endswith(beside[1])
                and one.name[len(beside[0]) : len(one.name) - len(beside[1])].isdecimal()
            )  # fmt: skip
            if others:
                return f"{file} is the part of one process; {others[0]} has another. " + (
                    _of_folder(around).partition(". ")[2] or f"Join them, or pass the folder {around}."
                )
    return ""
