"""The page of a sweep: phase diagrams, claims, points and failures of hostile entries, shown verbatim."""

import dataclasses
import html
import json
import re
import shutil
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
from saddlescope.sweeps import Grid, Sweep, sweep

FAILURE = f"no such thing as {tiny.HOSTILE}"


def fails_at_three(params, context):
    if params.stages == 3:
        raise InputError(FAILURE)
    return tiny.run(params, context)


ENTRY = dataclasses.replace(tiny.ENTRY, run=fails_at_three)
GRIDS = {
    "words": (["stages=2,3,6", f"words=plain,{tiny.HOSTILE}"], ""),
    "seeds": (["stages=2,4,6,8"], "0:3"),
}


def find(name):
    assert name == ENTRY.name
    return ENTRY


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", find)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Two sweeps in one folder: one over two axes with failed points, one over an axis and seeds."""
    out = tmp_path_factory.mktemp("swept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", find)
        grids = {
            name: Grid.parse(ENTRY, words, seeds=seeds, settings={"scales": "0.1,0.01"})
            for name, (words, seeds) in GRIDS.items()
        }
        return {name: sweep(ENTRY, grid, out=out, processes=1) for name, grid in grids.items()}


@pytest.fixture(scope="module")
def out(stored):
    return stored["words"].file.parents[3]


@pytest.fixture(scope="module")
def swept_site(stored, out, tmp_path_factory):
    site = tmp_path_factory.mktemp("swept gallery # 100%") / "site"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", find)
        build(out, site)
    return site


@pytest.fixture
def pages(swept_site, stored):
    return {name: (swept_site / SweepView(made).page).read_text("utf-8") for name, made in stored.items()}


def text_of(page):
    """Return the text of a page, without its markup."""
    said = []
    parser = HTMLParser()
    parser.handle_data = said.append
    parser.feed(page)
    return " ".join(" ".join(said).split())


def test_a_folder_of_sweeps_alone_is_a_gallery(swept_site, stored):
    index = (swept_site / "index.html").read_text("utf-8")
    for made in stored.values():
        assert f'href="{SweepView(made).page}"' in index
    assert "reproduction" not in text_of(index).partition("How to read")[0]
    assert "8 of 12 points" not in index
    assert "4 of 6 points finished, 2 failed" in index
    assert "12 of 12 points finished" in index


def test_runs_and_sweeps_stand_side_by_side(known, undrawn, results, stored, tmp_path):
    both = tmp_path / "both"
    shutil.copytree(stored["seeds"].file.parents[3], both)
    shutil.copytree(results / "tiny", both / "tiny")
    build(both, tmp_path / "site")
    index = text_of((tmp_path / "site/index.html").read_text("utf-8"))
    assert (
        "1 reproduction Verdicts by kind of claim: 1 printed 1 fails 1 reading 1 undecided 1 extension 1 seen" in index
    )
    assert "default · default stages=6 · quick" in index
    assert "12 of 12 points finished" in index
    page, run = SweepView(stored["seeds"]).page, tmp_path / "site/tiny/staircase/quick.html"
    assert f'href="../../{page}"' in run.read_text("utf-8")
    assert 'href="../../../tiny/staircase/quick.html"' in (tmp_path / "site" / page).read_text("utf-8")


def test_nothing_hostile_is_in_the_markup(pages, swept_site):
    for name, page in [*pages.items(), ("index", (swept_site / "index.html").read_text("utf-8"))]:
        assert tiny.HOSTILE not in page
        assert "<img src=x" not in page
        assert html.escape(tiny.HOSTILE, quote=True).replace("&quot;", "&#34;").replace("&#x27;", "&#39;") in page, name


def test_what_failed_is_reported_and_why(pages):
    said = text_of(pages["words"])
    assert "2 failed" in said
    assert said.count(FAILURE) == 2
    assert "stages=3 words=plain" in said
    assert "--retry" in said
    assert "Points without a run" not in text_of(pages["seeds"])


def test_the_tables_are_those_of_the_data_set(pages, stored):
    for name, made in stored.items():
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
        assert pages[name].count("<tr") == len(view.axes) + len(view.failures) + len(view.claims) + len(view.points) + (
            4 if view.failures else 3
        )


def test_the_pictures_are_the_phase_diagrams(pages, stored):
    embedded = pages["words"].split('<script type="application/json">')[1:]
    figures = [json.loads(part.partition("</script>")[0]) for part in embedded]
    assert [figure["title"] for figure in figures] == ["Results across the grid", "Verdicts", "Values of the claims"]
    assert {one["name"] for one in figures[1]["legend"]} == {"✓ seen", "✗ fails", "? undecided", "! failed", "✓ holds"}
    cells = figures[1]["panels"][0]["data"][0]
    assert np.array(cells["z"]).shape == (2, 3)
    failed = [kind.name for kind in OUTCOMES].index("failed")
    assert [row[1] for row in cells["z"]] == [failed, failed], "both points with three stages failed"


def test_the_data_set_is_beside_the_page_and_nothing_is_stored_twice(swept_site, stored):
    for made in stored.values():
        view = SweepView(made)
        assert view.data_name.startswith("sweep-")
        assert (swept_site / view.folder / view.data_name).read_bytes() == made.file.read_bytes()
        names = {path.name for path in (swept_site / view.folder).iterdir()}
        assert {"figure-1.png", "figure-1.svg", "thumbnail-light.png", "thumbnail-dark.png"} <= names


def test_every_link_of_the_page_resolves(swept_site, stored):
    for made in stored.values():
        page = swept_site / SweepView(made).page
        for address in re.findall(r'(?:href|src|srcset)="([^"#]+)"', page.read_text("utf-8")):
            assert address.startswith("data:") or (page.parent / address).is_file(), address


def test_long_lists_are_cut_and_say_so(stored, monkeypatch):
    monkeypatch.setattr(sweep_page, "MOST_POINTS", 5)
    view = SweepView(stored["seeds"])
    assert (len(view.points), view.unlisted) == (5, 7)
    assert sweep_page._listed([str(k) for k in range(64)]).endswith("9, …, 63")
    assert sweep_page._listed(["1", "2"]) == "1, 2"


def test_damaged_and_doubled_sweeps_are_named(known, stored, tmp_path):
    file = tmp_path / "out" / stored["seeds"].file.relative_to(stored["seeds"].file.parents[3])
    marker = next(stored["seeds"].file.parents[3].rglob(store.SWEEPS)).relative_to(stored["seeds"].file.parents[3])
    store.write_bytes(b"", tmp_path / "out" / marker)
    store.write_bytes(stored["seeds"].file.read_bytes()[:-1], file)
    with pytest.raises(InputError, match="is damaged"):
        build(tmp_path / "out", tmp_path / "site")
    for name in ("one", "two"):
        store.write_bytes(stored["seeds"].file.read_bytes(), file.with_name(f"{name}.nc"))
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
        (lambda data: data.assign(state=data.state.copy(data=np.full((4, 3), tiny.HOSTILE, object))), "is unknown"),
        (lambda data: data.assign(outcome=data.outcome.where(data.outcome != "fails", "owned")), "outcome 'owned'"),
        (lambda data: data.assign_coords(metric_scale=("metric", ["cubic", "log"])), "metric_scale 'cubic'"),
    ],
)
def test_a_data_set_that_somebody_changed_is_refused_in_a_sentence(known, stored, tmp_path, change, fault):
    file = tmp_path / "swept.nc"
    store.write(change(stored["seeds"].data), file)
    with pytest.raises(InputError, match=re.escape(str(file)) + " .*" + re.escape(fault)):
        Sweep.open(file)


@pytest.mark.browser
@pytest.mark.parametrize("name", GRIDS)
def test_the_page_in_a_browser(visit, swept_site, stored, name):
    """Maps are drawn, nothing hostile happens, no width scrolls sideways, and the colours of cells follow the theme."""
    page = visit(f"file://{quote(str(swept_site / SweepView(stored[name]).page))}", color_scheme="light")
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
