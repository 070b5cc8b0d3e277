"""What a public function cannot use it refuses, with the reason and the cure: changes of one valid call each."""

import re

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


@pytest.mark.parametrize("refused", [measure, models, theory, concepts, flow, studies])
def test_what_cannot_be_used_is_refused_in_a_sentence(refused, types_unchecked):
    changes, others = refused()
    valid = calls(refused.__name__)
    with types_unchecked():
        found = [(f"{name}({changed!r})", words, said(valid[name], **changed))
                 for name, rows in changes.items() for changed, words in rows]  # fmt: skip
        found += [("a call", words, said(call)) for call, words in others]
    assert len(found) > 10
    missed = [f"{call} must say {words!r}; said {sentence}" for call, words, sentence in found
              if not re.search(words, sentence)]  # fmt: skip
    assert not missed, "\n".join(missed)
