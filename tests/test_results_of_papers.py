"""Results of other papers, as listed in `results_of_papers.py` and on a page of the documentation."""

import pytest
from tests.results_of_papers import RESULTS


@pytest.mark.parametrize("one", RESULTS, ids=[one.compute.__name__ for one in RESULTS])
def test_a_result_of_a_paper(one):
    expected, got, error = one.run()
    assert error <= one.within, (expected, got)


def test_results_are_many_and_have_sources():
    assert len({(one.paper, one.problem) for one in RESULTS}) == len(RESULTS) >= 40
