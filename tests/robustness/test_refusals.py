"""What a public function cannot use it refuses, with the reason and the cure: changes of one valid call each."""

import re

import jax
import pytest
from refusals_of_data import measure, models
from refusals_of_flow import flow, studies
from refusals_of_theory import concepts, theory
from valid_calls import calls

from saddlescope._shared.errors import InputError


def said(call, **changed):
    """Return the sentence by which a call is refused; what it returned if it is not."""
    try:
        return f"nothing, but returned {call(**changed)!r}"
    except InputError as error:
        return str(error)


def is_ours(sentence):
    """Return True for one line that does not repeat the words of JAX."""
    return len(sentence) < 600 and "\n" not in sentence.strip() and "ShapeDtypeStruct" not in sentence


@pytest.mark.parametrize("refused", [measure, models, theory, concepts, flow, studies])
def test_what_cannot_be_used_is_refused_in_a_sentence(refused, types_unchecked):
    users = jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard")
    with types_unchecked(), users[0], users[1]:
        changes, others = refused()
        valid = calls(refused.__name__)
        found = [(f"{name}({changed!r})", words, said(valid[name], **changed))
                 for name, rows in changes.items() for changed, words in rows]  # fmt: skip
        found += [("a call", words, said(call)) for call, words in others]
    assert len(found) > 10
    missed = [f"{call} must say {words!r}; said {sentence}" for call, words, sentence in found
              if not (re.search(words, sentence) and is_ours(sentence))]  # fmt: skip
    assert not missed, "\n".join(missed)
