"""Logs of others: each format is read as what it is, and what is no log is refused in one sentence."""

import json
from pathlib import Path

import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.cli import main
from saddlescope.measure import find_plateaus
from saddlescope.store.loss_logs import read_loss

LOSSES = [3.0, 2.5, 2.0, 1.5, 1.0, 0.5]
RECORDS = [{"step": 10 * k, "loss": loss, "lr": 0.1} for k, loss in enumerate(LOSSES)]
KERAS = "epoch,accuracy,learning_rate,loss,val_loss\n" + "".join(f"{k},0.1,0.1,{x},9\n" for k, x in enumerate(LOSSES))
LIGHTNING = "epoch,step,train_loss,val_loss\n" + "".join(f"{k},{k},{x},\n{k},{k},,7\n" for k, x in enumerate(LOSSES))
WANDB = '"Step","a - loss","a - loss__MIN","b - loss"\n' + "".join(
    f'"{k}","{x}","{x}",""\n' for k, x in enumerate(LOSSES)
)
METRICS = {
    name: {"steps": [10 * k for k in range(6)], "timestamps": ["2024-01-01"] * 6, "values": values}
    for name, values in {"training.accuracy": [0.1] * 6, "training.loss": LOSSES}.items()
}
SERIES = {"accuracy": [0.1] * 6, "loss": LOSSES}
FORMATS = {
    "keras": KERAS,
    "semicolons": KERAS.replace(",", ";"),
    "lightning": LIGHTNING,
    "wandb": WANDB,
    "list of records": json.dumps(RECORDS),
    "indented": json.dumps(RECORDS, indent=2),
    "JSON lines": "\n".join(map(json.dumps, RECORDS)),
    "trainer_state.json": json.dumps({"epoch": 1.0, "log_history": [*RECORDS, {"train_runtime": 3.0, "step": 50}]}),
    "history": json.dumps({"loss": LOSSES, "val_loss": LOSSES}),
    "list": json.dumps(LOSSES),
    "pairs": "\n".join(f"step {k} loss {x}" for k, x in enumerate(LOSSES)),
    "colons": "\n".join(f"iter {k}: loss {x}, time 3.5ms, mfu 1.0%" for k, x in enumerate(LOSSES)),
    "equals": "\n".join(f"17:41:0{k} INFO epoch=0 i={k}/530 total_loss={x}" for k, x in enumerate(LOSSES)),
    "fairseq": "\n".join(
        f'[2000-01-01 17:41:22,153][train] - {{"loss": "{x}", "num_updates": "{k}"}}' for k, x in enumerate(LOSSES)
    ),
    "tqdm": "\r".join(f" 5%|▌ | {k}/1000 [00:10<03:10, 5.0it/s, loss={x}]" for k, x in enumerate(LOSSES)),
    "Epoch [1/6]": "\n".join(f"Epoch [{k}/6], Loss: {x}" for k, x in enumerate(LOSSES)),
    "columns of numbers": "\n".join(f"{x}" for x in LOSSES),
    "DeepXDE": "# step, loss_train, loss_test, metrics_test\n"
    + "".join(f"{k} {x / 2} {x / 2} 1 1\n" for k, x in enumerate(LOSSES)),
    "Sacred": json.dumps(METRICS),
    "ClearML": json.dumps({name: {"train": {"name": "train", "x": [*range(6)], "y": y}} for name, y in SERIES.items()}),
    "MLflow": "".join(f"{1700000000000 + 97 * k} {x} {10 * k}\n" for k, x in enumerate(LOSSES)),
    "Lightning, steps and epochs": "epoch,step,train_loss_epoch,train_loss_step,val_loss\n" + "".join(
        f"0,{k},,{x},\n" for k, x in enumerate(LOSSES)) + "0,5,2.0,,\n0,5,,,9\n",
}  # fmt: skip
PRINTED = {  # 2 epochs of 3: epoch e, iteration i in it, iteration k, loss x, time t; a line of held-out losses
    "torchtitan": ("[titan] - INFO - \x1b[31mstep: {k:2}  \x1b[32mloss: {x:8.4f}  \x1b[34mtps: 7,{k}23\x1b[39m",
                   "[titan] - INFO - \x1b[33mvalidate step: {k:2}  \x1b[32mloss:  9.0"),
    "timm": ("Train: {e} [{i:>4d}/3 ({i:>3}%)]  Loss: {x:#.3g} (1.0)  LR: 1e-3", "Test: [   0/78]  Loss:  9.0 (9.0)"),
    "Swin": ("Train: [{e}/300][{i}/3]\teta 0:10:00 lr 1e-3\tloss {x:.4f} (1.0)", "Test: [0/98]\tLoss 9.0 (9.0)"),
    "ImageNet": ("Epoch: [{e}][ {i}/3]\tTime  0.{t}1 ( 0.1)\tLoss {x:.4e} (1.0)", "Test: [ 0/9]\tLoss 9.0e+00 (9.0)"),
    "mmengine": ("2024/10/01 10:00:00 - INFO - Epoch(train)  [{e}][   {i}/3]  lr: 1e-2  loss: {x:.4f}",
                 "10/01 10:00:00 - INFO - Epoch(val) [{e}][10/30]  loss: 9.0"),
    "mmengine, iterations": ("10/01 10:00:00 - INFO - Iter(train) [   {k}/6]  lr: 1e-2  loss: {x:.4f}", ""),
    "Megatron": (" iteration {k:8d}/     600 | time per iteration (ms): 81{t}.3 | lm loss: {x:.6E} | loss scale: 1.0 |",
                 " validation loss at iteration 2 | lm loss value: 9.0E+00 | lm loss PPL: 9.0E+01 |"),
    "word language model": ("| epoch {e:3d} | {i:5d}/    3 batches | ms/batch 1{t}.15 | loss {x:5.2f} | ppl 9.0", ""),
    "Ignite": ("Epoch[{e}] Iteration[{i}/3] Loss: {x:.2f}", ""),
    "fairseq": ("| INFO | train_inner | epoch 00{e}:      {i} / 3 loss={x}, num_updates={k}, lr=0.1",
                "| INFO | valid | epoch 00{e} | valid on 'valid' subset | loss 9.0 | num_updates {k}"),
    "Keras": ("Epoch {k}/6\n\x1b[1m9/9\x1b[0m \x1b[32m━━━\x1b[0m 5ms/step - loss: {x} - val_loss: 9.0", ""),
    "DLLogger": ('DLLL {{"type": "LOG", "step": [{e}, {i}], "data": {{"train_loss": {x}}}}}', ""),
    "XGBoost": ("[{k}]\ttrain-logloss:{x:.5f}\teval-logloss:9.0", ""),
    "LightGBM": ("[{k}]\ttraining's binary_logloss: {x}\tvalid_1's binary_logloss: 9.0", ""),
    "Marian": ("[2024-01-01 10:00:00] Ep. {e} : Up. {k} : Sen. 1,280 : Cost {x:.5f} : Time 2{t}.4s", ""),
    "rich": ("\x1b[2K\x1b[1AEpoch {e}/1 ━━━ {i}/3 0:00:01 • 0:00:06 train_loss_step: {x} train_loss_epoch: 9.0", ""),
}  # fmt: skip


def written(tmp_path, text, name="log"):
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize("name", FORMATS)
def test_formats(tmp_path, name):
    log = read_loss(written(tmp_path, FORMATS[name]))
    assert log.losses.tolist() == LOSSES
    assert np.all(np.diff(log.steps) > 0)
    assert len(log.steps) == len(LOSSES)
    assert log.step_column != "record" or name in ("history", "list", "columns of numbers"), log


@pytest.mark.parametrize("name", PRINTED)
def test_lines_as_programs_print_them(tmp_path, name):
    line, held_out = PRINTED[name]
    lines = [
        part.format(e=k // 3, i=k % 3, k=k, x=x, t=3 * k % 7)
        for k, x in enumerate(LOSSES)
        for part in (line, held_out if k % 3 == 2 else "")
    ]
    log = read_loss(written(tmp_path, ("" if name == "rich" else "\n").join(lines)))
    assert (log.losses.tolist(), log.steps.tolist()) == (LOSSES, [0, 1, 2, 3, 4, 5]), log
    assert log.step_column != "record"


@pytest.mark.parametrize(
    ("head", "row"),
    [
        ("", lambda k, x: f"step {k:,} loss {x}"),
        ("", lambda k, x: f"17:41:22,153 step {k:_} loss {x}"),
        ("", lambda k, x: f"[{k:,}/5,000] loss: {x}"),
        ("", lambda k, x: f"step {k} loss {f'{x:.3f}'.replace('.', ',')} in 12.5s, lr=1e-3,128, shape (2,3)"),
        ("step,loss\n", lambda k, x: f'"{k:,}",{x}'),
        ("step;loss\n", lambda k, x: f"{k};{x}".replace(".", ",")),
        ("step\tloss\n", lambda k, x: f"{k:,}\t{x}"),
    ],
)
def test_groups_of_digits_and_decimal_commas(tmp_path, head, row):
    log = read_loss(written(tmp_path, head + "\n".join(row(1000 * k, x) for k, x in enumerate(LOSSES))))
    np.testing.assert_array_equal(log.losses, LOSSES)
    np.testing.assert_array_equal(log.steps, 1000 * np.arange(6))


@pytest.mark.parametrize(("head", "row"), [("", "step {} loss {}"), ("step;loss\n", "{};{}")])
@pytest.mark.parametrize("losses", [["0,1", "0,2", "0,3", "1,234.5"], [f"3,{900 - k}" for k in range(9)]])
def test_commas_of_both_kinds_or_of_either_are_refused(tmp_path, head, row, losses):
    file = written(tmp_path, head + "\n".join(row.format(k, x) for k, x in enumerate(losses)))
    with pytest.raises(InputError, match=f"Numbers of loss must be clear; got {losses[0]}"):
        read_loss(file)


def test_columns_are_chosen_by_name_and_listed(tmp_path):
    log = read_loss(written(tmp_path, LIGHTNING))
    assert (log.column, log.step_column, log.others) == ("train_loss", "step", ("val_loss",))
    assert read_loss(written(tmp_path, KERAS), "val_loss").losses.tolist() == [9.0] * 6
    assert read_loss(written(tmp_path, KERAS)).rates.tolist() == [0.1] * 6
    with pytest.raises(InputError, match=r"no column 'test'.*Pass one of 'epoch'"):
        read_loss(written(tmp_path, KERAS), "test")
    with pytest.raises(InputError, match="no column named as a loss"):
        read_loss(written(tmp_path, "a,b\n1,2\n3,4\n"))


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("".join(f"{k} {x} 9.1 0.1 2024-01-01 10:00:0{k} {k}\n" for k, x in enumerate(LOSSES)), "column 2"),  # of RWKV
        (json.dumps([[1.7e9 + k / 3, k, x] for k, x in enumerate(LOSSES)]), "column 3"),  # from TensorBoard's page
    ],
)
def test_columns_without_names_have_their_steps(tmp_path, text, column):
    log = read_loss(written(tmp_path, text), column)
    assert (log.losses.tolist(), log.steps.tolist()) == (LOSSES, [0, 1, 2, 3, 4, 5])


def test_two_columns_of_one_name_and_a_loss_that_ends_early_are_said(tmp_path):
    rows = "".join(f"{k},{1.5 * k},{2 * k if k < 30 else 'nan'}\n" for k in range(60))
    log = read_loss(written(tmp_path, "step,loss,loss\n" + rows))
    assert (log.losses[-1], log.others, log.remarks) == (88.5, ("loss (column 3)",), ())
    log = read_loss(written(tmp_path, "step,loss,loss\n" + rows), "loss (column 3)")
    assert (len(log.losses), log.remarks[0][:40]) == (30, "The last 30 rows have no number for loss")


def test_restarts_resumes_and_epochs(tmp_path):
    def log(*steps):
        lines = (f"step {step} loss {k}" for k, step in enumerate(steps))
        return read_loss(written(tmp_path, "\n".join(lines)))

    again = log(0, 1, 2, *range(50))
    assert again.losses.tolist() == list(range(3, 53))
    assert "2 runs" in again.remarks[0]
    resumed = log(*range(50), *range(40, 60))
    assert resumed.steps.tolist() == list(range(60))
    assert resumed.losses[40] == 50
    lines = (f"epoch={k // 5} i={k % 5}/5 loss={k}" for k in range(20))
    assert read_loss(written(tmp_path, "\n".join(lines))).steps.tolist() == list(range(20))


def test_event_files(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for run in ("one", "two"):
        with SummaryWriter(str(tmp_path / "runs" / run)) as writer:
            for step, loss in enumerate(LOSSES):
                writer.add_scalar("train/loss", loss, step)
                writer.add_scalar("lr", 0.1, step)
    log = read_loss(tmp_path / "runs" / "one")
    assert (log.column, log.losses.tolist(), log.steps.tolist()) == ("train/loss", LOSSES, [0, 1, 2, 3, 4, 5])
    both = read_loss(tmp_path / "runs")
    assert (both.column, both.others) == ("one/train/loss", ("two/train/loss",))
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="no event files"):
        read_loss(tmp_path / "none")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (bytes(range(256)) * 40, "is binary"),
        (b"once upon a time there was no number\nand none here\n", "no pairs of name and number"),
        (b"step,loss\n1,2.0\n", "at least"),
        (b"step,loss\n" + b"1,nan\n" * 20, "no finite value of 'loss'"),
        (b"[" * 100_000, "no pairs"),
        (b'{"loss": ' * 5000 + b"1" + b"}" * 5000, "no pairs"),
        (b"=" * 100_000, "no pairs"),
        (b"a" * 100_000 + b" loss", "no pairs"),
        (b"step,loss\n1,__import__('os').abort()\n", "no "),
        (b"9" * 5000, "no |at least"),
    ],
)
def test_what_is_no_log_is_one_sentence(tmp_path, capsys, content, says):
    file = written(tmp_path, content, "metrics.csv")
    assert main(["stages", str(file), "--json"]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert any(part in error for part in says.split("|")), error


def test_the_command_prints_and_draws(tmp_path, capsys, monkeypatch):
    t = np.arange(400)
    losses = 2.0 - 1.5 / (1 + np.exp(-(t - 200) / 5))
    rates = np.where(t < 195, 0.1, 0.01)
    rows = "".join(f"{k},{loss},{rate}\n" for k, loss, rate in zip(t, losses, rates, strict=True))
    file = written(tmp_path, "step,loss,lr\n" + rows, "metrics.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["stages", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "loss by step, 400 records" in shown
    assert "at a change of the learning rate, at step 195" in shown
    assert (tmp_path / "stages.png").read_bytes()[:4] == b"\x89PNG"
    for content in ("mine", (tmp_path / "stages.png").read_bytes()):  # only a picture is replaced
        written(tmp_path, content, "stages.png")
        assert main(["stages", str(file)]) == 2 * (content == "mine")
    assert "stages.png has content of another kind" in capsys.readouterr().err
    (tmp_path / "stages.png").unlink()
    assert main(["stages", str(file), "--out", "new/stages.svg"]) == 0
    assert (tmp_path / "new" / "stages.svg").read_text()[:5] == "<?xml"
    for other in ("stages", "metrics.csv"):
        assert main(["stages", str(file), "--out", other]) == 2
        assert "must be a picture, .png, .svg, .pdf" in capsys.readouterr().err
    assert main(["stages", str(file), "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert parts["drops"][0]["step"] == pytest.approx(200, abs=2)
    assert parts["drops"][0]["learning_rate_change"] == 195
    assert not (tmp_path / "stages.png").exists()


@pytest.mark.parametrize(
    ("name", "column", "count"),
    [("deep_linear.csv", None, 4), ("grokking.jsonl", "test_loss", 1), ("language.log", None, 1)],
)
def test_real_logs_have_their_drops(name, column, count):
    log = read_loss(Path(__file__).parents[2] / "docs" / "loss-logs" / name, column)
    assert len(find_plateaus(log.losses, steps=log.steps).drops) == count
