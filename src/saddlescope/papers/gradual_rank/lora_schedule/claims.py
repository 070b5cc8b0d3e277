"""The claims of the entry on LoRA schedules, with their bounds and sources."""

from saddlescope.papers.gradual_rank.lora_schedule.statistics import (
    LARGE,
    SMALL,
    at_budget,
    budget_used,
    early_agreement,
    fall_of_loss,
    rank_gain,
    schedule_gain,
    schedule_ratio,
)
from saddlescope.reproduction.claim import Claim


def _claims_at(budget: int, name: str, source: str) -> tuple[Claim, ...]:
    return (
        Claim(
            name=f"early-tells-{name}",
            says=f"Early spectra tell the late ones, {name} budget: share of parameters that the schedule places as "
            "hindsight does, minus that of the constant rank",
            source=f"Sections 1.1 and 6, the connection to LoRA; above 0 is this project's reading{source}",
            statistic=at_budget(budget, early_agreement),
            low=0.0,
        ),
        Claim(
            name=f"better-{name}",
            says=f"The schedule beats the constant rank at equal parameters and steps, {name} budget: how much further "
            "its test loss falls",
            source=f"this project's question; above 0{source}",
            statistic=at_budget(budget, schedule_gain),
            low=0.0,
            unit="nats",
        ),
        Claim(
            name=f"worth-it-{name}",
            says=f"It is worth the trouble, {name} budget: fall of the test loss over that of the constant rank",
            source=f"this project's bar: 5 % more{source}",
            statistic=at_budget(budget, schedule_ratio),
            low=1.05,
        ),
    )


claims = (
    Claim(
        name="task-is-learnt",
        says="LoRA learns the task: fall of the test loss with the large constant rank",
        source="needed for the comparison to mean something",
        statistic=at_budget(LARGE, lambda run: fall_of_loss(run, "constant")),
        low=0.1,
        unit="nats",
    ),
    Claim(
        name="rank-matters",
        says="Rank matters here: fall of the test loss with the large constant rank over that with the small one",
        source="needed for ranks to be worth allotting; a pilot on seed 1000 had 1.33",
        statistic=rank_gain,
        low=1.1,
    ),
    Claim(
        name="equal-parameters",
        says="Both LoRAs have as many parameters: the schedule's over the constant's",
        source="the comparison's own rule; ranks are whole, so that a little may be left over",
        statistic=budget_used,
        low=0.95,
        high=1.0,
    ),
    *_claims_at(LARGE, "large", ""),
    *_claims_at(
        SMALL, "small", "; posed after a pilot on seed 1000, in which rank hardly mattered at the large budget"
    ),
)
