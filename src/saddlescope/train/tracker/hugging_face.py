"""The tracker inside `transformers.Trainer`: a callback, saved and resumed with the Trainer's own checkpoints.

    trainer = Trainer(model, args, train_dataset=texts, callbacks=[RankTrackerCallback()])

Steps are the Trainer's global steps: one for each step of the optimiser, however many batches were accumulated for it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.train import run_snapshot
from saddlescope.train.tracker.rank_tracker import RankTracker
from saddlescope.train.tracker.scalars import RankScalars
from saddlescope.train.tracker.trainer_hook import AttachedTracker

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise MissingExtraError("saddlescope.train.tracker.hugging_face", "Transformers", "language") from error

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments

FILE = "saddlescope-tracker.pt"  # in each of the Trainer's checkpoint folders


class RankTrackerCallback(TrainerCallback):
    """Tracks the model that a `transformers.Trainer` trains.

    Updates are counted from the weights the model has when training starts. Where a run is resumed
    (`trainer.train(resume_from_checkpoint=...)`) the tracker goes on from the file it left in that checkpoint. With
    DDP the first process alone measures; with sharded weights (FSDP2) all gather and measure.

    Args:
        make: builds the tracker of a model, such as `functools.partial(RankTracker, schedule=Every(100))`.
        scalars: what to log, such as `RankScalars(to_wandb())`; None logs nothing.

    Raises:
        InputError: when training starts, as `RankTracker`; or where a run is resumed from a checkpoint without a
            tracker's file.
    """

    def __init__(
        self, make: Callable[[nn.Module], RankTracker] = RankTracker, *, scalars: RankScalars | None = None
    ) -> None:
        self._attached = AttachedTracker(make, scalars)

    @property
    def tracker(self) -> RankTracker:
        """The tracker of the present run, or of the last one.

        Raises:
            InputError: training has not started, or another process measures.
        """
        return self._attached.tracker

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Copies the initial weights, or takes up those that a resumed run started from."""
        saved = _saved_state(args, state.global_step) if state.global_step else None
        self._attached.start(kwargs["model"], first_process=state.is_world_process_zero, state=saved)

    def on_step_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Counts the step, and measures when it is due, or when it is the last one."""
        self._attached.step()
        if state.global_step >= state.max_steps:
            self._attached.finish()

    def on_save(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Leaves the tracker's state in the checkpoint that the Trainer has just written."""
        saved = self._attached.state_dict()
        if saved is not None and state.is_world_process_zero:
            run_snapshot.write(_folder(args, state.global_step) / FILE, saved)

    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Measures the final weights, where they are those of the last step and not the best ones, loaded again."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint is not None):
            self._attached.finish()


def last_checkpoint(output_dir: Path | str) -> Path | None:
    """The newest checkpoint of the Trainer in `output_dir` that holds a tracker's file, or None.

    The file is the last thing written into a checkpoint, so a folder left half-written by a kill is passed over, which
    `resume_from_checkpoint=True` would take.
    """
    folders = Path(output_dir).glob("checkpoint-*")
    whole = [folder for folder in folders if folder.name.partition("-")[2].isdecimal() and (folder / FILE).is_file()]
    return max(whole, key=lambda folder: int(folder.name.partition("-")[2]), default=None)


def _folder(args: "TrainingArguments", step: int) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{step}"


def _saved_state(args: "TrainingArguments", step: int) -> dict[str, Any]:
    """What a resumed run left, in the output folder or in the checkpoint that the arguments name."""
    folders = [_folder(args, step)]
    if isinstance(args.resume_from_checkpoint, str):
        folders.append(Path(args.resume_from_checkpoint))
    for folder in folders:
        state = run_snapshot.read(folder / FILE)
        if state is not None:
            return state
    raise InputError(
        f"The checkpoint of step {step} must hold the tracker's file {FILE}, since updates are counted from the first "
        f"weights; got none in {' or '.join(map(str, folders))}. It was saved without this callback, or cut short by a "
        "kill: resume from last_checkpoint(output_dir), or start again."
    )
