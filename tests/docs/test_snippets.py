"""All code of README and docs is run by a test, alone, and what it prints is on the page."""

from pathlib import Path

import pytest

import snippets

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("page", snippets.pages())
def test_every_page_with_code_has_a_test_and_shows_what_is_printed(page):
    assert any(f'"{page}"' in file.read_text() for file in TESTS.rglob("test_*.py"))
    for one in snippets.snippets(page):
        assert (one.shown is not None) == (one.prints and one.runs), f"{page}:\n{one.code}"


def test_outputs_are_compared_word_by_word_and_number_by_number():
    assert snippets.differs("loss 0.50001 at [1, 2]", "loss 0.5 at [1,  2]") is None
    assert snippets.differs("1e-17 nan", "-3e-16 nan") is None
    assert "0.6 was printed, 0.5" in str(snippets.differs("loss 0.6", "loss 0.5"))
    assert "'gain' was printed" in str(snippets.differs("gain 0.5", "loss 0.5"))
    assert "2 words were printed, 1" in str(snippets.differs("a b", "a"))
    assert "nan" in str(snippets.differs("nan", "1.0"))


def test_a_wrong_output_fails():
    with pytest.raises(AssertionError, match="2 was printed, 3 is shown"):
        snippets.run(snippets.Snippet("page", "print(1 + 1)\n", "3\n"))


def test_code_runs_in_a_namespace_of_its_own():
    assert snippets.run(snippets.Snippet("page", "apart = 1\n", None))["apart"] == 1
    with pytest.raises(NameError):
        snippets.run(snippets.Snippet("page", "apart + 1\n", None))
