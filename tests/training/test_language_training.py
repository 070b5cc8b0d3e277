"""Language training: the steps of `transformers.Trainer`, and records of the losses. See test_interrupted_runs, too."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny_language import SIZES, tiny_gpt2, tiny_tokens
from transformers import MixtralConfig, MixtralForCausalLM, Trainer, TrainingArguments

from refusals import refused
from saddlescope.ranks import Every, RankTracker
from saddlescope.ranks.lora import with_adapters
from saddlescope.training.architectures.gpt2 import GPT2Sizes
from saddlescope.training.language_training import LanguageConfig, fit_language

CONFIG = LanguageConfig(steps=11, batch=32, learning_rate=1e-2, test_every=2, threads=1)


@pytest.fixture(scope="module")
def data():
    return tiny_tokens()


@pytest.fixture(scope="module")
def whole(data):
    """Return a tracked run: model, history and records."""
    return fitted(data)


def fitted(data, config=CONFIG):
    model = tiny_gpt2()
    tracker = RankTracker(model, schedule=Every(3))
    return model, fit_language(model, data, config, tracker=tracker), tracker.to_xarray()


def assert_same_weights(one, other):
    for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_the_trainer_of_transformers_makes_the_same_steps(data, tmp_path):
    """Compare three epochs with an incomplete last batch, warm-up and clipping."""
    config = replace(CONFIG, batch=24, warmup_steps=4, clip=0.4, seed=5)
    model, theirs = tiny_gpt2(), tiny_gpt2()
    history = fit_language(model, data, config)
    rows = [{"input_ids": row, "labels": row} for row in torch.from_numpy(data.train).long()]
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch,
        learning_rate=config.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=config.warmup_steps,
        max_grad_norm=config.clip,
        optim="adamw_torch",
        weight_decay=0.0,
        seed=config.seed,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    trainer = Trainer(model=theirs, args=arguments, train_dataset=rows)  # type: ignore[arg-type]
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    means = [np.mean(losses[max(stop - 2, stop - 1 if stop == 11 else 0) : stop]) for stop in (2, 4, 6, 8, 10, 11)]
    np.testing.assert_allclose(history.train_loss[1:], means, rtol=1e-5)
    for one, other in zip(model.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_the_record_is_the_mean_over_every_predicted_token_from_start_to_end(data, whole):
    model, history, _ = whole
    assert history.steps.tolist() == [0, 2, 4, 6, 8, 10, 11]
    assert math.isnan(history.train_loss[0])
    assert np.isfinite(history.train_loss[1:]).all()
    assert history.test_loss[-1] < 0.9 * history.test_loss[0]
    tokens = torch.from_numpy(data.test).long()
    for at, tested in ((0, tiny_gpt2()), (-1, model)):
        log_probability = tested(tokens).logits.double().log_softmax(-1)[:, :-1]
        each = log_probability.gather(2, tokens[:, 1:, None])
        assert history.test_loss[at] == pytest.approx(-each.mean().item(), rel=1e-6)


def test_adapters_alone_are_trained(data):
    model = with_adapters(tiny_gpt2(), {"transformer.h.0.mlp.c_fc": 2, "transformer.h.1.attn.c_attn": 1}, seed=1)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    history = fit_language(model, data, CONFIG)
    moved = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if "lora" in name}
    assert history.test_loss[-1] < history.test_loss[0]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # by PEFT itself
def test_prompts_and_losses_of_a_models_own_are_trained(data):
    peft = pytest.importorskip("peft")
    prompts = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model = peft.get_peft_model(tiny_gpt2(sizes=replace(SIZES, block=20)), prompts)
    history = fit_language(model, data, CONFIG)
    assert history.test_loss[-1] < history.test_loss[0]
    assert all(parameter.grad is None for parameter in model.parameters())
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"vocab_size": 300, "num_key_value_heads": 2, "num_local_experts": 2, "max_position_embeddings": 16}
    losses = []
    for weight in (0.0, 10.0):
        torch.manual_seed(0)
        config = MixtralConfig(**sizes, output_router_logits=True, router_aux_loss_coef=weight)
        losses.append(fit_language(MixtralForCausalLM(config), data, replace(CONFIG, steps=1)))
    assert losses[0].test_loss[0] == losses[1].test_loss[0]
    assert losses[1].train_loss[1] > losses[0].train_loss[1] + 10


def test_tracking_changes_nothing(data, whole):
    model = tiny_gpt2()
    history = fit_language(model, data, CONFIG)
    assert_same_weights(model, whole[0])
    for a, b in zip(vars(history).values(), vars(whole[1]).values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_mode_of_the_model_stays_and_nothing_is_printed(data, capfd):
    model = tiny_gpt2().eval()
    fit_language(model, data, replace(CONFIG, steps=2))
    assert not model.training
    assert capfd.readouterr() == ("", "")


def test_progress_is_reported(data):
    reported = []
    fit_language(tiny_gpt2(), data, CONFIG, report=lambda *report: reported.append(report))
    assert [fraction for fraction, _ in reported] == [step / 11 for step in (2, 4, 6, 8, 10, 11)]
    assert reported[-1][1].startswith("step 11 of 11, training loss ")


def test_steps_in_half_precision_keep_weights_in_single(data, whole):
    model, history, records = fitted(data, replace(CONFIG, precision="bf16"))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert history.test_loss[-1] == pytest.approx(whole[1].test_loss[-1], rel=0.02)
    assert history.test_loss[-1] != whole[1].test_loss[-1]
    assert records.noise_floor.values.max() < 1e-5  # that of float32: what is tracked are the weights


def test_data_that_the_model_cannot_take_are_refused_at_once(data):
    for message, sizes, change in (
        ("batch must be at most the", SIZES, {"batch": 10**4}),
        ("for a model that is not on a GPU; got 'tf32'", SIZES, {"precision": "tf32"}),
        ("model must have at least the 300 tokens of the data; got 299", replace(SIZES, vocabulary=299), {}),
        (
            "model must accept blocks of 16 tokens; got one that accepts 8",
            GPT2Sizes(vocabulary=300, block=8, embedding=8, depth=1, heads=1),
            {},
        ),
    ):
        refused(message, fit_language, tiny_gpt2(sizes=sizes), data, replace(CONFIG, **change))
