"""The pages by task: each program runs alone and prints what its page shows."""

import pytest

import snippets

PAGES = (
    "docs/how-to/figure-2-csv.md",
    "docs/how-to/own-entry.md",
    "docs/how-to/own-escape.md",
    "docs/how-to/own-h.md",
    "docs/how-to/own-tokens.md",
    "docs/how-to/sweep-seeds.md",
)


@pytest.mark.parametrize("page", PAGES)
def test_the_program_prints_what_the_page_shows(page, tmp_path):
    (program,) = snippets.snippets(page)
    assert program.runs
    snippets.run(program, tmp_path)
