"""Every entry keeps the contract of `saddlescope.reproduction.entry`: checked on a real run at the quick size."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from saddlescope import store
from saddlescope.plot import draw_matplotlib, draw_plotly
from saddlescope.reproduction import Outcome, RunContext, entry_names, find_entry

# Everything is run twice, and drawn by Matplotlib, by `make test-all` only: it takes minutes.
ONE_A_PAPER = {
    "concept-learning/figure-8",
    "deep-relu/proposition-3-4",
    "gradual-rank/diagonal-linear",
    "softmax-attention/lemma-4-1",
}


@pytest.fixture(scope="module", params=entry_names())
def entry(request):
    return find_entry(request.param)


@pytest.fixture(scope="module")
def run(entry, quick_run):
    return quick_run(entry.name).run


def test_title_source_and_citation_are_given(entry):
    assert entry.title
    assert entry.source
    assert entry.citation
    assert not entry.title.endswith((".", "?", " "))


def test_parameters_are_described(entry):
    for name, record in entry.parameters.items():
        assert record.description, name
        assert not record.description.endswith("."), name
        assert record.scale == "linear" or min(record.default if record.many else (record.default,)) > 0, name


@pytest.mark.parametrize("size", ["quick", "reduced", "paper"])
def test_sizes_are_differences_from_the_default(entry, size):
    differences, default = getattr(entry, size), entry.configure()
    if size not in entry.sizes:
        assert (size, differences) == ("reduced", {})
        return
    assert set(differences) <= set(entry.parameters)
    assert [name for name, value in differences.items() if getattr(default, name) == value] == []
    assert dataclasses.asdict(entry.configure(size)) == dataclasses.asdict(default) | dict(differences)


def test_parameters_survive_the_command_line(entry):
    for size in entry.sizes:
        params = entry.configure(size)
        typed = {name: record.text(getattr(params, name)) for name, record in entry.parameters.items()}
        assert entry.configure("default", typed) == params


def test_claims_are_statements_with_a_source(entry):
    assert entry.claims
    assert len({claim.name for claim in entry.claims}) == len(entry.claims)
    for claim in entry.claims:
        assert claim.source, claim.name
        assert not claim.statement.endswith((".", ":", "?")), claim.statement


def test_importing_all_entries_is_cheap():
    code = "import sys, saddlescope.reproduction as p; [p.find_entry(e) for e in p.entry_names()]; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "saddlescope.papers.gradual_rank.figure_2" in loaded
    assert not {"jax", "torch", "scipy", "matplotlib", "plotly"} & set(loaded)


def test_the_run_survives_the_disk(run, tmp_path):
    path = tmp_path / "run.nc"
    store.write(run, path)
    xr.testing.assert_identical(store.read(path)[list(run.data_vars)].drop_attrs(), run.drop_attrs())


def test_every_claim_is_measured(entry, run):
    for verdict in entry.judge(run):
        open_ = verdict.outcome.inside is None
        assert np.isfinite(verdict.value) or open_
        assert not open_ or verdict.remark or np.isfinite(verdict.uncertainty)
    # networks of a quick run have not learned, which their claims require
    assert any(np.isfinite(v.value) or v.outcome is Outcome.NOT_TESTED for v in entry.judge(run))


def test_metrics_have_names_and_are_numbers(entry, run):
    assert len({metric.name for metric in entry.metrics}) == len(entry.metrics)
    for metric in entry.metrics:
        assert metric.name.isidentifier()
        assert metric.quantity
        assert not metric.quantity.endswith(".")
        value = metric.statistic(run)
        assert type(value) is float
        assert not np.isinf(value), metric.name
        assert metric.scale == "linear" or not value < 0, metric.name


def test_progress_rises(entry, quick_run):
    """To 1 at most, which the runner reports in the end."""
    reports = quick_run(entry.name).reports
    fractions = [0.0, *(fraction for fraction, _ in reports), 1.0 + 1e-9]
    assert fractions == sorted(fractions)
    assert all(note for _, note in reports)


def test_figures_have_titles_captions_and_marks_and_are_drawn_as_json(entry, run):
    figures = list(entry.figures(run))
    assert figures
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        assert figure.title
        assert figure.caption
        assert all(panel.marks for panel in figure.panels)
        json.dumps(draw_plotly(figure))


ONE_A_PAPER_FIRST = [pytest.param(n, marks=[] if n in ONE_A_PAPER else pytest.mark.slow) for n in entry_names()]


@pytest.mark.parametrize("name", ONE_A_PAPER_FIRST)
def test_figures_are_drawn_by_matplotlib(name, quick_run):
    for figure in find_entry(name).figures(quick_run(name).run):
        draw_matplotlib(figure)


@pytest.mark.parametrize("name", ONE_A_PAPER_FIRST)
def test_the_same_parameters_give_the_same_run(name, quick_run, tmp_path, types_unchecked):
    entry = find_entry(name)
    with types_unchecked():
        again = entry.run(entry.configure("quick"), RunContext(scratch=tmp_path))
    xr.testing.assert_identical(again.drop_attrs(), quick_run(name).run.drop_attrs())
