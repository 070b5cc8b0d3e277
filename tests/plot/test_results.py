"""Results draw themselves, become data frames and print as tables."""

import base64
import dataclasses
import importlib
import inspect
import math
import pkgutil
from functools import cache

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt

import saddlescope as ss
from saddlescope._shared.errors import InputError
from saddlescope._shared.results import TableMixin
from saddlescope.figures.drawing import PlotMixin
from saddlescope.figures.time_axes import scale_label
from saddlescope.flow import DiagonalInit, gradient_flow_batched, symmetric_flows, symmetric_path
from saddlescope.flow.factored.factored_flow import FactorInit
from saddlescope.models import LayeredLoss
from saddlescope.plot import Axis, Figure, Line, Mark, Panel, Table
from saddlescope.theory import deep_linear_stages
from saddlescope.theory.concepts import concept_stages

pytestmark = pytest.mark.usefixtures("closed")


@pytest.fixture
def closed():
    """Draw without a screen, and close all figures."""
    matplotlib.use("Agg")
    yield
    plt.close("all")


def quadratic(beta):
    return 0.5 * jnp.sum(jnp.array([2.0, 1.0, 0.5]) * (beta - 1.0) ** 2)


@cache
def predicted():
    return ss.incremental_learning(quadratic, 3)


@cache
def simulated(exponent=-64):
    start = DiagonalInit(np.ones(3), np.zeros(3), log_scale=exponent * math.log(10))
    return ss.gradient_flow(quadratic, start, until=3.0, tolerance=1e-6, level=0.5)


@cache
def found():
    run = simulated()
    return ss.find_stages(run.times, run.losses, run.beta, level=0.1, time_unit=run.time_unit)


def factored():
    start = FactorInit([(np.eye(2), np.eye(2))], log_scale=-50.0)
    return ss.factored_flow(lambda B: 0.5 * jnp.sum((B[0] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2), start,
                            until=2.0, tolerance=1e-6)  # fmt: skip


@cache
def tokens():
    rng = np.random.default_rng(0)
    X, z = rng.standard_normal((3, 3, 6)), rng.standard_normal((3, 6))
    return ss.TokenData(X, z, np.sign(rng.standard_normal(3)), rng.standard_normal(6))


@cache
def tracker():
    model = torch.nn.TransformerEncoderLayer(16, 4, 32)
    tracked = ss.RankTracker(model, matrices=["linear1.weight"])
    torch.manual_seed(0)
    for _ in range(4):
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.1 * torch.randn_like(weight)
        tracked.step()
        tracked.measure() if not tracked.steps or tracked.steps[-1] != tracked._made else None
    return tracked


def units():
    """Two coordinates of a diagonal network, as a sum of units."""
    data = np.eye(2), np.array([2.0, 1.0])
    return (lambda theta, x, kind: theta[0] * theta[1] * x[kind]), data, lambda f, y: (f - y) ** 2 / 2


def unit_flow():
    run = {"degree": 2.0, "log_scale": -50.0, "until": 1.5, "tolerance": 1e-3, "kinds": np.arange(2)}
    return ss.unit_flow(*units(), np.ones((2, 2)), **run)


def escape_flow():
    rng = np.random.default_rng(0)
    loss = LayeredLoss(rng.standard_normal((4, 2)), rng.standard_normal((4, 1)))
    weights = (rng.standard_normal((3, 2)), rng.standard_normal((1, 3)))
    return ss.escape_flow(loss.output, loss.cost_of, weights, degree=2, until=2.0, log_norm=-10.0, tolerance=1e-5)


def directions():
    X = np.random.default_rng(0).normal(size=(20, 3))
    return ss.escape_directions(X, np.ones((20, 2)) / 20, depth=2, widths=4, num_starts=6, steps=80, refine=False)


def margin_flow():
    data = tokens()
    loss = importlib.import_module("saddlescope.models").SelectionLoss(data.optimal_scores, data.gaps, "exponential")
    return ss.matrix_margin_flow(loss, data.differences, data.z, log_until=100.0, tolerance=1e-6)


def several():
    starts = [DiagonalInit(np.ones(3), np.zeros(3), log_scale=k * math.log(10)) for k in (-8, -64)]
    return gradient_flow_batched(quadratic, starts, until=3.0, tolerance=1e-6, level=0.5)


RESULTS = {
    "Staircase": found,
    "BatchedTrajectory": several,
    "SymmetricFlows": lambda: symmetric_flows(
        [2.0, 1.0], 0.1 * np.eye(2)[None], test_point=[1.0, 1.0], until=4.0, tolerance=1e-6
    ),
    "SymmetricPath": lambda: symmetric_path([2.0, 1.0], 0.1 * np.eye(2), until=4.0, tolerance=1e-6),
    "LossStages": lambda: ss.find_plateaus(1 - np.tanh(np.linspace(-9, 9, 400))),
    "Comparison": lambda: ss.compare(predicted().staircase, found()),
    "Spectrum": lambda: ss.spectrum(np.diag([3.0, 2.0, 1.0])),
    "Trajectory": simulated,
    "FactoredTrajectory": factored,
    "EscapeFlow": escape_flow,
    "MarginFlow": margin_flow,
    "IncrementalLearning": predicted,
    "LowRankLearning": lambda: ss.low_rank_learning(
        lambda B: 0.5 * jnp.sum((B[0] - jnp.diag(jnp.array([2.0, 1.0]))) ** 2), [(2, 2)]
    ),
    "DeepLinearStages": lambda: deep_linear_stages([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.0], [0.0, 1.0]]),
    "ConceptStages": lambda: concept_stages(np.array([0.5, 1.0]), 1e-3 * np.array([[1.0, 0.2], [0.1, 1.0]])),
    "EscapeDirections": directions,
    "DiagonalSvm": lambda: ss.l1_svm(tokens()),
    "MatrixSvm": lambda: ss.nuclear_svm(tokens()),
    "ImplicitBias": lambda: ss.implicit_bias(tokens(), log_until=1e3, tolerance=1e-6),
    "RankRecords": lambda: tracker().records,
    "UnitLearning": lambda: ss.unit_learning(*units(), parameters=np.zeros(2), kinds=2, width=1),
    "UnitTrajectory": unit_flow,
    "WidthLadder": lambda: ss.width_ladder(*units(), [0, 1, 2], parameters=np.zeros(2), kinds=2),
}


@cache
def made(name):
    """Return one result of a kind, computed once: drawing and tables change none."""
    return RESULTS[name]()


def test_every_kind_of_result_is_here():
    def below(cls):
        return {cls, *(one for child in cls.__subclasses__() for one in below(child))}

    for module in pkgutil.walk_packages(ss.__path__, "saddlescope."):
        # callbacks of other libraries, which take ten seconds to load, hold no results
        if ".papers." not in module.name and not module.name.endswith(("__main__", "hugging_face", "lightning")):
            importlib.import_module(module.name)
    drawn = [c for c in below(PlotMixin) if c.__module__.startswith("saddlescope") and not inspect.isabstract(c)]
    assert all(RESULTS.keys() & {b.__name__ for b in c.__mro__} for c in drawn)


@pytest.mark.parametrize("name", RESULTS)
def test_axes_in_axes_out(name):
    result = made(name)
    assert name in {cls.__name__ for cls in type(result).__mro__}
    given = plt.subplots()[1]
    assert result.plot(given) is given
    own = result.plot()
    assert own is not given
    for ax in (given, own):
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert ax.has_data()


@pytest.mark.parametrize("name", RESULTS)
def test_tables(name):
    result = made(name)
    if not isinstance(result, TableMixin):
        dataset = result.to_xarray()
        assert all(size > 0 for dim, size in dataset.sizes.items() if dim != "crossing")
        assert dataset.to_dataframe() is not None
        return
    columns, rows = result._table()
    rows = list(rows)
    frame = result.to_dataframe()
    assert list(frame.columns) == [column.replace(" ", "_") for column in columns]
    assert len(frame) == len(rows) >= 1
    lines = str(result).splitlines()
    assert lines[0] == repr(result).splitlines()[0]
    assert len(lines) >= 1 + min(len(rows), 24)
    assert len(str(result)) < 8000


def test_numbers_of_a_frame_are_those_of_the_result():
    frame = found().to_dataframe()
    np.testing.assert_array_equal(frame.start, [stage.start for stage in found().stages])
    np.testing.assert_array_equal(frame["rank"], found().ranks)
    compared = ss.compare(predicted().staircase, found()).to_dataframe()
    np.testing.assert_allclose(compared.found / compared.predicted - 1, compared.time_error)
    dataset = simulated().to_xarray()
    np.testing.assert_array_equal(dataset.value, simulated().beta)
    assert dataset.crossing_index.values.tolist() == [crossing.index for crossing in simulated().crossings]
    assert dataset.time.attrs["units"] == "t / log(1/alpha)"


def test_missed_arrivals_are_rows_and_marks():
    first = ss.Staircase(predicted().staircase.stages[:2], predicted().staircase.time_unit)
    run = simulated()
    none = ss.Staircase((ss.Stage(0.0, 3.0, float(run.losses[0]), 0, ()),), run.time_unit)
    compared = ss.compare(first, none)
    assert compared.to_dataframe().arrival.tolist() == ["missed"]
    assert [mark.label for mark in compared.panel().marks if isinstance(mark, Mark)] == ["", "missed 0"]
    extra = ss.compare(none, found())
    assert set(extra.to_dataframe().arrival) == {"not predicted"}


def named(ax):
    """Return the names in the legend."""
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_staircase_beside_its_runs():
    runs = [simulated(-2), simulated(-64)]
    ax = ss.plot_staircase(predicted(), *runs)
    assert named(ax) == ["predicted, α → 0", "α = 10⁻²", "α = 10⁻⁶⁴"]
    bold, *others = ax.lines
    assert bold.get_linewidth() > 2 * max(line.get_linewidth() for line in others)
    shown = others[0].get_ydata()
    np.testing.assert_array_equal(shown, runs[0].losses[: len(shown)])
    assert ax.get_xlabel() == "time / log(1/α)"
    assert [line.get_color() for line in ax.get_legend().get_lines()] == [line.get_color() for line in ax.lines]


def test_the_picture_ends_where_what_can_be_learned_is_learned():
    """Coordinates that only fit noise come long after; stages decades apart have a logarithmic axis."""

    def noisy(beta):
        return 0.5 * jnp.sum(jnp.array([2.0, 1.0, 1e-3]) * (beta - jnp.array([1.0, 1.0, 0.5])) ** 2)

    prediction = ss.incremental_learning(noisy, 3)
    *first, noise = prediction.staircase.times
    start = DiagonalInit(np.ones(3), np.zeros(3), log_scale=-150.0)
    run = ss.gradient_flow(noisy, start, until=2 * noise, tolerance=1e-6)
    ax = ss.plot_staircase(prediction, run)
    assert first[-1] < ax.get_xlim()[1] < 2 * first[-1] < noise
    assert ax.get_xscale() == "linear"
    assert run.plot().get_xscale() == "log"
    far = ss.Staircase(
        tuple(ss.Stage(*one, rank) for rank, one in enumerate([(0, 0.01, 3), (0.01, 4, 2), (4, 9, 0)])), "t"
    )
    ax = far.plot()
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.texts] == ["rank 1", "rank 2"]


def test_a_run_is_compared_as_it_is_drawn():
    run = simulated()
    half = ss.find_stages(run.times, run.losses, run.beta, level=run.level, time_unit=run.time_unit)
    assert ss.compare(predicted(), run).time_errors == ss.compare(predicted().staircase, half).time_errors
    counted = ss.compare(predicted(), run, level=0.1)
    assert counted.time_errors == ss.compare(predicted().staircase, found()).time_errors
    by_losses = ss.compare(predicted(), dataclasses.replace(run, level=None))
    assert by_losses.exact_order_prefix == len(by_losses.matches) == len(counted.matches)
    np.testing.assert_allclose(by_losses.time_errors, counted.time_errors, atol=0.05)
    np.testing.assert_allclose(by_losses.loss_errors, counted.loss_errors, atol=1e-12)
    with pytest.raises(InputError, match="level must be None where found is a staircase"):
        ss.compare(predicted(), found(), level=0.1)


def test_what_prints_a_prediction_prints_why_it_ended():
    tied = ss.incremental_learning(lambda beta: 0.5 * jnp.sum((beta - 1.0) ** 2), 2)
    assert tied.status.value == "tie"
    assert str(tied).splitlines()[-1] == tied.message
    assert tied.message.partition(" ")[0] in tied._repr_html_()


def test_a_found_staircase_takes_the_place_of_a_run():
    ax = ss.plot_staircase(predicted(), found(), labels=["measured"])
    assert named(ax) == ["predicted, α → 0", "measured"]
    shown = max(np.max(line.get_xdata()) for line in ax.lines)
    assert predicted().staircase.times[-1] < shown < found().stages[-1].end


def test_alone_a_prediction_ends_after_it_has_learned_and_names_its_coordinates():
    line, *_ = predicted().panel().marks
    assert isinstance(line, Line)
    assert [text.get_text() for text in predicted().plot().texts] == ["+0", "+1", "+2"]
    assert predicted().staircase.times[-1] < line.x[-1] < 1.3 * predicted().staircase.times[-1]
    assert np.all(np.isfinite(line.x))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((3,), {}, "predicted must be a Staircase"),
        ((predicted, 3), {}, "runs must be trajectories or staircases"),
        ((predicted, simulated), {"labels": ["a", "b"]}, "labels must be 1, one per run; got 2"),
        ((predicted,), {"until": -1.0}, "until must be finite and after"),
        (
            (predicted, lambda: ss.Staircase((ss.Stage(0.0, 1.0, 1.0, 0),), "steps")),
            {},
            "in the time unit of predicted",
        ),
    ],
)
def test_bad_input_has_one_sentence(arguments, options, message):
    with pytest.raises(InputError, match=message):
        ss.plot_staircase(*(one() if callable(one) else one for one in arguments), **options)


def test_spectra_of_a_tracker_and_of_its_data_set_are_one_picture():
    ax = tracker().plot()
    again = ss.plot_spectra(tracker().to_xarray())
    for one, other in zip(ax.lines, again.lines, strict=True):
        np.testing.assert_array_equal(one.get_ydata(), other.get_ydata())
    assert named(ax) == ["update of W_K W_Qᵀ", "update of W_V W_Oᵀ", "linear1.weight"]
    one = ss.plot_spectra(tracker().to_xarray().isel(step=[-1]))
    assert one.get_xlabel() == "layer"
    with pytest.raises(InputError, match="at least one record"):
        ss.RankTracker(torch.nn.TransformerEncoderLayer(16, 4, 32)).plot()
    with pytest.raises(InputError, match="spectra must be a RankTracker"):
        ss.plot_spectra(3)


@pytest.mark.parametrize(("exponent", "label"), [(-16, "α = 10⁻¹⁶"), (-4096, "α = 10⁻⁴⁰⁹⁶"), (-1.5, "α = 10⁻¹·⁵")])
def test_scales_are_powers_of_ten(exponent, label):
    assert scale_label(exponent * math.log(10)) == label


def test_a_figure_shows_itself_in_a_notebook():
    line = Line(x=np.arange(3.0), y=np.arange(3.0))
    panels = (Panel(x=Axis("x"), y=Axis("y"), marks=(line,)),)
    table = Table(columns=("<n>",), rows=((1,),))
    bundle = Figure(name="f", title="<b>", caption="& so on", panels=panels, table=table)._repr_mimebundle_()
    page = bundle["text/html"]
    assert "&lt;b&gt;" in page
    assert "&amp; so on" in page
    assert "&lt;n&gt;" in page
    assert "<b><b>" not in page
    assert bundle["image/png"] in page
    assert bundle["text/plain"].startswith("Figure(")
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")


def test_lines_of_a_figure_are_a_table():
    lines = Line(x=np.arange(2), y=np.array([3.0, 4.0]), label="a"), Line(x=np.array([5]), y=np.array([6.0]))
    panels = tuple(Panel(title="t" * k, x=Axis("x"), y=Axis("y"), marks=(Mark(at=0.0), *lines[k:])) for k in range(2))
    table = Figure(name="f", title="", caption="", panels=panels).to_dataframe()
    assert table.columns.tolist() == ["panel", "line", "x", "y"]
    assert table.values.tolist() == [["0", "a", 0, 3.0], ["0", "a", 1, 4.0], ["0", "2", 5, 6.0], ["t", "1", 5, 6.0]]
    empty = Panel(x=Axis("x"), y=Axis("y"), marks=(Mark(at=0.0),))
    with pytest.raises(InputError, match="f must have lines to be a table"):
        Figure(name="f", title="", caption="", panels=(empty,)).to_dataframe()


def test_an_array_of_axes_is_refused():
    with pytest.raises(InputError, match="ax must be axes of Matplotlib; got ndarray"):
        found().plot(plt.subplots(2)[1])
