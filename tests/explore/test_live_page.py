"""The live page in a real browser: sliders, cancel, back, tabs, restarts, phones, dark mode, keyboard."""

import json
import re
import signal
from pathlib import Path

import pytest

from saddlescope.plot import DARK

pytestmark = pytest.mark.browser

PATIENCE = 120_000  # milliseconds; machines that run tests are busy


@pytest.fixture(scope="module")
def toys(make_server):
    """A server without an entry, which makes the toys ready."""
    return make_server(entry=())


@pytest.fixture
def visit(new_page):
    """Open a page and wait for its first picture."""

    def open_page(address, *, shown=True, **options):
        page = new_page(**options)
        page.set_default_timeout(PATIENCE)
        page.goto(address)
        if shown:
            page.wait_for_selector(".explore[data-shown]")
        return page

    return open_page


def own(server, query=""):
    return f"{server.address}{query}"


def toy(toys):
    return f"{toys.address}entry/toys/concepts"


def wait_shown(page, settings):
    """Wait until the run with these settings is shown."""
    page.wait_for_function(
        "wanted => { const shown = JSON.parse(document.querySelector('.explore').dataset.shown ?? '0');"
        " return JSON.stringify(Object.entries(shown).sort()) === wanted }",
        arg=json.dumps(sorted(map(list, settings.items())), separators=(",", ":")),
    )


def last_point(page, trace=-1):
    """Return the last y of a curve of the first panel."""
    return page.evaluate("k => document.querySelector('.plot').data.at(k).y.at(-1)", trace)


def press(page, name, key, times=1):
    slider = page.locator(f"[data-name={name}] .slide")
    slider.focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_a_slider_moves_the_picture_the_verdict_and_the_address(visit, server):
    page = visit(own(server))
    assert last_point(page) == 0.5
    press(page, "level", "End")
    wait_shown(page, {"level": "0.995"})
    assert last_point(page) == 0.995
    assert page.locator("[data-name=level] .exact").input_value() == "0.995"
    assert page.url.endswith("?level=0.995")
    assert "inside" in page.locator(".verdicts").inner_text()
    press(page, "level", "Home")
    wait_shown(page, {"level": "0.005"})
    assert "outside" in page.locator(".verdicts").inner_text()
    assert page.locator(".status .signs").inner_text() == "○ high: outside"


def test_a_drag_follows_the_slider_and_ends_in_one_address(visit, server):
    page = visit(own(server))
    press(page, "level", "End")  # a second run: the first one of a process is slow, and is not followed
    wait_shown(page, {"level": "0.995"})
    before = page.evaluate("history.length")
    box = page.locator("[data-name=level] .slide").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    for share in (0.55, 0.6, 0.65, 0.7):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
    page.wait_for_function(
        "() => !document.querySelector('.explore').dataset.shown.includes('0.995')"
    )  # the button is still down
    assert page.url.endswith("?level=0.995")
    page.mouse.up()
    page.wait_for_function("() => !location.search.includes('0.995')")
    value = page.locator("[data-name=level] .exact").input_value()
    wait_shown(page, {"level": value})
    assert last_point(page) == float(value)
    assert page.evaluate("history.length") == before + 1


def test_a_logarithmic_slider_and_an_exact_value(visit, server):
    page = visit(own(server))
    slider = page.locator("[data-name=scale] .slide")
    assert slider.get_attribute("aria-valuetext") == "0.1"
    press(page, "scale", "End")
    wait_shown(page, {"scale": "1"})
    exact = page.locator("[data-name=scale] .exact")
    exact.fill("0.01")
    exact.press("Enter")
    wait_shown(page, {"scale": "0.01"})
    assert 60 < int(slider.input_value()) < 72  # of 200, a third of three decades


def test_a_value_that_does_not_fit_is_refused_in_one_sentence(visit, server):
    page = visit(own(server), quiet=False)  # the browser reports the status 400
    page.locator("[data-name=level] .exact").fill("7")
    page.keyboard.press("Enter")
    problem = page.locator(".problem")
    problem.wait_for(state="visible")
    assert problem.inner_text().startswith("level must be above 0 and below 1; got 7")
    assert "wrong" in page.locator("[data-name=level]").get_attribute("class")
    page.get_by_role("button", name="Reset", exact=True).click()
    problem.wait_for(state="hidden")


def test_a_long_run_shows_progress_and_is_cancelled(visit, server):
    page = visit(own(server, "?seconds=600"), shown=False)
    page.get_by_role("button", name="Cancel").wait_for()
    page.wait_for_function("() => document.querySelector('.state').textContent.includes('s left')")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Cancelled.").wait_for()
    assert page.locator("progress").is_hidden()
    press(page, "level", "End")  # the page goes on
    page.get_by_role("button", name="Cancel").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("Cancelled.").wait_for()
    page.get_by_role("button", name="Reset", exact=True).click()
    wait_shown(page, {})


def test_the_last_runs_are_drawn_in_grey_and_return_and_axes_follow_the_current_one(visit, server):
    page = visit(own(server))
    for key, value in (("End", "0.995"), ("Home", "0.005")):
        press(page, "level", key)
        wait_shown(page, {"level": value})
    traces = "() => document.querySelector('.plot').data.map(t => [t.y.at(-1), t.meta.color])"
    assert sorted(page.evaluate(traces)) == [[0.005, 0], [0.5, None], [0.995, None]]
    assert page.evaluate(traces)[-1] == [0.005, 0]  # the current one is on top
    top = "() => document.querySelector('.plot')._fullLayout.yaxis.range[1]"
    assert page.evaluate(top) < 0.01
    page.get_by_role("button", name="Logarithmic y axis").click()
    page.wait_for_function(f"() => ({top})() < -2")  # exponents of ten
    page.go_back()
    wait_shown(page, {"level": "0.995"})
    assert page.locator("[data-name=level] .exact").input_value() == "0.995"
    page.go_back()
    wait_shown(page, {})
    assert last_point(page) == 0.5
    page.go_forward()
    wait_shown(page, {"level": "0.995"})
    assert last_point(page) == 0.995
    page.get_by_role("switch", name="overlay them in grey").uncheck()
    page.wait_for_function("() => document.querySelector('.plot').data.length === 1")
    page.locator(".runs-list button", has_text="level=0.005").click()
    wait_shown(page, {"level": "0.005"})
    assert page.locator(".runs-list [aria-current]").inner_text() == "level=0.005"


def test_an_address_is_opened_with_its_parameters_and_a_hostile_one_executes_nothing(visit, server):
    hostile = "%3Cimg%20src%3Dx%20onerror%3D%22document.title%3D'owned'%22%3E"
    page = visit(own(server, f"?level=0.25&points=7&prints=true&words={hostile}&{hostile}=1"))
    shown = json.loads(page.get_attribute(".explore", "data-shown"))
    assert {name: shown[name] for name in ("level", "points", "prints")} == {
        "level": "0.25", "points": "7", "prints": "true"
    }  # fmt: skip
    assert page.locator("[data-name=prints] .exact").is_checked()
    assert page.locator("[data-name=level]").get_attribute("class").split()[-1] == "changed"
    command = page.locator("[data-copy=command] code").inner_text()
    assert {"level=0.25", "points=7", "prints=True"} < set(re.findall(r"--set '?([^' ]+)", command))
    page.wait_for_timeout(300)
    assert page.title() != "owned"
    assert page.locator("img[src=x]").count() == 0
    assert "Words: <img src=x" in page.locator(".pictures .caption").inner_text()


def test_a_point_is_dragged(visit, toys):
    page = visit(toy(toys))
    handle = page.locator(".handle")
    box = handle.bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 60, middle[1] - 30, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.search.includes('signal') && location.search.includes('diversity')")
    shown = {name: page.locator(f"[data-name={name}] .exact").input_value() for name in ("diversity", "signal")}
    assert float(shown["diversity"]) > 0.3
    assert float(shown["signal"]) > 1.0
    wait_shown(page, shown)
    handle.focus()
    page.keyboard.press("ArrowLeft")
    value = "document.querySelector('[data-name=diversity] .exact').value"
    page.wait_for_function(f"() => Number({value}) < {shown['diversity']}")


def test_chosen_axes_and_series_stay(visit, toys):
    page = visit(toy(toys))
    page.get_by_role("button", name="Logarithmic y axis of learning").click()
    page.get_by_role("button", name="concept 2", exact=True).click()
    press(page, "signal", "End")
    wait_shown(page, {"signal": "2.5"})
    state = page.evaluate(
        "() => { const plot = document.querySelector('.plot'); return [plot._fullLayout.yaxis.type,"
        " plot.data.filter(t => t.meta.series === 'concept 2').some(t => t.visible !== false)]; }"
    )
    assert state == ["log", False]


def test_a_run_is_saved_and_copied(visit, server):
    page = visit(own(server, "?level=0.75"), permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Save this run").click()
    saved = page.locator(".saved", has_text="Stored in")
    saved.wait_for()
    file = saved.inner_text().removeprefix("Stored in ").removesuffix(".")
    assert file.startswith(str(server.home / "results" / "own" / "timed"))
    assert Path(file).is_file()
    for name, beginning in (("command", "saddlescope run own/timed"), ("Python", "from saddlescope")):
        page.get_by_role("button", name=f"Copy as {name}").click()
        page.get_by_role("button", name="Copied").first.wait_for()
        assert page.evaluate("navigator.clipboard.readText()").startswith(beginning)
        page.get_by_role("button", name=f"Copy as {name}").wait_for()


def test_two_tabs_do_not_disturb_each_other(visit, server):
    first = visit(own(server))
    second = visit(own(server, "?level=0.9"))
    press(first, "level", "Home")
    press(second, "level", "End")
    wait_shown(first, {"level": "0.005"})
    wait_shown(second, {"level": "0.995"})
    assert (last_point(first), last_point(second)) == (0.005, 0.995)
    assert first.locator(".runs-list li").count() == 2
    first.close()
    press(second, "level", "Home")
    wait_shown(second, {"level": "0.005"})


def test_a_page_survives_a_server_that_is_killed_and_restarted(visit, server):
    page = visit(own(server), quiet=False)  # the browser reports refused connections
    server.stop(signal.SIGKILL)
    press(page, "level", "End")
    page.locator(".gone").wait_for(state="visible")
    assert "saddlescope explore" in page.locator(".gone").inner_text()
    token, port = server.token, server.port
    server.start("--port", str(port))
    assert (server.token, server.port) == (token, port)
    page.locator(".gone").wait_for(state="hidden")
    wait_shown(page, {"level": "0.995"})


def test_on_a_phone_the_picture_comes_first_and_nothing_is_cut(visit, toys):
    page = visit(toy(toys), viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    picture, form = (page.locator(one).bounding_box() for one in (".panels", "form.controls"))
    assert picture["y"] < form["y"]
    page.locator(".control").last.scroll_into_view_if_needed()
    box = page.locator(".panel").first.bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] < 844 / 2
    page.evaluate("scrollTo(0, 0)")
    page.locator("[data-name=signal] .slide").tap(position={"x": 5, "y": 10})
    page.wait_for_function("() => location.search.startsWith('?signal=')")
    wait_shown(page, {"signal": page.locator("[data-name=signal] .exact").input_value()})
    page.goto(toys.address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_mode_has_dark_plots_and_follows_a_change(visit, toys):
    page = visit(toy(toys), color_scheme="dark")
    color = "() => document.querySelector('.plot').data.find(t => t.meta.series === 'concept 1').line.color"
    assert page.evaluate(color) == DARK.palette[0]
    press(page, "signal", "End")
    wait_shown(page, {"signal": "2.5"})
    assert page.evaluate(color) == DARK.palette[0]
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => ({color})() !== '{DARK.palette[0]}'")


def test_everything_is_reached_by_keyboard(visit, server):
    page = visit(own(server))
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                "() => { const e = document.activeElement; return e.closest('[data-name]')?.dataset.name"
                " ?? e.getAttribute('aria-label') ?? e.textContent.trim() }"
            )
        )
    names = {"seconds", "silent", "dies", "level", "points", "words", "Run", "Reset", "Save this run"}
    assert names | {"Copy as command", "Copy as Python", "quick values", "Skip to the content"} <= reached
    page.locator("[data-name=silent] .exact").focus()
    page.keyboard.press("Space")
    wait_shown(page, {"silent": "true"})
    unnamed = page.evaluate(
        "() => [...document.querySelectorAll('input, select, button')].filter(e => !(e.labels?.length ||"
        " e.getAttribute('aria-label') || e.textContent.trim())).length"
    )
    assert unnamed == 0


def test_runs_can_wait_for_the_button_and_a_size_is_chosen(visit, server):
    page = visit(own(server))
    assert page.url.endswith("own/timed")
    page.get_by_role("switch", name="run as I move").uncheck()
    press(page, "level", "End")
    page.wait_for_timeout(500)
    assert page.get_attribute(".explore", "data-shown") == "{}"
    page.get_by_role("button", name="Run", exact=True).click()
    wait_shown(page, {"level": "0.995"})
    page.locator("#size").select_option("default")
    page.wait_for_url("**/own/timed?size=default*")
    page.wait_for_selector(".explore[data-shown]")
    assert "saddlescope run own/timed --entry" in page.locator("[data-copy=command] code").inner_text()


def test_the_first_page_has_toys_with_pictures_and_finds_entries(visit, toys):
    page = visit(toys.address, shown=False)
    assert page.locator(".toys .card").count() == 5
    page.locator("#find").fill("softmax digits")
    page.get_by_text("1 found").wait_for()
    assert page.locator(".entries li:visible").inner_text().endswith("softmax-attention/digits")
    page.locator(".toys .card").first.locator("img").wait_for()
    page.get_by_role("link", name="The initial scale makes the staircase").click()
    page.wait_for_selector(".explore[data-shown]")
    assert page.locator("[aria-current=page]").inner_text() == "Scale"
    page.get_by_role("link", name="saddlescope").first.click()
    page.wait_for_url(toys.address)
