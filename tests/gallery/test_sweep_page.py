"""The page of a sweep: phase diagrams, claims, points and failures of hostile entries, shown verbatim."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import quote

import numpy as np
import pytest

import tiny
from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery import build, sweep_page
from saddlescope.gallery.sweep_page import SweepView
from saddlescope.plot import DARK, LIGHT
from saddlescope.plot.phase_diagram import OUTCOMES
from saddlescope.sweeps import Sweep


@pytest.fixture
def pages(site, swept):
    return {name: (site / SweepView(made).page).read_text("utf-8") for name, made in swept.items()}


def text_of(page):
    """Return the text of a page, without its markup."""
    said = []
    parser = HTMLParser()
    parser.handle_data = said.append
    parser.feed(page)
    return " ".join(" ".join(said).split())


def test_what_failed_is_reported_and_why(pages):
    said = text_of(pages["words"])
    assert "2 failed" in said
    assert said.count(f"no such thing as {tiny.HOSTILE}") == 2
    assert "stages=3 words=plain" in said
    assert "--retry" in said
    assert "Points without a run" not in text_of(pages["seeds"])


def test_the_tables_are_those_of_the_data_set(pages, swept):
    for name, made in swept.items():
        view, data = SweepView(made), made.data
        assert len(view.points) == data.state.size
        for k, claim in enumerate(view.claims):
            for outcome, count in claim["counts"].items():
                assert count == int((data.outcome[..., k] == str(outcome)).sum())
        falls = data["value"].sel(claim="falls").values
        low, high = np.nanmin(falls), np.nanmax(falls)
        assert view.claims[0]["value"].count("to") == (low < high)
        for row, index in zip(view.points, made.grid.indices, strict=True):
            assert row["state"] == str(data.state.values[index])
            assert [outcome for outcome, _ in row["claims"]] == list(data.outcome.values[index])
        assert pages[name].count("<tr") == len(view.axes) + len(made.failures) + len(view.claims) + len(view.points) + (
            4 if made.failures else 3
        )


def test_the_pictures_are_the_phase_diagrams(pages, swept):
    embedded = pages["words"].split('<script type="application/json">')[1:]
    figures = [json.loads(part.partition("</script>")[0]) for part in embedded]
    assert [figure["title"] for figure in figures] == ["Results across the grid", "Verdicts", "Values of the claims"]
    assert {one["name"] for one in figures[1]["legend"]} == {"✓ seen", "✗ fails", "? undecided", "! failed", "✓ holds"}
    cells = figures[1]["panels"][0]["data"][0]
    assert np.array(cells["z"]).shape == (2, 3)
    failed = [kind.name for kind in OUTCOMES].index("failed")
    assert [row[1] for row in cells["z"]] == [failed, failed], "both points with three stages failed"


def test_long_lists_are_cut_and_say_so(swept, monkeypatch):
    monkeypatch.setattr(sweep_page, "MOST_POINTS", 5)
    view = SweepView(swept["seeds"])
    assert (len(view.points), view.unlisted) == (5, 1)
    assert sweep_page._listed([str(k) for k in range(64)]).endswith("9, …, 63")
    assert sweep_page._listed(["1", "2"]) == "1, 2"


def test_damaged_and_doubled_sweeps_are_named(tiny, swept, tmp_path):
    file = tmp_path / "out" / swept["seeds"].file.relative_to(swept["seeds"].file.parents[3])
    marker = next(swept["seeds"].file.parents[3].rglob(store.SWEEPS)).relative_to(swept["seeds"].file.parents[3])
    store.write_bytes(b"", tmp_path / "out" / marker)
    store.write_bytes(swept["seeds"].file.read_bytes()[:-1], file)
    with pytest.raises(InputError, match="is damaged"):
        build(tmp_path / "out", tmp_path / "site")
    for name in ("one", "two"):
        store.write_bytes(swept["seeds"].file.read_bytes(), file.with_name(f"{name}.nc"))
    file.unlink()
    with pytest.raises(InputError, match=r"one\.nc and .*two\.nc are the same"):
        build(tmp_path / "out", tmp_path / "site")
    assert not (tmp_path / "site").exists()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda data: data.drop_vars("outcome"), "outcome is not over stages, seed, claim"),
        (lambda data: data.drop_vars("claim_statement"), "claim_statement is not over claim"),
        (lambda data: data.assign(value=data.outcome), "value has no numbers"),
        (lambda data: data.assign(error=data.cpu_seconds), "error has no words"),
        (lambda data: data.assign(state=data.state.copy(data=np.full((2, 3), tiny.HOSTILE, object))), "is unknown"),
        (lambda data: data.assign(outcome=data.outcome.where(data.outcome != "fails", "owned")), "outcome 'owned'"),
        (lambda data: data.assign_coords(metric_scale=("metric", ["cubic", "log"])), "metric_scale 'cubic'"),
    ],
)
def test_a_data_set_that_somebody_changed_is_refused_in_a_sentence(tiny, swept, tmp_path, change, fault):
    file = tmp_path / "swept.nc"
    store.write(change(swept["seeds"].data), file)
    with pytest.raises(InputError, match=re.escape(str(file)) + " .*" + re.escape(fault)):
        Sweep.open(file)


@pytest.mark.browser
@pytest.mark.parametrize("name", ["words", "seeds"])
def test_the_page_in_a_browser(visit, site, swept, name):
    """Maps are drawn, nothing hostile happens, no width scrolls sideways, and the colours of cells follow the theme."""
    page = visit(f"file://{quote(str(site / SweepView(swept[name]).page))}", color_scheme="light")
    assert page.title().startswith("A staircase in no time <script>")
    assert page.locator(".plot .hm, .plot .scatterlayer").count() > 0
    assert page.locator(".legend > span.kind").count() == page.locator(".legend .swatch.kind").count()
    for width in (1200, 360):
        page.set_viewport_size({"width": width, "height": 800})
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=width)  # once plots follow
    if name == "words":
        color = "() => document.querySelectorAll('.plot')[2].data[0].colorscale[0][1]"
        for scheme, theme in (("light", LIGHT), ("dark", DARK)):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(f"color => ({color})() === color", arg=theme.palette[2])
        assert page.locator(".legend .swatch.kind").count() == 5
