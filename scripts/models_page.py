"""The page of the model types that the tracker reads, made from docs/models.json, which `make survey` writes."""

from typing import Any

_INTRO = """All {number} model types of Transformers {version}, built with few layers and without weights by
`scripts/survey.py`. Each kind of attention module is called once on random inputs; *verified* means that both products
of every head agree with that call. *Unchecked* modules are tracked, but could not be called alone: check them by
`tracker.check(model, inputs)`. *Refused* and *skipped* modules are not tracked, and a warning names them."""


def models_page(surveyed: dict[str, Any]) -> str:
    """Return the page."""
    counts = surveyed["types"]
    intro = _INTRO.format(number=sum(counts.values()), version=surveyed["transformers"])
    lines = ["# Models that the tracker reads", "", intro, "", "| outcome | types |", "|---|---|"]
    lines += [f"| {name} | {number} |" for name, number in counts.items()]
    lines += ["", f"**Verified** in all attention: {', '.join(surveyed['verified'])}.", ""]
    lines += ["## Attention that is unchecked, refused or skipped", ""]
    lines += ["| type | module | outcome | reason |", "|---|---|---|---|"]
    for kind, module, outcome, reason in surveyed["others"]:
        safe = reason.replace("|", "\\|").replace("<", "&lt;")
        lines.append(f"| {kind} | `{module}` | {outcome} | {safe} |")
    lines += ["", "## Not built", ""]
    lines += ["These types have no model of their own, or need a package that is not installed.", ""]
    lines += [f"- {kind}: {error}" for kind, error in surveyed["not_built"].items()]
    return "\n".join(lines) + "\n"
