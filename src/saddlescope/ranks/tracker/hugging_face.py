"""Tracker callback for `transformers.Trainer`, saved and resumed with the Trainer's own checkpoints.

    trainer = Trainer(model, args, train_dataset=texts, callbacks=[RankTrackerCallback()])

Steps are the Trainer's global steps: one per step of the optimiser, however many batches are accumulated for it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from saddlescope._shared.errors import InputError, MissingExtraError
from saddlescope.ranks.state_files import read_state, write_state
from saddlescope.ranks.tracker.loggers import PREFIX, WriteScalars
from saddlescope.ranks.tracker.trainer_hook import TrackerHook

with MissingExtraError.named("saddlescope.ranks.tracker.hugging_face"):
    from transformers import TrainerCallback

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

TRACKER_FILE = "saddlescope-tracker.pt"  # in each of the Trainer's checkpoint folders


class RankTrackerCallback(TrackerHook, TrainerCallback):
    """Tracker of the model that a `transformers.Trainer` trains.

    Updates are counted from the weights at the start of training. A resumed run
    (`trainer.train(resume_from_checkpoint=...)`) restores the tracker from its file in that checkpoint. With DDP only
    the first process measures; with sharded weights (FSDP2) all gather and measure.

    Args:
        make_tracker: builds the tracker of a model, such as `functools.partial(RankTracker, schedule=Every(100))`.
        scalars: what to log, such as `RankScalars(to_trainer(trainer))`; None logs nothing.

    Raises:
        InputError: when training starts, as `RankTracker`; or if the checkpoint of a resumed run has no tracker file.
    """

    def on_train_begin(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Copy the initial weights, or restore those of a resumed run."""
        saved, folder = _saved_state(args, state.global_step) if state.global_step else (None, None)
        self.start(kwargs["model"], first_process=state.is_world_process_zero, state=saved, folder=folder)

    def on_step_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Count the step; measure when it is due, and after the last one."""
        self.step()
        if state.global_step >= state.max_steps:
            self.finish()

    def on_save(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Add the tracker's state to the checkpoint; the initial weights go to the output folder once."""
        saved = self.tracker_state(Path(str(args.output_dir)) if state.is_world_process_zero else None)
        if saved is not None and state.is_world_process_zero:
            write_state(_folder(args, state.global_step) / TRACKER_FILE, saved)

    def on_train_end(
        self, args: "TrainingArguments", state: "TrainerState", control: "TrainerControl", **kwargs: Any
    ) -> None:
        """Measure the final weights, unless the Trainer has loaded the best ones in their place."""
        if not (args.load_best_model_at_end and state.best_model_checkpoint is not None):
            self.finish()


def to_trainer(trainer: "Trainer") -> WriteScalars:
    """Return a function that logs by `trainer.log`, under `saddlescope/`: to all that its `report_to` names.

        trainer.add_callback(RankTrackerCallback(scalars=RankScalars(to_trainer(trainer))))

    The scalars are also in `trainer.state.log_history`. The Trainer's own logs are as they are without them.
    """

    def write(scalars: dict[str, float], step: int) -> None:
        due = trainer.control.should_log
        trainer.log({PREFIX + name: value for name, value in scalars.items()})
        trainer.control.should_log = due  # `log` takes it for done, though the losses of this step may still be due

    return write


def last_checkpoint(output_dir: Path | str) -> Path | None:
    """Return the newest checkpoint of the Trainer in `output_dir` that holds a tracker's file, or None.

    The file is the last one written to a checkpoint, so this skips a folder left incomplete by a kill, which
    `resume_from_checkpoint=True` would take.
    """
    folders = Path(output_dir).glob("checkpoint-*")
    complete = [
        folder for folder in folders if folder.name.partition("-")[2].isdecimal() and (folder / TRACKER_FILE).is_file()
    ]
    return max(complete, key=lambda folder: int(folder.name.partition("-")[2]), default=None)


def _folder(args: "TrainingArguments", step: int) -> Path:
    return Path(str(args.output_dir)) / f"checkpoint-{step}"


def _saved_state(args: "TrainingArguments", step: int) -> tuple[dict[str, Any], Path]:
    """Return the tracker's state from the output folder, or from the checkpoint that the arguments name.

    Returns:
        The state, and the folder with the file of the initial weights.
    """
    folders = [_folder(args, step)]
    if isinstance(args.resume_from_checkpoint, str):
        folders.append(Path(args.resume_from_checkpoint))
    for folder in folders:
        state = read_state(folder / TRACKER_FILE)
        if state is not None:
            return state, folder.parent
    raise InputError(
        f"The checkpoint of step {step} must hold the tracker's file {TRACKER_FILE}, since updates are counted from "
        f"the first weights; got none in {' or '.join(map(str, folders))}. It was saved without this callback, or is "
        "incomplete after a kill: resume from last_checkpoint(output_dir), or start again."
    )
