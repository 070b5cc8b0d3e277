"""Films and pictures: what is refused, where pixels go, and that both drawings show the same."""

import base64
import dataclasses
import json
from io import BytesIO

import numpy as np
import pytest
from matplotlib.image import imread
from matplotlib.offsetbox import AnnotationBbox
from pictures import figure, panel

from saddlescope._shared.errors import InputError
from saddlescope.figures.records import MOST_FILM_BYTES
from saddlescope.plot import (
    LIGHT,
    Axis,
    Film,
    Line,
    Picture,
    draw_matplotlib,
    draw_plotly,
    draw_thumbnail,
)
from saddlescope.plot.curve_points import MOST_POINTS
from saddlescope.plot.film_images import framed, grid, png, ranges, sprite, strip
from saddlescope.plot.series import legend

HOSTILE = "<i>$x$</i> & %{y}"


def film(frames=5, grid=(2, 3), size=(4, 6), **options):
    """Return a film in which every image differs from every other."""
    images = np.random.default_rng(0).integers(0, 256, (frames, *grid, *size, 3), np.uint8)
    return Film(**{"steps": 10 * np.arange(frames), "images": images} | options)


IMAGE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)


@pytest.mark.parametrize(
    ("changes", "reported"),
    [
        ({"images": np.zeros((5, 2, 3, 4, 4, 3))}, "images must be .* of uint8, none of them empty; got .* of float64"),
        ({"images": np.zeros((5, 2, 3, 4, 4), np.uint8)}, r"images must be \(frame, row, column, height, width, 3\)"),
        ({"images": np.zeros((5, 2, 3, 4, 4, 4), np.uint8)}, "images must be"),
        ({"images": np.zeros((5, 0, 3, 4, 4, 3), np.uint8)}, "images must be"),
        ({"steps": np.array([0, 1, 2, 3])}, "steps must be rising, one for each of the 5 frames; got"),
        ({"steps": np.array([0, 1, 1, 2, 3])}, "steps must be rising"),
        ({"steps": np.array([0, 1, np.nan, 2, 3])}, "steps must be rising"),
        ({"rows": ("one",)}, r"rows must be 2 labels or none; got \('one',\)"),
        ({"columns": ("one", "two")}, "columns must be 3 labels or none"),
        ({"images": np.zeros((5, 100, 100, 16, 16, 3), np.uint8)}, f"at most {MOST_FILM_BYTES} bytes; got 38400000"),
    ],
)
def test_films_that_cannot_be_shown_are_refused(changes, reported):
    with pytest.raises(InputError, match=reported):
        film(**changes)


def test_pictures_lines_and_figures_that_cannot_be_shown_are_refused():
    with pytest.raises(InputError, match=r"image must be \(height, width, 3\) of uint8"):
        Picture(x=0.0, y=0.0, image=IMAGE / 255)
    for size in (0.0, -0.1, 1.5, np.nan):
        with pytest.raises(InputError, match="size must be above 0 and at most 1"):
            Picture(x=0.0, y=0.0, image=IMAGE, size=size)
    with pytest.raises(InputError, match="at must have one step for each of the 3 points; got 2"):
        Line(x=np.arange(3), y=np.arange(3), at=np.arange(2))
    with pytest.raises(InputError, match="panels must have at least one panel"):
        figure()


@pytest.mark.parametrize(("height", "gap"), [(4, 1), (40, 2)])
def test_a_grid_has_every_image_in_its_place_and_its_frame(height, gap):
    images = film(frames=1, size=(height, 6)).images[0]
    drawn = grid(images)
    assert drawn.shape == (2 * (height + 2 + gap), 3 * (6 + 2 + gap), 4)
    for row in range(2):
        for column in range(3):
            top, left = row * (height + 2 + gap), column * (6 + 2 + gap)
            shown = drawn[top : top + height + 2, left : left + 8, :3]
            np.testing.assert_array_equal(shown[1:-1, 1:-1], images[row, column])
            np.testing.assert_array_equal(np.unique(shown[[0, -1]]), [128])
            np.testing.assert_array_equal(np.unique(shown[:, [0, -1]]), [128])
    np.testing.assert_array_equal(drawn[..., 3].sum(), 255 * 6 * (height + 2) * 8)
    assert not drawn[-gap:].any()
    assert not drawn[:, -gap:].any()


@pytest.mark.parametrize("frames", [1, 2, 5, 7, 60])
def test_a_sprite_has_every_frame_row_by_row(frames):
    shown = film(frames=frames)
    drawn = sprite(shown)
    height, width, _ = grid(shown.images[0]).shape
    assert drawn.across * (drawn.down - 1) < frames <= drawn.across * drawn.down
    assert drawn.pixels.shape == (drawn.down * height, drawn.across * width, 4)
    for k in range(frames):
        top, left = k // drawn.across * height, k % drawn.across * width
        np.testing.assert_array_equal(drawn.pixels[top : top + height, left : left + width], grid(shown.images[k]))


def test_sprites_of_long_films_are_about_square():
    long = sprite(film(frames=300, grid=(8, 1), size=(16, 16))).pixels
    assert max(long.shape[:2]) < 2 * min(long.shape[:2])


def test_a_strip_shows_first_and_last_frame_and_says_where():
    shown = film(frames=6, size=(5, 7))
    for most, frames in ((1, [5]), (0, [5]), (2, [0, 5]), (3, [0, 2, 5]), (99, range(6))):
        drawn = strip(shown, most)
        assert drawn.frames.tolist() == list(frames)
        assert drawn.columns.shape == (len(frames), 3)
        for k, frame in enumerate(frames):
            for row in range(2):
                for column in range(3):
                    found = drawn.pixels[int(drawn.rows[row]), int(drawn.columns[k, column]), :3]
                    np.testing.assert_array_equal(found, shown.images[frame, row, column, 2, 3])


def test_png_keeps_every_pixel_and_is_the_same_again():
    for pixels in (IMAGE, grid(film().images[0])):
        read = imread(BytesIO(png(pixels)))
        np.testing.assert_array_equal((read[..., : pixels.shape[-1]] * 255).round(), pixels)
    assert png(IMAGE) == png(IMAGE.copy())
    assert b"atplotlib" not in png(IMAGE)


def test_there_is_room_above_the_points_of_pictures():
    marks = (
        Line(x=np.array([0.0, 4.0]), y=np.array([0.0, np.nan])),
        Picture(x=2.0, y=10.0, image=IMAGE, size=0.2),
        Picture(x=np.nan, y=99.0, image=IMAGE),
    )
    (left, right), (low, high) = ranges(panel(*marks[:2]))
    assert left < 0 < 4 < right
    assert low < 0
    assert 10 + 0.2 * (high - low) < high < 10 + 0.3 * (high - low)
    kept = panel(*marks, x=Axis("x", range=(-1.0, 9.0)), y=Axis("y", scale="log", range=(1e-2, 1e3)))
    assert ranges(kept) == ((-1, 9), (1e-2, 1e3))
    low, high = ranges(panel(*marks[:2], y=Axis("y", scale="log")))[1]
    assert low < 10 < high
    assert np.log10(10) + 0.2 * np.log10(high / low) < np.log10(high)


@pytest.fixture
def pinned():
    x = np.array([0.0, 0.5, 1.0])
    return figure(
        panel(
            Line(x=x, y=x**2, group="weak", color=3, at=np.array([0, 10, 30])),
            Picture(x=0.5, y=0.25, image=IMAGE, size=0.2, group="weak", label=HOSTILE),
            Picture(x=0.5, y=np.nan, image=IMAGE, group="weak"),
            Picture(x=0.75, y=1.0, image=IMAGE, color=1),
        ),
        panel(Line(x=x + 1, y=x, group="weak")),
        film=film(rows=(HOSTILE, "below"), columns=("a", "b", HOSTILE), unit=HOSTILE),
    )


def test_pictures_stand_at_their_points_in_both_drawings(pinned):
    spec = draw_plotly(pinned)["panels"][0]
    first, second = spec["layout"]["images"]
    low, high = spec["layout"]["yaxis"]["range"]
    assert first["x"] == 0.5
    assert 0.25 < first["y"] < 0.25 + 0.03 * (high - low)
    assert (first["xanchor"], first["yanchor"], first["sizing"]) == ("center", "bottom", "contain")
    assert first["sizey"] == pytest.approx(0.2 * (high - low))
    assert (second["x"], second["sizey"]) == (0.75, pytest.approx(0.12 * (high - low)))
    pixels = imread(BytesIO(base64.b64decode(first["source"].removeprefix("data:image/png;base64,"))))
    np.testing.assert_array_equal((pixels[..., :3] * 255).round(), framed(IMAGE))
    assert spec["layout"]["meta"]["pictures"] == ["weak", ""]
    assert spec["layout"]["meta"]["log"] == {"x": False, "y": False}
    ax = draw_matplotlib(pinned).subfigs[0].axes[0]
    assert ax.get_ylim() == pytest.approx((low, high))
    pins = [artist for artist in ax.artists if isinstance(artist, AnnotationBbox)]
    assert [pin.xy for pin in pins] == [(0.5, 0.25), (0.75, 1.0)]
    np.testing.assert_array_equal(pins[0].offsetbox.get_data(), framed(IMAGE))  # type: ignore[attr-defined]


def test_the_dots_of_pictures_have_the_colour_of_their_group(pinned):
    dots = [t for t in draw_plotly(pinned)["panels"][0]["data"] if t["mode"] == "markers"]
    assert [(t["meta"]["series"], t["meta"]["color"]) for t in dots] == [("weak", 3), ("weak", 3), ("", 1)]
    assert [t["x"] + t["y"] for t in dots] == [[0.5, 0.25], [0.5, None], [0.75, 1.0]]
    ax = draw_matplotlib(pinned).subfigs[0].axes[0]
    assert [line.get_color() for line in ax.lines] == [LIGHT.color(3), LIGHT.color(3), LIGHT.color(1)]
    assert [s.name for s in legend(pinned)] == ["weak"]


def test_pictures_on_logarithmic_axes_stand_where_the_points_are():
    log = Axis("t", scale="log")
    drawn = figure(
        panel(Picture(x=100.0, y=1e-3, image=IMAGE), Picture(x=0.0, y=1.0, image=IMAGE), x=log, y=log),
    )
    (image,) = draw_plotly(drawn)["panels"][0]["layout"]["images"]
    assert image["x"] == 2
    assert image["y"] == pytest.approx(-3, abs=0.1)
    (pin,) = draw_matplotlib(drawn).axes[0].artists
    assert isinstance(pin, AnnotationBbox)
    assert pin.xy == (100, 1e-3)


def test_steps_of_long_curves_stay_with_their_points():
    x = np.linspace(0, 1, 3 * MOST_POINTS)
    drawn = figure(panel(Line(x=x, y=np.sin(50 * x), at=1000 * x)), film=film())
    trace = draw_plotly(drawn)["panels"][0]["data"][0]
    assert len(trace["x"]) < len(x)
    np.testing.assert_allclose(trace["meta"]["at"], 1000 * np.array(trace["x"]), rtol=1e-5)


def test_what_a_page_must_know_of_a_film(pinned):
    spec = draw_plotly(pinned)
    json.dumps(spec, allow_nan=False)
    reported, pixels = spec["film"], sprite(pinned.film).pixels
    assert (reported["height"] * reported["down"], reported["width"] * reported["across"]) == pixels.shape[:2]
    assert reported["steps"] == [0, 10, 20, 30, 40]
    assert (reported["rows"], reported["columns"], reported["shape"]) == (
        [HOSTILE, "below"],
        ["a", "b", HOSTILE],
        [2, 3],
    )
    assert draw_plotly(figure(panel(Line(x=np.arange(2), y=np.arange(2)))))["film"] is None


def test_the_static_film_is_labelled_as_written(pinned):
    drawing = draw_matplotlib(pinned)
    (ax,) = drawing.subfigs[1].axes
    assert [label.get_text() for label in ax.get_yticklabels()] == [HOSTILE, "below"]
    (above,) = ax.child_axes
    assert [label.get_text() for label in above.get_xticklabels()] == ["0", "10", "20", "30", "40"]
    assert above.get_xlabel() == HOSTILE
    texts = [*ax.get_yticklabels(), *ax.get_xticklabels(), *above.get_xticklabels(), above.xaxis.label]
    assert not any(text.get_parse_math() for text in texts)
    np.testing.assert_array_equal(ax.images[0].get_array(), strip(pinned.film, 10).pixels)


def test_a_film_stands_beside_one_panel_and_below_several(pinned):
    left, right = draw_matplotlib(dataclasses.replace(pinned, panels=pinned.panels[:1])).subfigs
    assert left.bbox.x1 <= right.bbox.x0 + 1e-6
    assert left.bbox.y0 == right.bbox.y0
    above, below = draw_matplotlib(pinned).subfigs
    assert below.bbox.y1 <= above.bbox.y0 + 1e-6
    assert below.bbox.x0 == above.bbox.x0


@pytest.mark.parametrize("label", ["a", "a name " * 40])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 8), (40, 8, 1), (2, 4, 20)])
def test_films_of_any_shape_and_with_any_label_can_be_drawn(shape, label, tmp_path):
    frames, rows, columns = shape
    alone = figure(
        film=film(frames, (rows, columns), size=(8, 8), rows=(label,) * rows, columns=(label,) * columns, unit=label)
    )
    draw_matplotlib(alone).savefig(tmp_path / "film.png")
    seen = imread(tmp_path / "film.png")[..., :3]
    assert (np.ptp(seen, axis=2) > 0.05).mean() > 0.05, "the images are there"
    draw_thumbnail(alone).savefig(tmp_path / "thumbnail.png")
    assert draw_plotly(alone)["panels"] == []
