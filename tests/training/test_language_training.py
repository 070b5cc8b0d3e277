"""Language training: losses, and resumption to the last bit after any interruption."""

import math
import random
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.tiny_language import SIZES, tiny_gpt2, tiny_tokens
from transformers.utils import logging as messages

from saddlescope._shared.errors import InputError
from saddlescope.ranks import Every, RankTracker
from saddlescope.ranks.lora import with_adapters
from saddlescope.ranks.tracker.hugging_face import RankTrackerCallback
from saddlescope.training import language_training
from saddlescope.training.architectures.gpt2 import GPT2Sizes
from saddlescope.training.language_training import IDENTITY_FILE, LanguageConfig, fit_language, mean_loss

CONFIG = LanguageConfig(steps=11, batch=32, learning_rate=1e-2, test_every=2, tests_per_checkpoint=1, threads=1)


@pytest.fixture(scope="module")
def data():
    return tiny_tokens()


@pytest.fixture(scope="module")
def whole(data):
    """Return an uninterrupted run, tracked."""
    return fitted(data)


def fitted(data, folder=None, config=CONFIG, model=None):
    model = tiny_gpt2() if model is None else model
    tracker = RankTrackerCallback(partial(RankTracker, schedule=Every(3)))
    history = fit_language(model, data, config, tracker=tracker, checkpoint=folder)
    return model, history, tracker.tracker.to_xarray()


def assert_same(one, other):
    for a, b in zip(one[0].state_dict().values(), other[0].state_dict().values(), strict=True):
        assert torch.equal(a, b)
    for a, b in zip(vars(one[1]).values(), vars(other[1]).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert one[2].identical(other[2])


def killed_at(monkeypatch, step, *arguments):
    """Run until a kill in the given step."""
    first = language_training._RunCallback.on_step_end

    def die(self, args, state, control, **kwargs):
        first(self, args, state, control, **kwargs)
        if state.global_step == step:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(language_training._RunCallback, "on_step_end", die)
        with pytest.raises(KeyboardInterrupt):
            fitted(*arguments)


def test_a_plain_loop_makes_the_same_steps(data):
    """Compare with a reference loop: one batch holds all blocks, so their order does not matter."""
    steps = 5
    config = LanguageConfig(
        steps=steps, batch=len(data.train), learning_rate=0.02, warmup_steps=2, clip=0.5, test_every=1
    )
    model, twin = tiny_gpt2(), tiny_gpt2()
    history = fit_language(model, data, config)

    tokens = torch.from_numpy(data.train).long()
    optimizer = torch.optim.Adam(twin.parameters(), lr=1.0)
    losses = []
    for rate in (0.0, 0.01, 0.02, 0.02 * 2 / 3, 0.02 / 3):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        logits = twin(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(twin.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(history.train_loss[1:], losses, rtol=1e-4)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=2e-4)


def test_the_record_is_of_the_whole_test_text_from_start_to_end(data, whole):
    model, history, _ = whole
    assert history.steps.tolist() == [0, 2, 4, 6, 8, 10, 11]
    assert math.isnan(history.train_loss[0])
    assert np.isfinite(history.train_loss[1:]).all()
    assert history.test_loss[0] == pytest.approx(mean_loss(tiny_gpt2(), data.test), rel=1e-6)
    assert history.test_loss[-1] == pytest.approx(mean_loss(model, data.test), rel=1e-6)
    assert history.test_loss[-1] < 0.9 * history.test_loss[0]


def test_the_mean_loss_is_that_of_every_predicted_token(data):
    model = tiny_gpt2(seed=2).train()
    tokens = torch.from_numpy(data.test).long()
    log_probability = model(tokens).logits.double().log_softmax(-1)
    each = [-log_probability[b, t, tokens[b, t + 1]].item() for b in range(len(tokens)) for t in range(SIZES.block - 1)]
    assert mean_loss(model, data.test) == pytest.approx(sum(each) / len(each), rel=1e-6)
    assert model.training


@pytest.mark.parametrize("step", [1, 6, 11])
def test_a_killed_run_goes_on_to_the_same_result(data, whole, tmp_path, monkeypatch, step):
    killed_at(monkeypatch, step, data, tmp_path)
    assert_same(fitted(data, tmp_path), whole)
    assert_same(fitted(data, tmp_path), whole)  # a finished run


def test_a_checkpoint_cut_short_is_passed_over(data, whole, tmp_path, monkeypatch):
    killed_at(monkeypatch, 9, data, tmp_path)
    torn = tmp_path / "checkpoint-8"
    (torn / IDENTITY_FILE).unlink()
    (torn / "model.safetensors").write_bytes(b"")
    assert_same(fitted(data, tmp_path), whole)


def test_a_checkpoint_of_another_run_is_refused(data, tmp_path, monkeypatch):
    killed_at(monkeypatch, 5, data, tmp_path)
    with pytest.raises(InputError, match="differs in configuration"):
        fitted(data, tmp_path, replace(CONFIG, learning_rate=1e-3))
    with pytest.raises(InputError, match="differs in initial weights"):
        fitted(data, tmp_path, CONFIG, tiny_gpt2(seed=1))
    with pytest.raises(InputError, match="differs in data"):
        fitted(replace(data, train=data.train[::-1].copy()), tmp_path)
    shutil.copy(tmp_path / "checkpoint-4" / "model.safetensors", tmp_path / "checkpoint-4" / IDENTITY_FILE)
    with pytest.raises(InputError, match="damaged"):
        fitted(data, tmp_path)


def test_how_often_checkpoints_are_written_changes_nothing(data, whole, tmp_path, monkeypatch):
    killed_at(monkeypatch, 9, data, tmp_path, replace(CONFIG, tests_per_checkpoint=3))
    assert [folder.name for folder in tmp_path.iterdir() if folder.is_dir()] == ["checkpoint-6"]
    assert_same(fitted(data, tmp_path), whole)


def test_adapters_are_resumed_too(data, tmp_path, monkeypatch):
    def adapted():
        return with_adapters(tiny_gpt2(), {"transformer.h.0.mlp.c_fc": 2, "transformer.h.1.attn.c_attn": 1}, seed=1)

    def fit(model, folder=None):
        history = fit_language(model, data, CONFIG, checkpoint=folder)
        return {name: weight for name, weight in model.state_dict().items() if "lora" in name}, history

    once, history = fit(adapted())
    first = language_training._RunCallback.on_log
    with monkeypatch.context() as patch:

        def die(self, args, state, control, **kwargs):
            first(self, args, state, control, **kwargs)
            if state.global_step == 8:
                raise KeyboardInterrupt

        patch.setattr(language_training._RunCallback, "on_log", die)
        with pytest.raises(KeyboardInterrupt):
            fit(adapted(), tmp_path)
    again, resumed = fit(adapted(), tmp_path)
    assert all(torch.equal(once[name], again[name]) for name in once)
    np.testing.assert_array_equal(resumed.test_loss, history.test_loss)


def test_tracking_changes_nothing(data, whole):
    model = tiny_gpt2()
    history = fit_language(model, data, CONFIG)
    assert_same((model, history, whole[2]), whole)


def states():
    """Return the states of all random number generators."""
    numpys = np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    return random.getstate(), numpys, torch.get_rng_state().tolist()


def test_the_caller_s_surroundings_stay_as_they_were(data, capfd, types_unchecked):
    model = tiny_gpt2().eval()
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    messages.set_verbosity_info()
    try:
        before = states()
        threads = torch.get_num_threads()
        with types_unchecked():  # the checker draws from Python's random numbers
            fit_language(model, data, replace(CONFIG, steps=2))
        after = states()
        assert after == before
        assert torch.get_num_threads() == threads
        assert messages.get_verbosity() == messages.INFO  # pyright: ignore[reportPrivateImportUsage]
        assert messages.is_progress_bar_enabled()
        assert not model.training
    finally:
        messages.set_verbosity_warning()
    assert capfd.readouterr() == ("", "")


def test_progress_is_reported(data):
    reported = []
    fit_language(tiny_gpt2(), data, CONFIG, report=lambda *report: reported.append(report))
    assert [fraction for fraction, _ in reported] == [step / 11 for step in (2, 4, 6, 8, 10, 11)]
    assert reported[-1][1].startswith("step 11 of 11, training loss ")


def test_a_loss_that_is_not_finite_ends_the_run(data):
    model = tiny_gpt2()
    with torch.no_grad():
        model.transformer.wte.weight[3] = math.inf
    with pytest.raises(InputError, match="learning_rate must be small enough"):
        fit_language(model, data, CONFIG)


def test_steps_in_half_precision_keep_weights_in_single(data, whole):
    model, history, records = fitted(data, config=replace(CONFIG, precision="bf16"))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert history.test_loss[-1] == pytest.approx(whole[1].test_loss[-1], rel=0.02)
    assert history.test_loss[-1] != whole[1].test_loss[-1]
    assert records.noise_floor.values.max() < 1e-5  # that of float32: what is tracked are the weights
    again = fitted(data, config=replace(CONFIG, precision="bf16"))
    assert_same(again, (model, history, records))


def test_data_that_the_model_cannot_take_are_refused_at_once(data):
    with pytest.raises(InputError, match="batch must be at most the"):
        fit_language(tiny_gpt2(), data, replace(CONFIG, batch=10**4))
    with pytest.raises(InputError, match="without a GPU; got 'tf32'"):
        fit_language(tiny_gpt2(), data, replace(CONFIG, precision="tf32"))
    with pytest.raises(InputError, match="model must have at least the 300 tokens of the data; got 299"):
        fit_language(tiny_gpt2(sizes=replace(SIZES, vocabulary=299)), data, CONFIG)
    with pytest.raises(InputError, match="model must accept blocks of 16 tokens; got one that accepts 8"):
        fit_language(tiny_gpt2(sizes=GPT2Sizes(vocabulary=300, block=8, embedding=8, depth=1, heads=1)), data, CONFIG)
    with pytest.raises(InputError, match="warmup_steps must be at least 0 and at most 11; got 12"):
        replace(CONFIG, warmup_steps=12)
