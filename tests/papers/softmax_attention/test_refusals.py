"""Parameters that do not go together are refused at once, in one sentence."""

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.papers.softmax_attention.extensions.digits import digit_tokens
from saddlescope.reproduction import find_entry


@pytest.mark.parametrize(
    ("name", "settings", "sentence"),
    [
        ("lemma-4-1", {"dims": "8,50"}, "samples, tokens and dims must be as many"),
        ("lemma-a-1", {"log10_times": "1,2"}, "log10_times must rise by 0.1 or more"),
        ("lemma-4-2", {"log10_times": "2,30"}, "log10_times must contain 2, 30 and 300"),
        ("lemma-4-2", {"dim": "3"}, "dim must be above low_dim=3"),
        ("lemma-5-1", {"tokens": "4"}, "tokens must be odd"),
        ("narrow-heads", {"columns": "2,3"}, "columns must begin with 1"),
        ("section-4-2", {"log10_times": "10,50"}, "log10_times must have 100 among them"),
        ("section-4-2", {"dim": "4"}, "dim must be above samples=4"),
        ("theorem-4-1", {"dims": "8,50"}, "samples, tokens and dims must be as many"),
        ("theorem-5-1", {"dim": "4"}, "dim must be between samples=2 and columns=3"),
        ("theorem-5-1", {"smallest": "1"}, "smallest must be at most largest"),
    ],
)
def test_parameters_that_do_not_go_together(name, settings, sentence):
    with pytest.raises(InputError, match=sentence):
        find_entry(f"softmax-attention/{name}").configure("quick", settings)


def test_more_images_than_there_are():
    with pytest.raises(InputError, match="images and skip must add up"):
        digit_tokens(0, 1, images=500, skip=0, head=1.0)
