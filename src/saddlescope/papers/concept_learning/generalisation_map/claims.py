"""Claims and metrics of the entry `generalisation_map`."""

from functools import partial

from saddlescope.papers.concept_learning.generalisation_map import statistics
from saddlescope.papers.concept_learning.generalisation_map.simulations import LEARNED, MODELS
from saddlescope.reproduction.claim import Claim
from saddlescope.reproduction.metric import Metric

_PILOT = "the bound from pilots on other seeds"
_THEORY = {
    "symmetric": "theory.concepts.concept_stages",
    "trained": "theory.concepts.concept_stages from (U + V^T) / 2 at half the speed",
}
_MODELS = {"symmetric": "Symmetric networks", "trained": "Networks U V, by descent"}


def _model_claims(model: str) -> tuple[Claim, ...]:
    """Return the claims on border, output, times and budget of a model."""
    return (
        Claim(
            name=f"border-{model}",
            says=f"{_MODELS[model]} fail at the stop where the weaker concept's share of the first training loss is "
            "below 4 done, of any scale: share of starts, away from the border",
            source=f"equation 4.1 with the weaker concept at one half; {_PILOT}",
            statistic=partial(statistics.border_share, model=model),
            low=0.99,
        ),
        Claim(
            name=f"output-{model}",
            says=f"{_MODELS[model]} from small starts, strengths apart by a factor of 2: largest error of the output "
            "at the stop, 1 - (done / share)^(1/2)",
            source=f"equation 4.1 with one concept left; {_PILOT}",
            statistic=partial(statistics.output_error, model=model),
            high=0.02,
        ),
        Claim(
            name=f"times-{model}",
            says=f"{_MODELS[model]} from small starts, strengths apart by a factor of 2: largest relative error of the "
            "time when the last concept is learned",
            source=f"{_THEORY[model]}; {_PILOT}",
            statistic=partial(statistics.time_error, model=model),
            high=0.02,
        ),
        Claim(
            name=f"budget-{model}",
            says=f"{_MODELS[model]} generalize within the budget where the predicted last stage is: share of starts, "
            "of any scale",
            source=f"{_THEORY[model]}; {_PILOT}",
            statistic=partial(statistics.budget_share, model=model),
            low=0.99,
        ),
    )


claims = (
    *(claim for model in MODELS for claim in _model_claims(model)),
    Claim(
        name="output-everywhere",
        says="The same of the output of symmetric networks from small starts, with strengths near each other, too: "
        "largest error",
        source="as first posed, before pilots showed that near strengths are learned together",
        statistic=partial(statistics.output_error, model="symmetric", apart=False),
        high=0.02,
    ),
    Claim(
        name="no-scale",
        says="Smaller starts do not generalize better at the stop: share that fails at the smallest scale against that "
        "at the largest, difference",
        source="the border has no tau in it; the bound this project's",
        statistic=statistics.scale_effect,
        high=0.05,
    ),
    Claim(
        name="diversity-helps",
        says="More diversity in both concepts makes fewer fail at the stop: share at the largest sigma less that at "
        "the smallest",
        source="section 3.2, where diversity speeds learning up; here as it makes the shares equal",
        statistic=partial(statistics.diversity_effect, diverse="both"),
        high=0.0,
    ),
    Claim(
        name="diversity-hides",
        says="More diversity in the concept of the stronger signal alone makes more fail: share at the largest sigma "
        "less that at the smallest",
        source="against section 3.2 taken for any diversity: it lowers the other concept's share",
        statistic=partial(statistics.diversity_effect, diverse="strong"),
        low=0.0,
    ),
    Claim(
        name="diversity-overtakes",
        says="Diversity in the concept of the weaker signal helps until it hides the other: share that fails at the "
        "largest sigma less the least of all",
        source="the share falls again once the weaker signal has the larger strength",
        statistic=partial(statistics.diversity_effect, diverse="weak", least=True),
        low=0.1,
    ),
)

metrics = (
    Metric(
        name="failed_at_stop",
        says="share of starts that have not generalized when training stops",
        statistic=lambda run: float(statistics.failed_share(run).mean()),
    ),
    Metric(
        name="failed_in_budget",
        says="share of starts that have not generalized within the budget",
        statistic=lambda run: float((run.at_budget < LEARNED).mean()),
    ),
)
