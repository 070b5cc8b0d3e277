"""A GPT-2 and a text small enough to train in a fraction of a second, shared by the tests of language models."""

from saddlescope.training.architectures.gpt2 import GPT2Sizes, fresh_gpt2
from saddlescope.training.data.text import TextData, learn_vocabulary, load_text, tokenize

SIZES = GPT2Sizes(vocabulary=300, block=16, embedding=16, depth=2, heads=2)


def tiny_tokens():
    """Return the start of Python's help texts, in blocks of 16 tokens."""
    whole = load_text("python-topics")
    text = TextData(whole.name, whole.train[:2], ("".join(whole.test),)).first(5000, 1500)
    return tokenize(text, learn_vocabulary(text, SIZES.vocabulary), block=SIZES.block)


def tiny_gpt2(seed=0, sizes=SIZES):
    return fresh_gpt2(sizes, seed=seed)
