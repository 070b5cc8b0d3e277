"""Phase diagrams are drawn from labelled arrays alone; each cell is held against a slow count over its points."""

import itertools
import json

import numpy as np
import pictures
import pytest
import xarray as xr

from saddlescope._shared.errors import InputError
from saddlescope.plot import Axis, Band, Heat, Kind, Kinds, Line, Mark, draw_matplotlib, draw_plotly
from saddlescope.plot.phase_diagram import OUTCOMES, phase_figures
from saddlescope.plot.phase_layout import MOST_PANELS, PhaseLayout, line_axis, values_of
from saddlescope.plot.series import legend
from saddlescope.plot.tick_names import MOST_NAMES, named_ticks

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
CLAIMS = ("falls", HOSTILE)
COORDINATES = {
    "claim": list(CLAIMS),
    "claim_unit": ("claim", ["s", ""]),
    "claim_low": ("claim", [0.2, -np.inf]),
    "claim_high": ("claim", [0.6, np.inf]),
    "metric": ["stages", "final_loss", "never"],
    "metric_quantity": ("metric", ["stages", "final loss", "never resolved"]),
    "metric_unit": ("metric", ["", "", ""]),
    "metric_scale": ("metric", ["linear", "log", "linear"]),
}

FAILED = [kind.name for kind in OUTCOMES].index("failed")


def made(axes: dict, seed=0) -> xr.Dataset:
    """Return a sweep with every outcome, failed and missing points, over axes of the given values."""
    rng = np.random.default_rng(seed)
    shape = tuple(map(len, axes.values()))
    state = rng.choice(["finished", "failed", "missing"], p=[0.7, 0.2, 0.1], size=shape)
    done = (state == "finished")[..., None]
    outcome = np.where(
        done, rng.choice([kind.name for kind in OUTCOMES if kind.name != "failed"], size=(*shape, 2)), ""
    )
    metric = np.where(done, rng.uniform(0.1, 9.0, (*shape, 3)), np.nan)
    metric[..., 2] = np.nan
    dims = tuple(axes)
    return xr.Dataset(
        {
            "state": (dims, state),
            "outcome": ((*dims, "claim"), outcome),
            "value": ((*dims, "claim"), np.where(done, rng.uniform(0, 1, (*shape, 2)), np.nan)),
            "metrics": ((*dims, "metric"), metric),
        },
        coords=axes | COORDINATES,
    )


GRIDS = {
    "one axis": {"width": [2, 4, 8, 64]},
    "one axis of words": {"teacher": ["sparse", HOSTILE, "dense"]},
    "one axis and seeds": {"alpha": [1e-1, 1e-4, 1e-9], "seed": [0, 1, 2, 3]},
    "seeds alone": {"seed": [3, 5, 7]},
    "two axes": {"width": [2, 4, 8], "alpha": [1e-1, 1e-2, 1e-8, 1e-16]},
    "two axes and seeds": {"width": [2, 4, 8], "seeds": [0, 1, 2, 3, 4], "noise": [True, False]},
    "three axes": {"depth": [2, 3], "width": [2, 4, 8], "alpha": [1e-1, 1e-2, 1e-8]},
    "four axes and seeds": {"a": [1, 2], "b": [1, 2, 3], "seed": [0, 1], "c": [1, 2, 3, 4], "d": [0.5, 1.5, 2.5]},
    "one point": {"width": [3]},
    "a fixed axis": {"depth": [3], "width": [2, 4], "alpha": [0.1, 0.01, 0.001]},
}


@pytest.fixture(params=GRIDS, ids=str)
def sweep(request):
    return made(GRIDS[request.param])


def test_every_grid_is_drawn_by_both(sweep):
    figures = phase_figures(sweep)
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        draw_matplotlib(figure)
        page = json.dumps(draw_plotly(figure), allow_nan=False)
        assert "<img" not in json.dumps([json.loads(page)["panels"][0]["data"]])


def test_the_longest_axes_are_mapped_and_seeds_taken_together():
    layouts = {name: PhaseLayout.of(made(axes).state) for name, axes in GRIDS.items()}
    assert layouts["seeds alone"] == PhaseLayout(("seed",))
    assert layouts["one axis and seeds"] == PhaseLayout(("alpha",), (), "seed")
    assert layouts["two axes and seeds"] == PhaseLayout(("width", "noise"), (), "seeds")
    assert layouts["three axes"] == PhaseLayout(("width", "alpha"), ("depth",))
    assert layouts["four axes and seeds"] == PhaseLayout(("b", "c"), ("a", "d"), "seed")
    assert layouts["one point"] == PhaseLayout(("width",))
    assert layouts["a fixed axis"] == PhaseLayout(("width", "alpha"))


def kinds_by_hand(sweep, claim, **at):
    point = sweep.sel(at)
    state = str(point.state.item())
    if state == "finished":
        return str(point.outcome.sel(claim=claim).item())
    return state


def test_each_cell_has_the_kind_of_its_point():
    axes = GRIDS["two axes"]
    sweep = made(axes)
    verdicts = phase_figures(sweep)[1]
    assert [panel.title for panel in verdicts.panels] == list(CLAIMS)
    for panel, claim in zip(verdicts.panels, CLAIMS, strict=True):
        (cells,) = panel.marks
        assert isinstance(cells, Kinds)
        assert panel.x.label == "width"
        assert panel.y.names == ("0.1", "0.01", "1e-8", "1e-16")
        for (j, alpha), (i, width) in itertools.product(enumerate(axes["alpha"]), enumerate(axes["width"])):
            reported = kinds_by_hand(sweep, claim, width=width, alpha=alpha)
            assert ("missing" if cells.z[j, i] < 0 else OUTCOMES[cells.z[j, i]].name) == reported


def test_over_one_axis_the_claims_are_the_rows_the_first_on_top():
    sweep = made(GRIDS["one axis"])
    verdicts = phase_figures(sweep)[1]
    (panel,) = verdicts.panels
    low, high = panel.y.range
    assert low > high
    for row, claim in enumerate(CLAIMS):
        for column, width in enumerate(sweep.width.values):
            reported = kinds_by_hand(sweep, claim, width=width)
            place = panel.marks[0].z[row, column]
            assert ("missing" if place < 0 else OUTCOMES[place].name) == reported


def test_over_seeds_each_cell_is_the_share_of_decided_ones():
    sweep = made(GRIDS["two axes and seeds"])
    metrics, verdicts, _ = phase_figures(sweep)
    heat = verdicts.panels[0].marks[0]
    assert heat.range == (0.0, 1.0)
    stages, loss = (panel.marks[0] for panel in metrics.panels)
    for j, noise in enumerate([True, False]):
        for i, width in enumerate(sweep.width.values):
            points = [sweep.sel(width=width, noise=noise, seeds=seed) for seed in sweep.seeds.values]
            finished = [point for point in points if point.state.item() == "finished"]
            outcomes = [point.outcome.sel(claim="falls").item() for point in finished]
            hits = sum(outcomes.count(word) for word in ("holds", "agrees", "seen"))
            decided = hits + sum(outcomes.count(word) for word in ("fails", "differs", "not seen"))
            assert heat.words[j, i] == f"{hits}/{decided}"
            assert heat.z[j, i] == pytest.approx(hits / decided if decided else np.nan, nan_ok=True)
            every = np.array([point.metrics.values for point in finished])
            assert stages.z[j, i] == pytest.approx(every[:, 0].mean())
            assert loss.z[j, i] == pytest.approx(np.exp(np.log(every[:, 1]).mean()))
    assert "geometric" in metrics.caption
    assert "Resolved at no point: never resolved." in metrics.caption


def test_claims_that_no_seed_decides_are_named_and_not_drawn_like_failing_ones():
    sweep = made(GRIDS["two axes and seeds"])
    sweep.outcome.loc[{"claim": "falls"}] = "undecided"
    verdicts = phase_figures(sweep)[1]
    assert [panel.title for panel in verdicts.panels] == [HOSTILE]
    assert "Decided at no point: falls." in verdicts.caption


def test_curves_are_means_with_a_band_of_all_seeds_and_bounds():
    sweep = made(GRIDS["one axis and seeds"])
    *_, measured = phase_figures(sweep)
    panel = measured.panels[0]
    assert panel.x == Axis("alpha", scale="log")
    assert panel.y == Axis("falls", "s")
    assert [mark.at for mark in panel.marks if isinstance(mark, Mark)] == [0.2, 0.6]
    band = next(mark for mark in panel.marks if isinstance(mark, Band))
    line = next(mark for mark in panel.marks if isinstance(mark, Line))
    for x, low, high, mean in zip(line.x, band.low, band.high, line.y, strict=True):
        values = sweep.value.sel(claim="falls", alpha=x).dropna("seed").values
        assert (low, high, mean) == pytest.approx((values.min(), values.max(), values.mean()))
    assert list(line.x) == sorted(line.x)


def test_what_no_seed_resolves_stays_empty():
    sweep = made(GRIDS["two axes and seeds"])
    sweep.state.loc[{"width": 4, "noise": True}] = "failed"
    for name in ("metrics", "value"):
        sweep[name].loc[{"width": 4, "noise": True}] = np.nan
    for figure in phase_figures(sweep):
        for panel in figure.panels:
            assert np.isnan(panel.marks[0].z[0, 1])
            assert np.isfinite(panel.marks[0].z).any()


@pytest.mark.parametrize("name", ["one axis and seeds", "three axes"])
def test_a_sweep_of_which_nothing_finished_shows_that(name):
    sweep = made(GRIDS[name])
    nothing = {name: sweep[name] * np.nan for name in ("value", "metrics")}
    sweep = sweep.assign(state=xr.full_like(sweep.state, "failed"), outcome=xr.full_like(sweep.outcome, ""), **nothing)
    figures = phase_figures(sweep)
    assert {figure.title.partition(":")[0] for figure in figures} == {"Verdicts"}
    draw_matplotlib(figures[0])
    json.dumps(draw_plotly(figures[0]), allow_nan=False)
    for panel in (panel for figure in figures for panel in figure.panels):
        (mark,) = panel.marks
        assert (mark.z == FAILED).all() if isinstance(mark, Kinds) else np.isnan(mark.z).all()


def test_further_axes_have_panels_up_to_a_limit_which_is_reported():
    sweep = made({"a": range(4), "b": range(5), "c": range(5), "d": range(4)})
    *_, one, two = phase_figures(sweep)
    assert (one.title, two.title) == ("Verdicts: falls", f"Verdicts: {HOSTILE}")
    assert len(one.panels) == MOST_PANELS
    assert f"{MOST_PANELS} of 16 panels are shown" in one.caption
    assert one.panels[0].title == "a = 0, d = 0"
    assert one.panels[-1].title == "a = 3, d = 3"
    last = sweep.sel(a=3, d=3)
    for b, c in itertools.product(range(5), range(5)):
        place = one.panels[-1].marks[0].z[c, b]
        reported = kinds_by_hand(last, "falls", b=b, c=c)
        assert ("missing" if place < 0 else OUTCOMES[place].name) == reported


def test_panels_of_one_number_share_their_colours():
    sweep = made(GRIDS["three axes"])
    stages = phase_figures(sweep)[0]
    assert stages.title == "Results across the grid: stages"
    ends = float(sweep.metrics[..., 0].min()), float(sweep.metrics[..., 0].max())
    assert [panel.marks[0].range for panel in stages.panels] == [ends, ends]


def test_the_legend_names_the_kinds_that_occur_once():
    sweep = made(GRIDS["two axes"])
    sweep["outcome"] = sweep.outcome.where(sweep.outcome != "fails", "undecided")
    verdicts = phase_figures(sweep)[1]
    names = [one.name for one in legend(verdicts)]
    occurring = {*sweep.outcome.values.ravel().tolist(), "failed"}
    assert sorted(names) == sorted(f"{kind.sign} {kind.name}" for kind in OUTCOMES if kind.name in occurring)
    assert {one.shape for one in legend(verdicts)} == {"kind"}


def test_cells_are_reported_by_their_names_on_a_page():
    cells = Kinds(
        x=np.arange(2), y=np.arange(1), z=np.array([[1, -1]]), kinds=(Kind("a", 0, "+"), Kind("<b>", None, "-"))
    )
    spec = draw_plotly(
        pictures.figure(pictures.panel(cells, x=Axis("n", names=("<u>", "v")), y=Axis("m", "s", names=("w",))))
    )
    trace = spec["panels"][0]["data"][0]
    assert trace["z"] == [[1, None]]
    assert trace["text"] == [["-", ""]]
    assert trace["hovertext"][0][0] == "<b>&lt;b&gt;</b><br>n &lt;u&gt;<br>m (s) w"
    assert trace["meta"]["colors"] == [0, None]
    assert spec["panels"][0]["layout"]["xaxis"]["ticktext"] == ["&lt;u&gt;", "v"]


def test_many_names_are_thinned_and_long_ones_shortened():
    places, names = named_ticks(Axis("n", names=tuple(map(str, range(64)))))
    assert len(places) <= MOST_NAMES
    assert names == [str(place) for place in places]
    assert len(set(np.diff(places))) == 1
    assert named_ticks(Axis("n", names=("x" * 99,)))[1][0].endswith("x…")


def test_values_are_named_as_shortly_as_reports_them_apart():
    axes = {"a": [0.001, 1 / 3, 1000.0, 2e7], "b": [1.0001, 1.0002, 1.0, 2.0], "c": [True, False, True, False]}
    array = xr.DataArray(np.zeros((4, 4, 4)), coords=axes, dims=tuple(axes))
    assert values_of(array, "a") == ("0.001", "0.333", "1000", "2e+07")
    assert values_of(array, "b") == ("1.0001", "1.0002", "1", "2")
    assert values_of(array, "c")[0] == "True"


def test_many_cells_touch():
    few, many = (made({"a": range(n), "b": range(n)}) for n in (4, 40))
    gaps = [draw_plotly(phase_figures(one)[1])["panels"][0]["data"][0]["xgap"] for one in (few, many)]
    assert gaps == [2, 0]


def test_only_wide_positive_axes_are_logarithmic():
    axes = {"wide": [1e-8, 1e-3, 0.1], "narrow": [1.0, 2.0, 3.0], "signed": [-30.0, -2.0, -1.0]}
    array = xr.DataArray(np.zeros((3, 3, 3)), coords=axes, dims=tuple(axes))
    assert [line_axis(array, name)[0].scale for name in axes] == ["log", "linear", "linear"]


def test_what_is_no_kind_and_words_of_another_shape_are_refused():
    with pytest.raises(InputError, match="z must be integers from -1 to 0"):
        Kinds(x=np.arange(1), y=np.arange(1), z=np.array([[1]]), kinds=(Kind("a", 0, "+"),))
    with pytest.raises(InputError, match="z must be integers"):
        Kinds(x=np.arange(1), y=np.arange(1), z=np.array([[0.0]]), kinds=(Kind("a", 0, "+"),))
    with pytest.raises(InputError, match="words must be of the shape"):
        Heat(x=np.arange(1), y=np.arange(1), z=np.zeros((1, 1)), words=np.array(["a"]))
