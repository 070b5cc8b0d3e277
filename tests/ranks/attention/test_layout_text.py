"""Layouts as text for the command line."""

import pytest

from refusals import refused
from saddlescope.ranks import Fused, Interleaved, KeyValue, Latent, Separate
from saddlescope.ranks.attention.layout_text import layout_from_text, read_layouts


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("Separate(wk, wq, wv, wo)", Separate("wk", "wq", "wv", "wo")),
        ("Separate(a.k, a.q, a.v, out.dense, heads=8, key_heads=2, strided=True)",
         Separate("a.k", "a.q", "a.v", "out.dense", heads=8, key_heads=2, strided=True)),
        ("Fused('qkv', 'to_out.0', order=kqv)", Fused("qkv", "to_out.0", order="kqv")),
        (" Interleaved(query_key_value, dense, heads=config.n) ", Interleaved("query_key_value", "dense", "config.n")),
        ("KeyValue(kv, q, proj, interleaved=True)", KeyValue("kv", "q", "proj", interleaved=True)),
        ("Latent(query=(q_proj,))", Latent(query=("q_proj",))),
    ],
)  # fmt: skip
def test_a_text_describes_a_layout(text, layout):
    assert layout_from_text(text) == layout
    assert read_layouts([text]) == (layout,)


def test_no_text_is_no_layout():
    assert read_layouts([]) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Seperate(a, b, c, d)", "one of Separate, KeyValue, Fused"),
        ("Separate(a, b)", "must be a call such as"),
        ("Separate(a, b, c, d, heads=1.5)", "neither a name nor a number"),
        ("Separate(a, b, c, 4)", "must have output of another kind; got 4"),
        ("Fused(a, b, strided=1)", "must have strided of another kind"),
        ("Fused(a, b, order=abc)", "order must have q, k and v once each"),
        ("__import__('os').system('x')", "must be a call such as"),
        ("Separate(open('x'), b, c, d)", "neither a name"),
        ("Separate(**x)", "unpacks a mapping"),
        ("Separate(a, b", "must be a call"),
        ("", "must be a call"),
        ("(" * 5000, "must be a call"),
    ],
)
def test_other_texts_are_refused(text, message):
    refused(message, layout_from_text, text)
