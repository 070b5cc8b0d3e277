"""Metrics of trained transformers, for maps over their parameters: of images and of language."""

from saddlescope.reproduction.metric import Metric

_STABLE_RANK = Metric(
    name="stable_rank",
    quantity="stable rank of the updates in the end, mean over measurable heads",
    statistic=lambda run: float(run.stable_rank.where(run.measurable).isel(step=-1).mean()),
)

image_metrics = (
    _STABLE_RANK,
    Metric(
        name="train_loss", quantity="training loss of the last epoch, mean over seeds",
        statistic=lambda run: float(run.train_loss.isel(epoch=-1).mean()), scale="log",
    ),
    Metric(
        name="accuracy", quantity="final test accuracy, mean over seeds",
        statistic=lambda run: float(run.test_accuracy.isel(tested=-1).mean()),
    ),
)  # fmt: skip

language_metrics = (
    _STABLE_RANK,
    Metric(
        name="train_loss", quantity="final training loss, mean over seeds",
        statistic=lambda run: float(run.train_loss.isel(test_step=-1).mean()), unit="nats",
    ),
    Metric(
        name="test_loss", quantity="final test loss, mean over seeds",
        statistic=lambda run: float(run.test_loss.isel(test_step=-1).mean()), unit="nats",
    ),
)  # fmt: skip
