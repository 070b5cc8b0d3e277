"""Parameters of the toy task of appendix A, in which one attention head learns a teacher head."""

from typing import TYPE_CHECKING

from saddlescope.reproduction import EntryParams, param

if TYPE_CHECKING:
    from saddlescope.models import AttentionTeacherTask


class HeadSizes(EntryParams):
    """The toy task of appendix A at the paper's size."""

    samples: int = param(1000, "sequences in the data set", ge=1)
    tokens: int = param(10, "tokens in a sequence", ge=1)
    dim: int = param(50, "dimension of a token", ge=1)

    def task_of(self, seed: int) -> "AttentionTeacherTask":
        """Return the task of a seed; enable float64 first."""
        from saddlescope.models import attention_teacher_task

        return attention_teacher_task(seed, samples=self.samples, tokens=self.tokens, dim=self.dim)


class HeadParams(HeadSizes):
    """The toy task of appendix A at the paper's size, from one seed."""

    seed: int = param(1, "seed of the data, the teacher and the initial weights", ge=0)

    def task(self) -> "AttentionTeacherTask":
        """Return the task of these parameters; enable float64 first."""
        return self.task_of(self.seed)
