"""Parameters that do not go together are refused at once, in one sentence."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.extensions.digits import digit_tokens
from saddlescope.reproduction import RunContext, find_entry


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("beyond/linear-networks", {"singular_values": "4,3,2,1"}, "singular_values must be at most 3"),
        ("beyond/escape-time", {"small": "6"}, "small must be at most the largest depth"),
        ("beyond/convolution", {"width": "3"}, "singular_values must be at most 3"),
        ("beyond/modular-addition", {"modulus": "5"}, "coefficients must hold at most 2 values"),
        ("concept-learning/figure-3", {"high": "2"}, "high must be above low = 2"),
        ("concept-learning/figure-3", {"depths": "2,3"}, "depths must contain depth = 4"),
        ("concept-learning/figure-5", {"sigma": "0.1,0.1,0.1"}, "sigma must be 2 numbers, one for each mu"),
        ("concept-learning/figure-6", {"first_record": "6000"}, "first_record must be below steps=6000"),
        ("concept-learning/figure-7", {"dim": "3"}, "dim must be at least 4, one for each of mu"),
        ("concept-learning/figure-10", {"mu": "3,1,2"}, "mu must be in ascending order"),
        ("concept-learning/figure-10", {"horizon": "500"}, "horizon must be below until"),
        ("concept-learning/order-flip", {"mu": "1.9,2"}, "mu must be two numbers, the first below"),
        ("concept-learning/order-flip", {"mu": "1,2,3"}, "mu must be two numbers, the first below"),
        ("deep-relu/example-1", {"samples": "4,6"}, "samples must contain 8"),
        ("deep-relu/theorem-3-1", {"circles": "4"}, "circles must contain 8"),
        ("deep-relu/escape-width", {"depths": "4,5"}, "depths must begin with 3, whose optimum is certified"),
        ("deep-relu/deep-linear", {"deviations": "0.1"}, "deviations must be 2 numbers, one per depth"),
        ("deep-relu/deep-linear", {"strengths": "1,1,1,1,1,1,1,1,1"}, "strengths must be 1 to 5"),
        ("deep-relu/conjecture-3", {"strengths": "1,1,1,1,1,1,1"}, "strengths must be"),
        ("deep-relu/conjecture-4", {"rates": "0.1"}, "rates must be 2 positive numbers, one per depth"),
        ("softmax-attention/lemma-4-1", {"dims": "8"}, "samples, tokens and dims must be as many"),
        ("softmax-attention/lemma-a-1", {"log10_times": "1,2"}, "log10_times must rise by 0.1 or more"),
        ("softmax-attention/lemma-4-2", {"log10_times": "2,30"}, "log10_times must contain 2, 30 and 300"),
        ("softmax-attention/lemma-4-2", {"dim": "3"}, "dim must be above low_dim=3"),
        ("softmax-attention/lemma-5-1", {"tokens": "4"}, "tokens must be odd"),
        ("softmax-attention/narrow-heads", {"columns": "2,3"}, "columns must begin with 1"),
        ("softmax-attention/section-4-2", {"log10_times": "10,50"}, "log10_times must have 100 among them"),
        ("softmax-attention/section-4-2", {"dim": "10"}, "dim must be above samples=10"),
        ("softmax-attention/theorem-4-1", {"dims": "8,50"}, "samples, tokens and dims must be as many"),
        ("softmax-attention/theorem-5-1", {"dim": "10"}, "dim must be between samples=4 and columns=9"),
        ("softmax-attention/theorem-5-1", {"smallest": "1"}, "smallest must be at most largest"),
    ],
)
def test_parameters_that_do_not_go_together(name, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        find_entry(name).configure("default", settings)


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("concept-learning/figure-15", {"pixels": "8"}, "smallest circle must be at least"),
        ("gradual-rank/figure-4", {"warmup_epochs": "99"}, "warmup_epochs must be below epochs=12; got 99"),
        ("gradual-rank/figure-10", {"until": "1"}, "until must be later than the first stage"),
        ("gradual-rank/figure-11", {"until": "5"}, "resolves a plateau"),
        ("gradual-rank/figure-11", {"log10_scale": "-0.1"}, "threshold must be above the initial weights"),
        ("gradual-rank/figure-12", {"device": "cuda"}, "device='cuda' was requested, but PyTorch found no GPU"),
        ("gradual-rank/figure-16", {"dataset": "cifar100"}, "needs the folder of its official files"),
        ("gradual-rank/figure-18", {"pieces": "3"}, "pieces must divide batch=25; got 3"),
        ("gradual-rank/figure-20", {"heads": "3"}, "heads must divide embedding=32; got 3"),
        ("gradual-rank/figure-20", {"text": "wikitext-2"}, "SADDLESCOPE_DATA"),
        ("gradual-rank/lora-schedule", {"probe": "12"}, "probe must be below steps=12; got 12"),
        ("gradual-rank/lora-schedule", {"ranks": "1,33"}, "ranks must be two, increasing, from 1 to embedding=32"),
        ("gradual-rank/lora-schedule", {"ranks": "2"}, "ranks must be two"),
    ],
)
def test_what_cannot_run_is_one_sentence_before_the_work(name, settings, sentence, tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    entry = find_entry(name)
    with pytest.raises(InputError, match=sentence):
        entry.run(
            entry.configure("quick", settings),
            RunContext(scratch=tmp_path, report=lambda fraction, note: notes.append(note)),
        )
    assert not notes or name in ("gradual-rank/figure-10", "gradual-rank/figure-11")  # whose stages say what fits


def test_more_images_than_there_are():
    with pytest.raises(InputError, match="images and skip must add up"):
        digit_tokens(0, 1, images=500, skip=0, head=1.0)
