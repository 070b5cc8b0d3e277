import dataclasses
import errno
import json
import math
import os
import re
import shutil
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote

import pytest

import tiny as module
from saddlescope import store
from saddlescope._shared.errors import InputError
from saddlescope.gallery import build
from saddlescope.gallery.claim_bullet import bullet
from saddlescope.gallery.page_views import environment, papers_first
from saddlescope.gallery.sweep_page import SweepView
from saddlescope.reproduction import Kind, Outcome, Reproduction, Verdict


class Page(HTMLParser):
    """The elements of a page and its text."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def pages(site):
    return {str(path.relative_to(site)): Page(path) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="session")
def one_run(results, tmp_path_factory):
    """Return a folder with the quick run alone, which builds faster."""
    folder = tmp_path_factory.mktemp("one")
    shutil.copy(results / "tiny/staircase/quick.nc", folder)
    return folder


@pytest.fixture
def stored(results, swept):
    """Return the stored file and the name of its copy by page."""
    runs = {f"tiny/staircase/{file.stem}": file for file in store.find_runs(results)}
    found = {f"{page}.html": (file, f"{page.replace('/', '-')}.nc") for page, file in runs.items()}
    views = map(SweepView, swept.values())
    return found | {view.page: (view.stored.file, f"sweep-tiny-staircase-{view.slug}.nc") for view in views}


def test_there_are_an_index_and_a_page_for_each_run_and_sweep_with_its_data(pages, site, stored):
    assert set(pages) == {"index.html", *stored}
    assert len(stored) == 5
    for page, (file, name) in stored.items():
        assert ((site / page).with_suffix("") / name).read_bytes() == file.read_bytes()


def test_every_link_resolves(pages, site):
    for name, page in pages.items():
        ids = {attributes.get("id") for _, attributes in page.elements}
        for _, attributes in page.elements:
            for key in ("href", "src", "srcset"):
                address = attributes.get(key)
                if not address or address.startswith("data:"):
                    continue
                target, _, anchor = address.partition("#")
                assert ":" not in target, "nothing comes from the network"
                if target:
                    assert ((site / name).parent / unquote(target)).is_file(), address
                else:
                    assert anchor in ids


def test_hostile_names_are_shown_and_not_executed(pages):
    for page in pages.values():
        assert module.HOSTILE in page.text
        assert all("onerror" not in attributes for _, attributes in page.elements)
        for attributes in page.all("script"):
            assert attributes.get("type") == "application/json" or re.match(r"(\.\./)*assets/", attributes["src"])


def test_a_page_has_everything_about_its_run(pages, results):
    page = pages["tiny/staircase/default.html"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", module.find_entry)
        made = Reproduction.open(results / "tiny" / "staircase" / "default.nc")
    words = " ".join(page.text.split())
    for reported in (
        *("The loss falls in stages", "One curve an initial scale.", "Section 1", "Nobody: A tiny paper, 2023"),
        *("0.0016 ± 0.0010", "≤ 0.5", "4 stages", "in [5, 100] stages", "not resolved", "The run ended too early."),
        *("steps of the staircase", "0.01, 1e-08", "saddlescope run tiny/staircase", "predicted time", "3.6667"),
        *(made.provenance.versions["numpy"], made.provenance.platform, made.provenance.finished),
    ):
        assert reported in words, reported
    assert "(not the default)" not in words
    assert "(not the default)" in pages["tiny/staircase/quick.html"].text
    assert len(page.all("table")) == 3


def test_pages_can_be_read_without_seeing(pages):
    for page in pages.values():
        assert page.all("html")[0]["lang"] == "en"
        assert len(page.all("h1")) == 1
        assert len(page.all("main")) == 1
        assert all("alt" in image for image in page.all("img"))
        assert page.all("meta")[1]["content"].startswith("width=device-width")
        levels = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3", "h4")]
        assert all(b <= a + 1 for a, b in pairwise(levels))


def test_figures_are_there_as_json_and_as_pictures(pages, site):
    for name in pages.keys() - {"index.html"}:
        embedded = (site / name).read_text("utf-8").split('<script type="application/json">')[1:]
        figures = [json.loads(part.partition("</script>")[0]) for part in embedded]
        files = {f"figure-{k + 1}.{kind}" for k in range(len(figures)) for kind in ("png", "svg")}
        found = {path.name for path in (site / name).with_suffix("").iterdir() if path.suffix != ".nc"}
        assert found == files | {"thumbnail-dark.png", "thumbnail-light.png"}
        assert not name.startswith("tiny/") or [len(figure["panels"]) for figure in figures] == [2, 1]


def test_the_index_shows_the_largest_run_of_an_entry_and_all_sweeps(pages, swept):
    index = pages["index.html"]
    links = [a["href"] for a in index.all("a") if a["href"].startswith("tiny/")]
    assert links[:2] == ["tiny/staircase/default.html"] * 2
    assert links[-1] == "tiny/staircase/quick.html"
    words = " ".join(index.text.split())
    assert (
        "1 reproduction Verdicts by kind of claim: 1 printed 1 fails 1 reading 1 undecided 1 extension 1 seen" in words
    )
    for shown in ("default · default stages=6 · quick", "4 of 6 points finished, 2 failed", "6 of 6 points finished"):
        assert shown in words
    for made in swept.values():
        page = SweepView(made).page
        assert page in {a["href"] for a in index.all("a")}
        assert f"../../{page}" in {a["href"] for a in pages["tiny/staircase/quick.html"].all("a")}
        assert "../../../tiny/staircase/quick.html" in {a["href"] for a in pages[page].all("a")}
    card, *others = [attributes for _, attributes in index.elements if attributes.get("class") == "card"]
    assert len(others) == 2
    assert card["data-outcomes"] == "printed/fails reading/undecided extension/seen"
    assert "the run resolves every stage" in card["data-words"]


def test_verdicts_of_quick_runs_are_apart(tiny, undrawn, one_run, pages, tmp_path):
    quick, default = pages["tiny/staircase/quick.html"], pages["tiny/staircase/default.html"]
    for page, unjudged in ((quick, True), (default, False)):
        badges = [attributes["class"] for _, attributes in page.elements if "verdict " in attributes.get("class", "")]
        assert badges
        assert all(("unjudged" in badge) == unjudged for badge in badges)
        assert ("This run is not judged." in page.text) == unjudged == ("outside" in page.text)
    assert "parameters changed" in quick.text
    assert "parameters changed" not in default.text
    build(one_run, tmp_path / "site")
    index = Page(tmp_path / "site" / "index.html")
    assert "Not judged: Nobody: A tiny paper, 2023" in index.text
    assert [a["data-outcomes"] for _, a in index.elements if a.get("class") == "card"] == [""]


def test_pages_lead_to_the_previous_and_the_next_entry(tiny, undrawn, results, tmp_path, monkeypatch):
    good = store.read(results / "tiny/staircase/quick.nc")
    for name in "abc":
        store.write(good.assign_attrs(entry=f"tiny/{name}"), tmp_path / f"runs/{name}.nc")
    entries = {f"tiny/{name}": dataclasses.replace(module.ENTRY, name=f"tiny/{name}") for name in "abc"}
    monkeypatch.setattr("saddlescope.reproduction.entry.find_entry", entries.get)
    build(tmp_path / "runs", tmp_path / "site")
    for name, previous, following in (("a", None, "b"), ("b", "a", "c"), ("c", "b", None)):
        links = Page(tmp_path / f"site/tiny/{name}/quick.html").all("a")
        for rel, of in (("prev", previous), ("next", following)):
            found = {a["href"] for a in links if a.get("rel") == rel}
            assert found == ({f"../../tiny/{of}/quick.html"} if of else set())


def test_a_folder_of_sweeps_alone_is_a_gallery(tiny, undrawn, results, tmp_path):
    shutil.copytree(results / "sweeps", tmp_path / "sweeps")
    build(tmp_path, tmp_path / "site")
    index = " ".join(Page(tmp_path / "site" / "index.html").text.split())
    assert "6 of 6 points finished" in index
    assert "reproduction" not in index.partition("How to read")[0]


def test_building_runs_nothing_and_is_the_same_again(tiny, undrawn, results, site, tmp_path, monkeypatch):
    monkeypatch.setenv("TINY_FAILS", "1")
    build(results, tmp_path / "site")
    for path in sorted(site.rglob("*")):
        if path.suffix in (".html", ".css", ".js", ".nc"):
            assert (tmp_path / "site" / path.relative_to(site)).read_bytes() == path.read_bytes(), path


def test_a_gallery_is_replaced_whole(tiny, undrawn, one_run, tmp_path):
    folder = tmp_path / "site"
    folder.mkdir()  # an empty folder may become one
    build(one_run, folder)
    (folder / "stale.html").write_text("")
    build(one_run, folder)
    assert not (folder / "stale.html").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


@pytest.mark.parametrize("foreign", ["a gallery or a new folder; got other files", "a folder or a new one; got a file"])
def test_what_is_not_a_gallery_is_left_alone(tiny, undrawn, one_run, tmp_path, foreign):
    site = tmp_path / "precious"
    if foreign.endswith("files"):
        site.mkdir()
        (site / "thesis.txt").write_text("years")
    else:
        site.write_text("years")
    with pytest.raises(InputError, match=f"precious must be {foreign}[.]"):
        build(one_run, site)
    assert "years" in (site / "thesis.txt" if site.is_dir() else site).read_text()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_build_that_stops_leaves_the_old_gallery(tiny, undrawn, one_run, tmp_path, monkeypatch, failure):
    build(one_run, tmp_path / "site")
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def stop(*_):
        raise failure

    monkeypatch.setattr("saddlescope.gallery.site.draw_matplotlib", stop)
    with pytest.raises((KeyboardInterrupt, InputError)) as caught:
        build(one_run, tmp_path / "site")
    if isinstance(failure, OSError):
        assert "Cannot write" in str(caught.value)
        assert "No space left" in str(caught.value)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def killed_while_swapping(folder):
    """Move a site where a build, killed between its two renames, leaves it."""
    work = folder.with_name(f".{folder.name}.saddlescope")
    (work / "new").mkdir(parents=True)
    (work / ".saddlescope-work").touch()
    (work / "new" / "half.html").write_text("")
    folder.rename(work / "old")


def test_the_old_gallery_comes_back_when_the_build_after_a_kill_fails(tiny, undrawn, one_run, tmp_path):
    build(one_run, tmp_path / "site")
    killed_while_swapping(tmp_path / "site")
    with pytest.raises(InputError, match="There is no folder"):
        build(tmp_path / "absent", tmp_path / "site")
    assert (tmp_path / "site" / "index.html").is_file()


def test_doubled_runs_are_named(tiny, undrawn, results, tmp_path):
    good = store.read(results / "tiny/staircase/quick.nc")
    one, two = store.write(good, tmp_path / "runs/a.nc"), store.write(good, tmp_path / "runs/b.nc")
    with pytest.raises(InputError, match=f"{one} and {two} are the same run"):
        build(tmp_path / "runs", tmp_path / "site")
    assert not (tmp_path / "site").exists()


def test_files_that_cannot_be_shown_are_skipped_and_named(tiny, undrawn, results, tmp_path, monkeypatch):
    runs = tmp_path / "runs"
    good = store.read(results / "tiny/staircase/default.nc")
    store.write(good, runs / "good.nc")
    store.write(good, runs / "twice.nc")
    store.write(good.assign_attrs(entry="gone/entry"), runs / "gone.nc")
    store.write(good.drop_vars("loss").assign_attrs(size="quick"), runs / "lacking.nc")
    store.write(good.drop_attrs(), runs / "foreign.nc")
    (runs / "damaged.nc").write_bytes((runs / "good.nc").read_bytes()[:-1])
    (runs / "text.nc").write_text("no netCDF")
    (runs / "dangling.nc").symlink_to(runs / "nowhere.nc")
    (runs / "folder.nc").mkdir()
    (runs / ".seen-by-0123456789abcdef").write_text("0123456789abcdef")
    os.mkfifo(runs / "pipe.nc")
    said = []
    build(runs, tmp_path / "site", on_error=said.append)
    assert {path.name for path in (tmp_path / "site/tiny/staircase").iterdir()} == {"default.html", "default"}
    named = {path.name for path in runs.iterdir() if any(str(path) in one for one in said[:-1])}
    assert named == {"gone.nc", "lacking.nc", "foreign.nc", "damaged.nc", "text.nc", "dangling.nc", "pipe.nc"}
    assert "are the same run of tiny/staircase" in said[-1]
    assert len(said) == 8
    (runs / "good.nc").unlink()
    (runs / "twice.nc").unlink()
    with pytest.raises(InputError, match=r"No file in .* can be shown; rerun the entries[.]$"):
        build(runs, tmp_path / "other", on_error=said.append)


def test_numbers_that_cannot_be_drawn_are_no_crash(tiny, one_run, tmp_path, monkeypatch):
    def draw(*_, **__):
        raise OverflowError("too large")

    monkeypatch.setattr("saddlescope.gallery.site.draw_matplotlib", draw)
    with pytest.raises(InputError, match=r"quick.nc cannot be shown \(OverflowError: too large\)"):
        build(one_run, tmp_path / "site")


def test_addresses_come_from_no_file(tiny, undrawn, results, tmp_path):
    """Write nothing outside the site for a stored size that is a path or a file name that is markup."""
    good = store.read(results / "tiny/staircase/quick.nc")
    store.write(good.assign_attrs(size="../../../escaped"), tmp_path / "runs" / "<img src=x>.nc")
    build(tmp_path / "runs", tmp_path / "site")
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "site"}
    assert all(len(path.stem) == 12 for path in (tmp_path / "site/tiny/staircase").glob("*.html"))


VERDICT = Verdict(
    **{"claim": "c", "statement": "s", "quantity": "q", "kind": Kind.EXTENSION, "source": "p", "unit": ""},
    **{"low": 0.0, "high": 1.0, "value": 0.5, "uncertainty": 0.1, "outcome": Outcome.HOLDS},
)


def test_claims_about_the_paper_come_first():
    kinds = [Kind.EXTENSION, Kind.STAND_IN, Kind.PRINTED, Kind.READING]
    several = [dataclasses.replace(VERDICT, claim=str(k), kind=kind) for k, kind in enumerate([*kinds, *kinds])]
    assert [verdict.claim for verdict in papers_first(several)] == ["2", "6", "3", "7", "1", "5", "0", "4"]


def test_papers_are_linked_and_symbols_set():
    filters = environment().filters
    said = '&lt;b&gt;, <a href="https://arxiv.org/abs/2306.07042">arXiv:2306.07042</a>'
    assert filters["linked"]("<b>, arXiv:2306.07042") == said
    assert filters["formula"]("<W_K W_Qᵀ, lora_A") == "&lt;W<sub>K</sub> W<sub>Q</sub>ᵀ, lora_A"


def drawn(**changes):
    """Return the parts of a bullet by class, each a list of attributes."""
    parts = {}
    for part in ET.fromstring(bullet(dataclasses.replace(VERDICT, **changes))):
        parts.setdefault(part.get("class"), []).append({k: v for k, v in part.items() if k != "class"})
    return parts


def test_a_bullet_shows_where_the_value_lies():
    inside = drawn()
    low, high = (float(bound["x1"]) for bound in inside["bound"])
    shaded = inside["range"][0]
    assert (float(shaded["x"]), float(shaded["width"])) == pytest.approx((low, high - low), abs=0.11)
    assert float(inside["value"][0]["cx"]) == pytest.approx((low + high) / 2, abs=0.11)
    spread = inside["spread"][0]
    assert float(spread["x2"]) - float(spread["x1"]) == pytest.approx(0.2 * (high - low), abs=0.2)
    outside = drawn(value=1.5)
    assert float(outside["value"][0]["cx"]) > float(outside["bound"][1]["x1"])
    below = drawn(value=-0.5, uncertainty=0.0)
    assert float(below["value"][0]["cx"]) < float(below["bound"][0]["x1"])
    assert "spread" not in below


def test_one_sided_bullets_reach_the_edge():
    at_most = drawn(low=-math.inf)
    assert float(at_most["range"][0]["x"]) == 0
    at_least = drawn(high=math.inf)
    assert float(at_least["range"][0]["x"]) + float(at_least["range"][0]["width"]) == pytest.approx(132)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e300, 0.0])
@pytest.mark.parametrize("uncertainty", [0.0, math.inf, 1e-300])
def test_bullets_can_be_drawn_of_anything(value, uncertainty):
    parts = drawn(value=value, uncertainty=uncertainty)
    assert ("value" in parts) == (not math.isnan(value))
    assert "nan" not in str(parts)
    assert "inf" not in str(parts)
