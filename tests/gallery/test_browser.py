"""The gallery in a real browser, from the file system and from a server. Needs Chromium; CI fails without it."""

import functools
import http.server
import threading
from urllib.parse import quote

import pytest

from saddlescope.plot import DARK, LIGHT

pytestmark = pytest.mark.browser

RUN = "tiny/staircase/default.html"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def server(site):
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


@pytest.fixture
def root(site):
    return f"file://{quote(str(site))}"


def visible(page, panel):
    """Return the names of the curves that a panel draws."""
    return page.evaluate(
        "k => document.querySelectorAll('.plot')[k].data.filter(t => t.visible !== false).map(t => t.meta.series)",
        panel,
    )


def paths(page, panel):
    return page.locator(".plot").nth(panel).locator(".scatterlayer .trace.scatter .js-line").count()


def axis(page, panel, name):
    return page.evaluate(
        "([k, name]) => { const a = document.querySelectorAll('.plot')[k]._fullLayout[name];"
        " return [a.type, a.range.map(Number)]; }",
        [panel, name],
    )


def test_every_plot_is_drawn_hostile_names_execute_nothing_and_the_data_can_be_saved(visit, root, results, tmp_path):
    page = visit(f"{root}/{RUN}")
    assert page.locator(".plot").count() == 3
    assert paths(page, 0) == 2
    assert paths(page, 1) == 2
    assert page.locator(".plot").nth(0).locator(".shapelayer path").count() == 4
    assert page.locator(".plot").nth(1).locator(".scatterlayer .js-fill").count() == 1
    assert page.locator(".plot").nth(2).locator(".heatmaplayer image").count() == 1
    for k in range(3):
        box = page.locator(".plot .main-svg").nth(3 * k).bounding_box()
        assert min(box["width"], box["height"]) > 200
    assert "<b>one</b>" in page.locator(".plot").nth(1).inner_text()
    of_plot, *of_labels = (
        each.bounding_box()
        for each in page.locator(".plot").nth(1).locator("xpath=. | .//*[@class='shape-label-text']").all()
    )
    assert len(of_labels) == 2
    for box in of_labels:  # upright or not, whole within the plot
        assert of_plot["y"] <= box["y"] <= box["y"] + box["height"] <= of_plot["y"] + of_plot["height"]
    for shown in (page, visit(f"{root}/index.html")):
        shown.wait_for_timeout(200)
        assert shown.title() != "owned"
        assert shown.locator("img[src=x]").count() == 0
        assert "<script>document.title='owned'</script>" in shown.inner_text("body")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="tiny-staircase-default.nc").click()
    waiting.value.save_as(tmp_path / "saved.nc")
    assert waiting.value.suggested_filename == "tiny-staircase-default.nc"
    assert (tmp_path / "saved.nc").read_bytes() == (results / "tiny/staircase/default.nc").read_bytes()


def test_links_lead_to_pages(visit, root):
    page = visit(f"{root}/index.html")
    page.wait_for_function(
        "[...document.querySelectorAll('.card img')].every(image => image.complete && image.naturalWidth > 0)"
    )
    page.get_by_role("link", name="A staircase in no time").first.click()
    page.wait_for_selector("html[data-drawn]", state="attached")
    assert page.url.endswith(RUN)
    page.get_by_role("link", name="quick", exact=True).click()
    page.wait_for_selector("html[data-drawn]", state="attached")
    assert page.url.endswith("quick.html")
    page.get_by_role("link", name="saddlescope").click()
    assert page.url.endswith("index.html")


def test_series_are_switched_in_all_panels(visit, server):
    page = visit(f"{server}/{RUN}")
    switch = page.get_by_role("button", name="α = 1e-08")
    assert switch.get_attribute("aria-pressed") == "true"
    before = visible(page, 0), visible(page, 1)
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    assert visible(page, 0) == ["α = 0.01"]
    assert visible(page, 1) == ["α = 0.01"]
    assert (paths(page, 0), paths(page, 1)) == (1, 1)
    switch.focus()
    page.keyboard.press("Enter")
    assert (visible(page, 0), visible(page, 1)) == before
    marks = page.locator(".plot").nth(0).locator(".shapelayer path")
    page.get_by_role("button", name="predicted").click()
    assert marks.count() == 0
    page.get_by_role("button", name="predicted").click()
    assert marks.count() == 4


def opacities(page, panel):
    """Return the opacities of the curves of a panel by series."""
    return page.evaluate(
        "k => Object.fromEntries([...document.querySelectorAll('.plot')[k].data]"
        ".filter(t => t.meta.kind === 'line').map(t => [t.meta.series, t.opacity]))",
        panel,
    )


def test_the_series_that_is_pointed_at_stands_out(visit, server):
    page = visit(f"{server}/{RUN}", viewport={"width": 1280, "height": 1200})
    before = opacities(page, 0), opacities(page, 1)
    switch = page.get_by_role("button", name="α = 1e-08")
    stands_out = (
        "([a, b]) => { const [p] = document.querySelectorAll('.plot');"
        " const of = Object.fromEntries(p.data.map(t => [t.meta.series, t.opacity]));"
        " return of['α = 1e-08'] === a && of['α = 0.01'] === b; }"
    )
    switch.hover()
    page.wait_for_function(stands_out, arg=[1, 0.12])
    assert opacities(page, 1)["α = 0.01"] == 0.12
    page.mouse.move(5, 5)
    page.wait_for_function(stands_out, arg=[1, 1])
    assert (opacities(page, 0), opacities(page, 1)) == before
    page.keyboard.press("Tab")
    switch.focus()
    page.wait_for_function(stands_out, arg=[1, 0.12])
    page.keyboard.press("Enter")  # hidden: nothing is pointed at
    page.wait_for_function(stands_out, arg=[1, 1])
    page.keyboard.press("Enter")
    box = page.locator(".plot").nth(0).locator(".nsewdrag").bounding_box()
    for step in range(4, 60):
        page.mouse.move(box["x"] + 0.2 * box["width"], box["y"] + step / 100 * box["height"])
        if page.locator(".hoverlayer .hovertext").count():
            break
    page.locator(".legend .pointed").wait_for()
    assert 0.12 in opacities(page, 0).values()


def test_axes_of_integers_have_no_ticks_between_them(visit, server):
    page = visit(f"{server}/{RUN}", viewport={"width": 1280, "height": 1200})
    last = page.locator(".plot").nth(2)  # cells of stages over time
    for low, high in ((-0.5, 3.5), (1.2, 2.9), (-10, 90), (0, 1.5)):
        last.evaluate("(plot, range) => Plotly.relayout(plot, {'yaxis.range': range})", [low, high])
        page.wait_for_timeout(100)
        ticks = last.locator(".ytick text").all_text_contents()
        assert ticks
        assert all("." not in tick for tick in ticks), (low, high, ticks)
    last.evaluate("plot => Plotly.relayout(plot, {'xaxis.range': [0, 1.5]})")
    page.wait_for_timeout(100)
    assert any("." in tick for tick in last.locator(".xtick text").all_text_contents())


def shown_cards(page):
    return page.locator(".card:visible h3").all_inner_texts()


def test_the_index_is_filtered_and_the_address_holds_the_filter(visit, root):
    page = visit(f"{root}/index.html")
    count = len(shown_cards(page))
    assert count >= 1
    search = page.get_by_role("searchbox")
    search.fill("STAIR no time")
    assert len(shown_cards(page)) == count
    assert page.url.endswith("#words=STAIR+no+time")
    search.fill("nothing has this")
    assert shown_cards(page) == []
    assert page.locator(".filter output").inner_text() == "Nothing matches."
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("() => !location.hash")
    assert len(shown_cards(page)) == count
    page.get_by_label("Kind of claim").select_option("printed")
    page.get_by_label("Verdict").select_option("fails")
    assert len(shown_cards(page)) == count
    page.get_by_label("Verdict").select_option("undecided")  # a claim of another kind is
    assert shown_cards(page) == []
    again = visit(page.url)
    assert shown_cards(again) == []
    assert again.get_by_label("Verdict").input_value() == "undecided"
    again.get_by_label("Kind of claim").select_option("")
    again.get_by_label("Paper").select_option("tiny")
    assert len(shown_cards(again)) == count
    strange = visit(f"{root}/index.html#paper=gone&kind=%3Cimg%20src=x%3E")
    assert len(shown_cards(strange)) == count


def test_arrows_turn_the_page_unless_something_else_uses_them(visit, server):
    page = visit(f"{server}/{RUN}")
    page.evaluate(
        'document.querySelector(\'.turn\').innerHTML = \'<a rel="next" href="#turned">next</a>'
        '<a rel="prev" href="#back">previous</a>\''
    )
    page.get_by_role("button", name="α = 1e-08").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("location.hash") == ""
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("location.hash === '#turned'")
    page.keyboard.press("Alt+ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("location.hash === '#back'")


def test_axes_become_logarithmic_and_linear_again(visit, server):
    page = visit(f"{server}/{RUN}")
    loss, rank = (page.get_by_role("button", name=f"Logarithmic y axis of {name}") for name in ("loss", "rank"))
    assert (loss.get_attribute("aria-pressed"), rank.get_attribute("aria-pressed")) == ("true", "false")
    assert (axis(page, 0, "yaxis")[0], axis(page, 1, "yaxis")[0]) == ("log", "linear")
    low, high = axis(page, 1, "yaxis")[1]
    loss.click()
    assert axis(page, 0, "yaxis")[0] == "linear"
    rank.click()
    assert axis(page, 1, "yaxis")[0] == "log"
    edges = page.evaluate("document.querySelectorAll('.plot')[1].data.find(t => t.meta.kind === 'band').y")
    assert min(edges) > 0
    assert paths(page, 1) == 2
    rank.click()
    assert axis(page, 1, "yaxis") == ["linear", [pytest.approx(low), pytest.approx(high)]]
    edges = page.evaluate("document.querySelectorAll('.plot')[1].data.find(t => t.meta.kind === 'band').y")
    assert min(edges) < 0
    assert page.locator(".panel").nth(2).get_by_role("button", name="Logarithmic").count() == 0


def test_a_plot_is_zoomed_by_dragging_and_reset_by_a_double_click(visit, server):
    page = visit(f"{server}/{RUN}", viewport={"width": 1280, "height": 1200})
    whole = axis(page, 0, "xaxis")[1]
    box = page.locator(".plot").nth(0).locator(".nsewdrag").bounding_box()
    x, y, width, height = (box[key] for key in ("x", "y", "width", "height"))
    page.mouse.move(x + 0.3 * width, y + 0.3 * height)
    page.mouse.down()
    page.mouse.move(x + 0.6 * width, y + 0.7 * height, steps=5)
    page.mouse.up()
    low, high = axis(page, 0, "xaxis")[1]
    assert high - low == pytest.approx(0.3 * (whole[1] - whole[0]), rel=0.05)
    page.wait_for_timeout(400)  # else the double click counts as a third and fourth
    page.mouse.dblclick(x + 0.5 * width, y + 0.5 * height)
    page.wait_for_function(
        "low => Math.abs(document.querySelector('.plot')._fullLayout.xaxis.range[0] - low) < 1e-6", arg=whole[0]
    )


@pytest.mark.parametrize("name", ["index.html", RUN])
def test_a_phone_shows_a_picture_first_and_never_scrolls_sideways(visit, server, name):
    phone = {"viewport": {"width": 360, "height": 740}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}
    page = visit(f"{server}/{name}", **phone)
    page.locator("h1").evaluate("title => { title.textContent = 'A staircase in no time' }")  # as long as titles are
    box = page.locator(".plot, .card img").first.bounding_box()
    assert box["y"] + box["height"] < 740, "above the fold"
    assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
    for box in page.locator(".plot, .card, .scroll").evaluate_all(
        "all => all.map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right])"
    ):
        assert 0 <= box[0] < box[1] <= 360
    if name == RUN:  # a finger on a plot scrolls the page
        assert page.evaluate("document.querySelector('.plot')._fullLayout.dragmode") is False


LOW_CONTRAST = """
() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const luminance = ([r, g, b]) => [r, g, b].map((v) => (v /= 255, v <= 0.04045 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, k) => s + v * [0.2126, 0.7152, 0.0722][k], 0);
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] === 1) return c; } };
  const low = [];
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!text || e.closest(".plot, script, noscript") || !e.getClientRects().length) continue;
    const [a, b] = [luminance(parse(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) low.push([e.className, (a + 0.05) / (b + 0.05)]);
  }
  return low;
}"""
"""Text whose contrast is below 4.5 to 1 (WCAG 2.2, 1.4.3)."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_and_plots_follow_the_system_text_stands_out_and_paper_is_white(visit, server, scheme):
    themes = {"light": LIGHT, "dark": DARK}
    page = visit(f"{server}/{RUN}", color_scheme=scheme)
    follows_theme(page, themes[scheme])
    assert page.evaluate(LOW_CONTRAST) == []
    other = {"light": "dark", "dark": "light"}[scheme]
    page.emulate_media(color_scheme=other)
    follows_theme(page, themes[other])
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    follows_theme(page, LIGHT)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    follows_theme(page, themes[other])
    index = visit(f"{server}/index.html", color_scheme=scheme)
    chosen = "name => document.querySelector('.card img').currentSrc.endsWith(name)"  # soon after the page is loaded
    index.wait_for_function(chosen, arg=f"thumbnail-{scheme}.png")
    assert index.evaluate(LOW_CONTRAST) == []


def follows_theme(page, theme):
    """Wait until the page and all its drawings have the colours of a theme."""

    def rgb(color):
        return "rgb({}, {}, {})".format(*(int(color[i : i + 2], 16) for i in (1, 3, 5)))

    wanted = {
        "body color": [rgb(theme.ink)],
        ".panel backgroundColor": [rgb(theme.paper)] * 3,
        ".legend .swatch color": [rgb(color) for color in (*theme.palette[:2], theme.muted)],
        ".scatterlayer .js-line stroke": [rgb(theme.palette[k]) for k in (0, 1, 0, 1)],
        ".scatterlayer .js-fill fill": [rgb(theme.palette[1])],
        ".shapelayer path stroke": [rgb(theme.muted)] * 6,
        ".g-xtitle text fill": [rgb(theme.ink)] * 3,
    }
    script = """
    (wanted) => Object.entries(wanted).every(([asked, colors]) => {
      const [, query, name] = asked.match(/(.*) (\\w+)/);
      const found = [...document.querySelectorAll(query)].map((e) => getComputedStyle(e)[name]);
      return JSON.stringify(found) === JSON.stringify(colors);
    })"""
    page.wait_for_function(script, arg=wanted)


def test_the_command_can_be_copied(visit, server):
    page = visit(f"{server}/{RUN}", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "saddlescope run tiny/staircase"


def test_without_scripts_the_pictures_are_there(visit, server):
    page = visit(f"{server}/{RUN}", java_script_enabled=False)
    assert page.locator("img.still").count() == 2
