"""Command `extract-lora`: an adapter from two checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saddlescope._shared.counted import counted
from saddlescope._shared.errors import InputError
from saddlescope.cli.options import AsJson, Base, Matrices, number, whole_number
from saddlescope.cli.terminal import Faults, on_interrupt, print_json, print_table, print_text, progress, say, unwritten

if TYPE_CHECKING:
    from saddlescope.ranks.lora import Extraction, LogitsError, WeightsError

Energy = Annotated[
    float | None,
    typer.Option(parser=number, metavar="E", help="Share of |W - W0|² that each layer keeps, such as 0.95."),
]
Rank = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="R", help="Rank of every layer, instead of --energy.")
]
MaxRank = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="R", help="With --energy: largest rank of a layer.")
]
Dtype = Annotated[
    str | None, typer.Option(metavar="TYPE", help="Type of the stored numbers: float32, float16 or bfloat16.")
]
_RANKS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def extract_lora(
    base: Base,
    tuned: Annotated[Path, typer.Argument(metavar="TUNED", help="The checkpoint after training.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder of the adapter.")],
    energy: Energy = None,
    rank: Rank = None,
    matrices: Matrices = None,
    max_rank: MaxRank = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="PATTERN", help="Weights that get no adapter; may be repeated.")
    ] = None,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="Adapters also for embeddings of tokens and the output head.")
    ] = False,
    modules_to_save: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help='Modules to store whole, such as "*norm*"; may be repeated.'),
    ] = None,
    convolutions: Annotated[
        bool, typer.Option("--convolutions", help="Adapters also for convolutions (LoCon).")
    ] = False,
    experts: Annotated[bool, typer.Option("--experts", help="Adapters also for the experts of mixtures.")] = False,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help="peft, diffusers or kohya: which programs load it.")
    ] = "peft",
    dtype: Dtype = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Text to compare the logits on; random tokens by default.")
    ] = None,
    logits: Annotated[bool, typer.Option(help="Load the models and compare their logits.")] = True,
    as_json: AsJson = False,
) -> int:
    """Compute the best low-rank adapter (LoRA) from one checkpoint to another, for PEFT, Diffusers or kohya's scripts.

    Exit status 2: a layer could not be used; the adapter of all others is written.
    """
    from saddlescope.ranks.lora import extract_lora as extract
    from saddlescope.ranks.lora import logits_error, weights_error

    faults = Faults()
    with on_interrupt(lambda: unwritten(out)), progress("extract-lora") as report:
        extraction = extract(
            base,
            tuned,
            out,
            energy=energy,
            rank=rank,
            max_rank=max_rank,
            matrices=matrices,
            exclude=exclude or (),
            embeddings=embeddings,
            convolutions=convolutions,
            experts=experts,
            modules_to_save=modules_to_save or (),
            format=form,
            dtype=dtype,
            report=report,
            on_error=faults.add,
        )
    for remark in extraction.remarks:
        say(remark)
    if extraction.left_out:
        some = ", ".join(extraction.left_out[:3]) + (" and others" if len(extraction.left_out) > 3 else "")
        changed = counted(len(extraction.left_out), "changed tensor")
        verb = "is" if len(extraction.left_out) == 1 else "are"
        say(
            f"{changed} {verb} not in the adapter, such as {some}. Options that add some are --embeddings, "
            "--convolutions, --experts and --modules-to-save PATTERN."
        )
    error = weights = None
    if logits:
        try:
            if extraction.format == "peft":
                error = logits_error(base, tuned, out, text=data)
            else:
                weights = weights_error(base, tuned, extraction.adapter, format=extraction.format)
        except InputError as reason:
            faults.add(f"The {'logits' if extraction.format == 'peft' else 'weights'} were not compared: {reason}")
    if as_json:
        print_json(record(extraction, error, weights) | {"faults": faults})
    else:
        print_extraction(extraction, error, weights)
    return faults.status


def print_extraction(
    extraction: "Extraction", error: "LogitsError | None" = None, weights: "WeightsError | None" = None
) -> None:
    """Print the layers of an adapter, what other ranks would keep, its error, and where it is stored."""
    from saddlescope.reproduction.formatting import number as rounded

    layers = [(one.name, one.rank, min(one.shape), rounded(one.captured_energy(), 4)) for one in extraction.layers]
    print_table(("layer", "rank", "of", "energy kept"), layers)
    rows = [
        (rank, rounded(kept, 4), rounded(least, 4), f"{parameters:,}")
        for rank, (kept, least, parameters) in _by_rank(extraction).items()
    ]
    print_table(("rank", "energy kept", "least of a layer", "parameters"), rows, title="One rank for all layers")
    print_text(
        f"This adapter keeps {rounded(extraction.captured_energy, 4)} of the energy"
        f" with {extraction.parameters:,} parameters."
    )
    if (excess := max(layer.excess for layer in extraction.layers)) > 0:
        print_text(
            "Large layers were decomposed at random: each error is at most "
            f"{rounded(excess, 2)} |W - W0| above that of the best adapter."
        )
    if error is not None:
        print_text(
            f"Logits on {counted(error.tokens, 'token')}: error {rounded(error.relative, 3)} of that of the base; "
            f"divergence {rounded(error.divergence, 3)} nats (base {rounded(error.base_divergence, 3)}); same "
            f"likeliest token at {error.agreement:.1%} (base {error.base_agreement:.1%})."
        )
    how = ""
    if error is not None:
        how = f"; load it with peft.PeftModel.from_pretrained(model, '{extraction.folder}')"
        if extraction.vocabulary is not None:
            how += f" after model.resize_token_embeddings({extraction.vocabulary})"
    if weights is not None:
        by = "loaded by Diffusers" if weights.loaded else "read again"
        print_text(f"Weights with the adapter, {by}: error {rounded(weights.relative, 3)} of that of the base.")
        if weights.loaded:
            how = f"; load it with pipe.load_lora_weights('{extraction.adapter}')"
    print_text(f"Stored in {extraction.adapter}{how}.")


def _by_rank(extraction: "Extraction") -> dict[int, tuple[float, float, int]]:
    """Return the energy kept by one rank for all layers, up to the first rank that keeps all of it."""
    full = max(min(layer.shape) for layer in extraction.layers)
    known = min(
        (len(layer.values) for layer in extraction.layers if len(layer.values) < min(layer.shape)), default=full
    )
    found = {}
    for rank in (*(r for r in _RANKS if r < known), known):
        found[rank] = extraction.at_rank(rank)
        if found[rank][1] > 1 - 1e-6:
            break
    return found


def record(
    extraction: "Extraction", error: "LogitsError | None" = None, weights: "WeightsError | None" = None
) -> dict[str, object]:
    """Return the same for JSON."""
    return {
        "stored": str(extraction.adapter),
        "captured_energy": extraction.captured_energy,
        "parameters": extraction.parameters,
        "layers": [
            {
                "layer": one.name,
                "rank": one.rank,
                "captured_energy": one.captured_energy(),
                "excess_error": one.excess,
            }
            for one in extraction.layers
        ],
        "ranks": [
            {"rank": rank, "captured_energy": kept, "least": least, "parameters": parameters}
            for rank, (kept, least, parameters) in _by_rank(extraction).items()
        ],
        "left_out": list(extraction.left_out),
        "whole": list(extraction.whole),
        "logits": None if error is None else vars(error),
        "weights": None if weights is None else vars(weights),
    }
