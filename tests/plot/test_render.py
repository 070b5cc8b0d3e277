import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pictures import figure, panel

from saddlescope.plot import (
    DARK,
    LIGHT,
    Axis,
    Band,
    Heat,
    Line,
    Mark,
    draw_matplotlib,
    draw_plotly,
    draw_thumbnail,
)
from saddlescope.plot.curve_points import MOST_POINTS, lifted, thin
from saddlescope.plot.series import first_legend, legend

T = np.linspace(0, 10, 51)
LOG = Axis("loss", scale="log")


@pytest.fixture
def everything():
    mean = np.sin(T)
    return figure(
        panel(
            Line(x=T, y=mean, group="layer 1"),
            Band(x=T, low=mean - 0.1, high=mean + 0.1, group="layer 1"),
            Line(x=T, y=2 * mean, label="alone", style="dashed"),
            Mark(at=3.0, group="predicted"),
            Mark(at=0.5, axis="y", label="half"),
        ),
        panel(
            Line(x=T, y=np.cos(T), group="layer 2"),
            Line(x=T, y=np.cos(2 * T), group="layer 1", style="steps"),
            Line(x=T, y=np.cos(T), color=2, style="points"),
            y=LOG,
        ),
        panel(Heat(x=T, y=np.arange(3), z=np.outer([1e-9, 1, 0], T), scale="log", label="z")),
    )


def linear(color):
    channels = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(a, b):
    light, dark = sorted((linear(c) @ [0.2126, 0.7152, 0.0722] for c in (a, b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def oklab(rgb):
    """Björn Ottosson's perceptual space."""
    cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    axes = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return np.array(axes) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


# Machado, Oliveira and Fernandes 2009, severity 1.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_the_palette_stays_apart_for_every_eye(theme, sight):
    seen = [oklab(SIGHT[sight] @ linear(color)) for color in theme.palette]
    apart = [np.linalg.norm(a - b) for i, a in enumerate(seen) for b in seen[:i]]
    assert min(apart) > 0.075


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_everything_stands_out_from_its_paper(theme):
    assert min(contrast(color, theme.paper) for color in theme.palette) >= 3
    assert contrast(theme.ink, theme.paper) >= 7
    assert contrast(theme.muted, theme.paper) >= 4.5


def test_series_share_one_colour_in_all_panels_and_both_drawings(everything):
    spec, drawn = draw_plotly(everything), draw_matplotlib(everything)
    lines = [[t for t in p["data"] if t["meta"]["kind"] == "line"] for p in spec["panels"]]
    assert [[t["meta"]["color"] for t in p] for p in lines] == [[0, 1], [3, 0, 2], []]
    for ax, traces in zip(drawn.axes, lines, strict=False):
        curves = [line for line in ax.lines if np.size(line.get_xdata()) > 2]
        colors = [(t.get("line") or t["marker"])["color"] for t in traces]
        assert [line.get_color() for line in curves] == colors == [LIGHT.color(t["meta"]["color"]) for t in traces]
    band = next(t for t in spec["panels"][0]["data"] if t["meta"]["kind"] == "band")
    assert band["meta"]["color"] == 0


def test_the_legend_has_every_series_once(everything):
    assert [(s.name, s.color, s.shape) for s in legend(everything)] == [
        ("layer 1", 0, "solid"),
        ("alone", 1, "dashed"),
        ("predicted", None, "mark"),
        ("layer 2", 3, "solid"),
    ]
    assert [s.name for s in first_legend(everything)] == ["layer 1", "alone", "predicted"]
    shown = draw_matplotlib(everything).legends[0]
    assert [text.get_text() for text in shown.get_texts()] == ["layer 1", "alone", "predicted", "layer 2"]


def test_solid_curves_whose_colours_repeat_are_dashed_otherwise():
    drawn = figure(panel(*(Line(x=T, y=T + k, label=str(k)) for k in range(9)), Line(x=T, y=T, color=8, style="steps")))
    spec, again = draw_plotly(drawn), len(LIGHT.palette)
    assert [s["shape"] for s in spec["legend"]] == ["solid"] * again + ["dashdot"] * (9 - again)
    dashes = [trace["line"]["dash"] for trace in spec["panels"][0]["data"]]
    assert dashes == ["solid"] * again + ["9px,3px,2px,3px"] * (9 - again) + ["solid"]
    ax = draw_matplotlib(drawn).axes[0]
    assert [line.get_linestyle() for line in ax.lines] == ["-"] * again + ["--"] * (9 - again) + ["-"]


@pytest.mark.parametrize(
    ("x", "integers"),
    [([1, 2, 3], True), ([0, 40], True), ([0.5, 1, 2], False), ([2, 2], False), ([1, np.nan, 3], True), ([], False)],
)
def test_axes_of_integers_have_integer_ticks(x, integers):
    drawn = figure(panel(Line(x=np.array(x, float), y=np.full(len(x), 0.5)), Mark(at=0.3, axis="y")))
    assert draw_plotly(drawn)["panels"][0]["layout"]["meta"]["integer"] == {"x": integers, "y": False}
    drawing = draw_matplotlib(drawn)
    drawing.canvas.draw()
    ticks = drawing.axes[0].get_xticks()
    assert len(ticks) > 1
    if integers:
        np.testing.assert_array_equal(ticks, np.round(ticks))
    logarithmic = figure(panel(Line(x=np.array([1.0, 2]), y=np.array([0.5, 1])), x=Axis("n", scale="log")))
    assert draw_plotly(logarithmic)["panels"][0]["layout"]["meta"]["integer"]["x"] is False


def test_plotly_itself_accepts_what_is_written(everything):
    from plotly.graph_objects import Figure as PlotlyFigure

    spec = draw_plotly(everything)
    json.dumps(spec, allow_nan=False)
    for drawn in spec["panels"]:
        PlotlyFigure(data=drawn["data"], layout=drawn["layout"])


def test_nothing_offers_to_upload_the_data(everything):
    config = draw_plotly(everything)["panels"][0]["config"]
    assert config["showSendToCloud"] is False
    assert "sendChartToCloud" in config["modeBarButtonsToRemove"]


def test_marks_stand_where_they_are(everything):
    upright, level = draw_plotly(everything)["panels"][0]["layout"]["shapes"]
    assert (upright["x0"], upright["x1"], upright["xref"], upright["yref"]) == (3, 3, "x", "paper")
    assert (level["y0"], level["y1"], level["yref"], level["xref"]) == (0.5, 0.5, "y", "paper")
    assert level["label"]["text"] == "half"
    ax = draw_matplotlib(everything).axes[0]
    assert [np.asarray(line.get_xdata()).tolist() for line in ax.lines[-2:]] == [[3, 3], [0, 1]]


def test_steps_hold_their_value_until_the_next(everything):
    trace = next(t for t in draw_plotly(everything)["panels"][1]["data"] if t["name"] == "layer 1")
    assert trace["line"]["shape"] == "hv"
    drawn = draw_matplotlib(everything).axes[1].lines[1]
    assert drawn.get_drawstyle() == "steps-post"


def test_what_is_not_positive_leaves_a_logarithmic_axis():
    y = np.array([1.0, 0.0, -2.0, 1e-3])
    drawn = figure(panel(Line(x=np.arange(4.0), y=y), y=LOG))
    (line,) = draw_matplotlib(drawn).axes[0].lines
    np.testing.assert_array_equal(line.get_ydata(), [1.0, np.nan, np.nan, 1e-3])
    assert draw_plotly(drawn)["panels"][0]["data"][0]["y"] == [1.0, 0.0, -2.0, 1e-3]  # Plotly leaves it out itself


def test_bands_reach_down_to_their_smallest_positive_edge():
    x, low, high = np.arange(3.0), np.array([0.5, -1.0, 0.0]), np.array([2.0, 3.0, 0.25])
    spec = {
        scale: draw_plotly(figure(panel(Band(x=x, low=low, high=high), y=Axis("y", scale=scale))))["panels"][0]["data"][
            0
        ]
        for scale in ("linear", "log")
    }
    assert spec["linear"]["y"] == [2, 3, 0.25, 0, -1, 0.5]
    assert spec["log"]["y"] == [2, 3, 0.25, 0.25, 0.25, 0.5]
    assert spec["linear"]["meta"]["y"] == spec["log"]["meta"]["y"]
    np.testing.assert_array_equal(lifted(low, high)[0], [0.5, 0.25, 0.25])


def test_bands_break_where_values_are_missing():
    low = np.array([1.0, 1.0, np.nan, 1.0, 1.0])
    trace = draw_plotly(figure(panel(Band(x=np.arange(5.0), low=low, high=low + 1))))["panels"][0]["data"][0]
    assert trace["x"] == [0, 1, 1, 0, None, 3, 4, 4, 3]
    assert trace["y"] == [2, 2, 1, 1, None, 2, 2, 1, 1]


def test_axes_that_would_be_empty_cannot_be_logarithmic(everything):
    below = figure(panel(Line(x=-T, y=-T), Mark(at=1.0)))
    assert draw_plotly(below)["panels"][0]["layout"]["meta"]["log"] == {"x": False, "y": False}
    can = [p["layout"]["meta"]["log"] for p in draw_plotly(everything)["panels"]]
    assert can == [{"x": True, "y": True}, {"x": True, "y": True}, {"x": False, "y": False}]


def test_ranges_are_kept_on_both_kinds_of_axis():
    drawn = figure(panel(Line(x=T, y=T), x=Axis("t", range=(1.0, 9.0)), y=Axis("y", scale="log", range=(1e-4, 1e2))))
    layout = draw_plotly(drawn)["panels"][0]["layout"]
    assert layout["xaxis"]["range"] == [1, 9]
    assert layout["yaxis"]["range"] == [-4, 2]
    ax = draw_matplotlib(drawn).axes[0]
    assert ax.get_xlim() == (1, 9)
    assert ax.get_ylim() == (1e-4, 1e2)


def test_text_is_shown_as_it_stands():
    hostile = "<i>$x$</i> & %{y}"
    drawn = figure(panel(Line(x=T, y=T, label=hostile), Mark(at=1.0, label=hostile), x=Axis(hostile), y=Axis(hostile)))
    trace, layout = (draw_plotly(drawn)["panels"][0][part] for part in ("data", "layout"))
    axes, label = [layout[axis]["title"]["text"] for axis in ("xaxis", "yaxis")], layout["shapes"][0]["label"]["text"]
    assert {trace[0]["name"], label, *axes} == {"&lt;i&gt;$x$&lt;/i&gt; &amp; %{y}"}
    assert "<i>" not in trace[0]["hovertemplate"]
    assert trace[0]["hovertemplate"].count("%{y}") == 1
    ax = draw_matplotlib(drawn).axes[0]
    texts = [ax.xaxis.label, ax.yaxis.label, *ax.texts, *ax.figure.legends[0].get_texts()]
    assert {text.get_text() for text in texts} == {hostile}
    assert not any(text.get_parse_math() for text in texts)


def test_heat_keeps_its_orientation():
    z = np.array([[1.0, 10.0], [0.0, 1000.0], [1e-3, 1.0]])
    drawn = figure(panel(Heat(x=np.arange(2), y=np.arange(3), z=z, scale="log", label="z")))
    trace = draw_plotly(drawn)["panels"][0]["data"][0]
    assert trace["z"] == [[0, 1], [None, 3], [-3, 0]]
    assert trace["customdata"][1] == [0, 1000]
    (mesh,) = draw_matplotlib(drawn).axes[0].collections
    values = mesh.get_array()
    assert values is not None
    np.testing.assert_array_equal(np.ma.filled(values, np.nan), np.where(z > 0, z, np.nan))


@given(arrays(float, st.integers(5, 400), elements=st.floats(-1e6, 1e6) | st.just(np.nan)), st.integers(8, 60))
def test_thinning_keeps_ends_and_extremes(y, most):
    x = np.linspace(0, 1, len(y))
    keep = thin(x, y, most=most)
    assert (np.diff(keep) > 0).all()
    assert {0, len(y) - 1} <= set(keep)
    if np.isfinite(y).any():
        assert np.nanmin(y[keep]) == np.nanmin(y)
        assert np.nanmax(y[keep]) == np.nanmax(y)
    assert np.isnan(y[keep]).any() == np.isnan(y).any()


def test_thinning_leaves_short_curves_alone_and_bounds_long_ones():
    x = np.linspace(0, 1, 200_000)
    assert len(thin(x[:MOST_POINTS], x[:MOST_POINTS])) == MOST_POINTS
    noise = np.random.default_rng(0).normal(size=(2, len(x)))
    assert len(thin(x, noise[0])) <= 1.1 * MOST_POINTS
    assert len(thin(x, *noise)) <= 1.1 * MOST_POINTS


def test_thinning_shows_every_decade_of_a_logarithmic_axis():
    x = np.linspace(0, 1e6, 1_000_001)
    kept = x[thin(x, np.sin(x))]
    for decade in range(1, 6):
        assert ((kept >= 10.0**decade) & (kept < 10.0 ** (decade + 1))).sum() > 50


def test_a_pulse_of_one_point_survives_thinning():
    x, y = np.linspace(0, 1, 100_000), np.zeros(100_000)
    y[31_234] = 1.0
    assert 31_234 in thin(x, y)


def test_panels_stand_in_rows_of_columns(everything):
    positions = [ax.get_subplotspec() for ax in draw_matplotlib(everything).axes[:3]]
    assert [(p.rowspan.start, p.colspan.start) for p in positions if p is not None] == [(0, 0), (0, 1), (1, 0)]


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_thumbnails_are_drawn(everything, theme, tmp_path):
    draw_thumbnail(everything, theme=theme).savefig(tmp_path / "thumbnail.png")
    from matplotlib.image import imread

    image = imread(tmp_path / "thumbnail.png")
    assert image.shape[:2] == (384, 640)
    np.testing.assert_allclose(image[0, 0, :3], [int(theme.paper[i : i + 2], 16) / 255 for i in (1, 3, 5)], atol=1e-2)
    assert image[..., :3].std() > 0.01


@pytest.mark.parametrize("words", [1, 12])
def test_a_legend_is_no_wider_than_the_drawing(words):
    lines = [Line(x=T, y=T + n, label=" ".join([f"series {n}"] * words)) for n in range(5)]
    drawing = draw_matplotlib(figure(panel(*lines), panel(lines[0])))
    (shown,) = drawing.legends
    drawing.canvas.draw()
    assert shown._ncols == (5 if words == 1 else 1)  # type: ignore[attr-defined]
    if words == 1:
        assert shown.get_window_extent().width <= drawing.bbox.width


def test_numbers_on_a_logarithmic_axis_do_not_overlap():
    drawing = draw_matplotlib(
        figure(panel(Line(x=np.linspace(16, 500), y=np.linspace(0, 1)), x=Axis("t", scale="log")))
    )
    drawing.canvas.draw()
    labels = [label for label in drawing.axes[0].get_xticklabels(which="both") if label.get_text()]
    boxes = sorted((label.get_window_extent() for label in labels), key=lambda box: box.x0)
    assert len(boxes) >= 1
    assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))
