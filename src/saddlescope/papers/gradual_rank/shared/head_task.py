"""Parameters of the toy task of appendix A, in which one attention head learns a teacher head."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from saddlescope.reproduction import parameter_checks

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


@dataclass(frozen=True, kw_only=True)
class HeadParams:
    """The toy task of appendix A at its own size."""

    seed: int = 1  # of the data, the teacher and the initial weights
    samples: int = 1000  # sequences in the data set
    tokens: int = 10  # tokens in a sequence
    dim: int = 50  # dimension of a token

    def __post_init__(self) -> None:
        parameter_checks.require_at_least(1, self, "samples", "tokens", "dim")
        parameter_checks.require_at_least(0, self, "seed")

    @classmethod
    def paper(cls) -> "HeadParams":
        """The default is already the paper's size."""
        return cls()

    def task(self) -> "AttentionTeacherTask":
        """Return the task that these parameters describe; enable float64 first."""
        from saddlescope.models import attention_teacher_task

        return attention_teacher_task(self.seed, samples=self.samples, tokens=self.tokens, dim=self.dim)
