"""Survey of the tracker's coverage over all model types of the installed Transformers.

Every type of configuration is built as a model with few layers, without memory for its weights. All its attention is
looked for and checked by its own forward pass, as `RankTracker` does. One line of JSON per type
goes to a file, so an interrupted survey resumes.

    python scripts/survey.py [--out build/survey.jsonl] [--part I/N] [--only TYPE ...] [--limit SECONDS]    survey
    python scripts/survey.py --write [FILE ...]                                         write docs/models.json from it
"""

import argparse
import contextlib
import importlib
import json
import logging
import os
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "critical")

import torch
import transformers
from accelerate import init_empty_weights
from torch import nn
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoModel
from transformers.models.auto import modeling_auto

from saddlescope.ranks.attention.attention_blocks import find_attention

LAYERS = 8
"""Layers to build; some types have other attention in every fourth or sixth one."""
_LAYER_COUNTS = re.compile(r"^(num_hidden_layers|n_layers?|num_layers|encoder_layers|decoder_layers|depth|num_blocks|"
                           r"num_encoder_layers|num_decoder_layers|text_num_hidden_layers)$")  # fmt: skip
_EXPERTS = re.compile(r"^(num_(local_|routed_)?experts|n_routed_experts|moe_num_experts)$")
PAGE = Path(__file__).parents[1] / "docs" / "models.json"


def shrink(config: Any) -> None:
    """Reduce the number of layers and the vocabulary, in the parts of a configuration as well."""
    values = vars(config)
    counts = {name: value for name, value in values.items() if _LAYER_COUNTS.match(name) and isinstance(value, int)}
    for name, value in list(values.items()):
        if isinstance(value, transformers.PreTrainedConfig):
            shrink(value)
        elif (name in counts or _EXPERTS.match(name)) and isinstance(value, int) and value > LAYERS:
            setattr(config, name, LAYERS)
        elif name == "vocab_size" and value is None:
            setattr(config, name, 64)
        elif isinstance(value, list) and len(value) > LAYERS and len(value) in counts.values():
            setattr(config, name, value[:LAYERS])


def model_class(kind: str) -> Any:
    """Return the class of models of a type, from any of the automatic mappings."""
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES") and kind in mapping:
            found = mapping[kind]
            return getattr(transformers, found if isinstance(found, str) else found[0])
    config = CONFIG_MAPPING[kind]
    module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    for found in vars(module).values():
        of_models = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
        if of_models and found.config_class is config and not found.__name__.endswith("PreTrainedModel"):
            return found
    raise LookupError("no model class is known for this type")


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Create parameters without memory or values, but buffers (of rotary embeddings) with theirs."""
    with contextlib.ExitStack() as stack:
        for kind in (nn.Linear, nn.Embedding, nn.modules.conv._ConvNd):
            stack.enter_context(mock.patch.object(kind, "reset_parameters", return_value=None))
        stack.enter_context(init_empty_weights(include_buffers=False))
        yield


def build(kind: str) -> nn.Module:
    """Build a model of this type with few layers, else with its default ones."""
    errors = []
    for small in (True, False):
        try:
            config = CONFIG_MAPPING[kind]()
            if small:
                shrink(config)
            with without_weights():
                known = type(config) in MODEL_MAPPING
                return AutoModel.from_config(config) if known else model_class(kind)(config)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}")
    raise LookupError(errors[0])


class TimeIsUp(BaseException):
    """Raised by the alarm; no Exception, which the check of a module would take for a failed call."""


@contextlib.contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raise TimeIsUp in the block after some seconds of processor time."""

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def survey(kind: str, limit: int) -> dict[str, Any]:
    """Return what becomes of the attention of one type; unchecked if its check takes longer than a limit in seconds."""
    try:
        model = build(kind)
    except LookupError as error:
        return {"type": kind, "built": False, "error": str(error)}
    start = time.process_time()
    try:
        with within(limit):
            coverage = find_attention(model).coverage
        rows = Counter((row.kind, row.outcome, row.reason) for row in coverage)
    except TimeIsUp:
        rows = {("all", "unchecked", f"its check was ended after {limit} s of processor time"): 1}
    return {
        "type": kind,
        "built": True,
        "seconds": round(time.process_time() - start, 2),
        "modules": [[*key, count] for key, count in rows.items()],
    }


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """Return all lines of the files, the last of each type."""
    lines = (line for path in paths if path.exists() for line in path.read_text().splitlines())
    return sorted({one["type"]: one for one in map(json.loads, lines)}.values(), key=lambda one: one["type"])


def summary(found: list[dict[str, Any]]) -> dict[str, int]:
    """Count the types by outcome."""
    counts: Counter[str] = Counter()
    for one in found:
        counts[verdict(one)] += 1
    return dict(counts)


def verdict(one: dict[str, Any]) -> str:
    """Return the outcome of a type."""
    if not one["built"]:
        return "not built"
    outcomes = {outcome for _, outcome, _, _ in one["modules"]}
    if not outcomes:
        return "no attention"
    if outcomes == {"verified"}:
        return "verified"
    if "verified" in outcomes:
        return "verified in part"
    return "unchecked" if "unchecked" in outcomes else "refused"


def record(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what docs/models.json holds: what the page of the models shows."""
    counts = summary(found)
    names = ("verified", "verified in part", "unchecked", "refused", "no attention", "not built")
    return {
        "transformers": transformers.__version__,
        "types": {name: counts.get(name, 0) for name in names},
        "verified": [one["type"] for one in found if verdict(one) == "verified"],
        "others": [
            [one["type"], module, outcome, reason]
            for one in found
            for module, outcome, reason, _ in one.get("modules", ())
            if outcome != "verified"
        ],
        "not_built": {one["type"]: one["error"][:120] for one in found if not one["built"]},
    }


def main() -> None:
    """Survey all types, or write what the page of the models shows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/survey.jsonl"))
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--write", nargs="*", type=Path, default=None)
    options = parser.parse_args()
    if options.write is not None:
        found = read(options.write or [options.out])
        PAGE.write_text(json.dumps(record(found), indent=1, ensure_ascii=False) + "\n")
        print(summary(found))
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    part, parts = map(int, options.part.split("/"))
    kinds = options.only if options.only is not None else sorted(CONFIG_MAPPING.keys())[part::parts]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    done = {one["type"] for one in read([options.out])} if options.only is None else set()
    with options.out.open("a") as file:
        for kind in kinds:
            if kind not in done:
                found = survey(kind, options.limit)
                print(kind, verdict(found), file=sys.stderr)
                print(json.dumps(found), file=file, flush=True)
    print(summary(read([options.out])))


if __name__ == "__main__":
    main()
