"""Films and pictures on a page in a real browser: what is shown at which step, by slider, keys and play."""

import shutil
from dataclasses import replace
from io import BytesIO
from urllib.parse import quote

import numpy as np
import pytest

import tiny
from saddlescope.gallery import build
from saddlescope.plot import Axis, Figure, Film, Line, Panel, Picture

pytestmark = pytest.mark.browser

STEPS = np.array([1, 10, 100, 1000, 5000])
COLORS = np.array([[250, 0, 0], [0, 250, 0], [0, 0, 250], [250, 250, 0], [0, 250, 250]], np.uint8)  # of the frames


def figures(_):
    """Return a film with one colour per frame in two rows of three, the lower row half as bright, and a still grid."""
    images = np.zeros((5, 2, 3, 8, 8, 3), np.uint8)
    images[:, 0] = COLORS[:, None, None, None]
    images[:, 1] = COLORS[:, None, None, None] // 2
    x = np.array([0.0, 0.5, 1.0])
    panel = Panel(
        x=Axis("colour"),
        y=Axis("size"),
        marks=(
            Line(x=x, y=x**2, at=np.array([5, 100, 2000]), group="measured"),
            Line(x=x, y=x, group="without steps"),
            Picture(x=0.5, y=0.25, image=images[2, 0, 0], group="measured", label=tiny.HOSTILE),
            Picture(x=0.9, y=0.9, image=images[3, 0, 0]),
        ),
    )
    film = Film(steps=STEPS, images=images, rows=("upper", tiny.HOSTILE), columns=("a", "b", "c"))
    still = Film(steps=np.array([0]), images=images[:1], rows=film.rows)
    return [
        Figure(name="film", title="A film", caption="", panels=(panel,), film=film),
        Figure(name="still", title="A grid", caption="", panels=(), film=still),
    ]


@pytest.fixture(scope="module")
def films(results, tmp_path_factory):
    """Return the address of a page with a film."""
    folder = tmp_path_factory.mktemp("films # 100%")
    shutil.copy(results / "tiny/staircase/quick.nc", folder)
    entry = replace(tiny.ENTRY, figures=figures)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saddlescope.reproduction.entry.find_entry", lambda _: entry)
        build(folder, folder / "site")
    return f"file://{quote(str(folder))}/site/tiny/staircase/quick.html"


def middle(page, row, film=0):
    """Return the displayed colour in the middle of the first image of a row of a film."""
    from matplotlib.image import imread

    seen = imread(BytesIO(page.locator(".film .window").nth(film).screenshot()))[..., :3] * 255
    return seen[int((row + 0.5) / 2 * len(seen)), int(seen.shape[1] / 6)].round()


def dots(page):
    """Return the positions of the dots of the first panel."""
    return page.evaluate(
        "[...document.querySelector('.plot').data].filter(t => t.meta.kind === 'dot').map(t => [t.x[0], t.y[0]])"
    )


def test_the_slider_moves_the_images_and_the_dots(visit, films):
    page = visit(films)
    slider = page.get_by_role("slider", name="step shown")
    reported = page.locator(".shown-step")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.film img')].every(i => i.complete && i.naturalWidth > 0)"
    )
    assert page.get_by_role("slider").count() == 1, "what has one frame has no slider"
    slider.focus()
    for frame, point in ((0, [None, None]), (1, [0, 0]), (2, [0.5, 0.25]), (3, [0.5, 0.25]), (4, [1, 1])):
        assert page.locator(".shown-frame").inner_text() == f"frame {frame + 1} of 5"
        assert reported.inner_text() == slider.get_attribute("aria-valuetext") == f"step {STEPS[frame]}"
        assert page.get_by_role("img", name=f"A film, step {STEPS[frame]}", exact=True).count() == 1
        np.testing.assert_allclose(middle(page, 0), COLORS[frame], atol=2)
        np.testing.assert_allclose(middle(page, 1), COLORS[frame] // 2, atol=2)
        assert dots(page) == [point]
        page.keyboard.press("ArrowRight")
    assert page.title() != "owned"
    assert page.locator("img[src=x]").count() == 0
    assert tiny.HOSTILE in page.locator(".film .rows").first.inner_text()
    page.keyboard.press("Home")
    assert reported.inner_text() == "step 1"
    for name, step in (("Previous", 1), ("Next", 10), ("Next", 100), ("Previous", 10)):
        page.get_by_role("button", name=f"{name} frame").click()
        assert reported.inner_text() == f"step {step}"
    np.testing.assert_allclose(middle(page, 0, film=1), COLORS[0], atol=2)


def test_a_film_is_played_and_paused_and_never_for_who_wants_little_motion(visit, films):
    page = visit(films)
    button, reported = page.get_by_role("button", name="Play"), page.locator(".shown-step")
    button.click()
    assert reported.inner_text() == "step 1"
    page.get_by_role("button", name="Pause").click()
    stands_still(page)
    button.click()
    page.wait_for_function("() => document.querySelector('.shown-step').textContent === 'step 5000'")
    button.click()
    page.emulate_media(reduced_motion="reduce")
    page.locator(".film .play[hidden]").wait_for(state="attached")
    stands_still(page)
    assert button.count() == 0


def stands_still(page):
    reported = page.locator(".shown-step").inner_text()
    page.wait_for_timeout(700)
    assert page.locator(".shown-step").inner_text() == reported


def test_pictures_stand_above_their_points_and_are_switched(visit, films):
    page = visit(films)
    images = page.locator(".plot .imagelayer image")
    assert images.count() == 2
    dot, image = (
        page.locator(f".plot {query}").first.bounding_box() for query in (".points path", ".imagelayer image")
    )
    assert image["y"] + image["height"] <= dot["y"] + dot["height"]
    assert abs(image["x"] + image["width"] / 2 - dot["x"] - dot["width"] / 2) < 1.5
    page.get_by_role("button", name="measured").click()
    assert images.count() == 1
    assert page.locator(".plot .points path").count() == 1, "neither the moving dot nor the picture's is left"
    page.get_by_role("button", name="measured").click()
    assert images.count() == 2


def test_films_fit_phones_screens_and_paper(visit, films):
    page = visit(films)
    for width in (360, 700, 1280):
        page.set_viewport_size({"width": width, "height": 740})
        page.wait_for_function("() => document.documentElement.scrollWidth === innerWidth")  # once plots have followed
        for film in page.locator(".film").all():
            box = film.bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= width
            shows_one_frame(film)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    shows_one_frame(page.locator(".film").first)
    assert not page.get_by_role("slider").is_visible()
    assert page.locator(".shown-step").inner_text() == "step 5000"


def shows_one_frame(film):
    """Two rows of three images of 8 x 8 pixels in frames, each but the last with a gap of one pixel."""
    box = film.locator(".window").bounding_box()
    assert box["width"] / box["height"] == pytest.approx(32 / 21, rel=0.02)


def test_without_scripts_films_are_strips(visit, films):
    page = visit(films, java_script_enabled=False)
    assert page.locator("img.still").evaluate_all("all => all.map(i => i.naturalWidth > 100)") == [True, True]
    assert page.get_by_role("slider").count() == 0
