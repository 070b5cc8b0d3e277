"""All code of README and docs runs as on the page, and prints what the page shows below it."""

import jax
import pytest

import snippets

# Run in a process of its own, compiled as for users: it shows digits that rounding changes (test_readme.py).
ELSEWHERE = {"docs/index.md"}
PAGES = [page for page in snippets.pages() if page not in ELSEWHERE]
TUTORIALS = [page for page in PAGES if page.startswith("docs/tutorials/") and not page.endswith("reader.md")]
BLOCKS = [one for page in PAGES if page not in TUTORIALS for one in snippets.snippets(page) if one.runs]

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory", "ignore:.*:DeprecationWarning")  # of libraries


@pytest.fixture(autouse=True)
def _as_users(types_unchecked):
    with types_unchecked(), jax.enable_x64(False):
        yield


@pytest.mark.parametrize("one", BLOCKS, ids=lambda one: f"{one.page} {one.code[:30]!r}")
def test_blocks_run_alone(one, tmp_path):
    (tmp_path / "docs").symlink_to(snippets.ROOT / "docs")  # README's blocks are those of a clone
    snippets.run(one, tmp_path)


@pytest.mark.parametrize("page", TUTORIALS)
def test_blocks_of_a_tutorial_run_in_order(page):
    snippets.run_page(page)


def test_what_is_printed_is_shown():
    for one in (one for page in snippets.pages() for one in snippets.snippets(page)):
        assert (one.shown is not None) == (one.prints and one.runs), f"{one.page}:\n{one.code}"


def test_outputs_are_compared_word_by_word_and_number_by_number():
    assert snippets.differs("loss 0.50001 at [1, 2]", "loss 0.5 at [1,  2]") is None
    assert snippets.differs("1e-17 nan", "-3e-16 nan") is None
    assert "0.6 was printed, 0.5" in str(snippets.differs("loss 0.6", "loss 0.5"))
    assert "'gain' was printed" in str(snippets.differs("gain 0.5", "loss 0.5"))
    assert "2 words were printed, 1" in str(snippets.differs("a b", "a"))
    with pytest.raises(AssertionError, match="2 was printed, 3 is shown"):
        snippets.run(snippets.Snippet("page", "print(1 + 1)\n", "3\n"))
