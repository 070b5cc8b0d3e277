"""Examples of three guides: each runs alone and prints what is shown, and the promises of its sentences hold."""

import re
from pathlib import Path

import numpy as np

import saddlescope as ss
import snippets

PAGES = ("docs/usage.md", "docs/norms.md", "docs/reproduce.md")


def _snippet(words):
    """Return the block that contains these words."""
    (found,) = (one for page in PAGES for one in snippets.snippets(page) if words in one.code)
    return found


def _run(words):
    """Run the block that contains these words and return its names."""
    return snippets.run(_snippet(words))


def test_one_front_door():
    made = _run("ss.predict(")
    assert made["run"].losses[-1] < 1e-12


def test_transformer():
    made = _run("transformer_teacher_task")
    first = made["predicted"].stages[1]
    assert [made["transformer"].coordinate(i).head for i in first.entered] == [0, 1]
    assert "layer 0 head 1 VO" in str(_snippet("transformer_teacher_task").shown)


def test_many_flows_in_one_call():
    made = _run("gradient_flow_batched(")
    assert made["flows"].losses.shape == (3, 201)
    assert [flow.log_scale for flow in made["flows"]] == [start.log_scale for start in made["starts"]]
    assert made["sgd"].losses[-1] < 1e-4 * made["sgd"].losses[0]


def test_norms_on_ones_own_tokens():
    verdicts = _run("ss.implicit_bias(")["answer"].verdicts
    assert verdicts["keys and queries"].norm == "nuclear"
    assert verdicts["W alone"].norm == "Frobenius"


def test_curves_of_a_figure_as_a_table(tmp_path):
    made = snippets.run(_snippet("to_csv("), tmp_path)
    assert (tmp_path / "figure-2.csv").read_text().splitlines()[0].split(",")[0] == "time"
    assert {verdict.claim for verdict in made["made"].verdicts}


def test_every_example_is_tested():
    words = [*re.findall(r'_run\("(.*?)"\)', Path(__file__).read_text()), "to_csv("]
    assert {_snippet(one) for one in words} == {one for page in PAGES for one in snippets.snippets(page)}


def test_escape_directions_of_example_1():
    made = _run("certified_escape_speed(x")
    assert made["certified"].lower <= made["found"].speeds.max() + 1e-12 <= made["certified"].upper + 2e-12
    np.testing.assert_allclose(made["found"].speeds.max(), 0.5, atol=1e-12)
    assert made["found"].ranks[made["found"].best].tolist() == [2, 1, 1]


def test_escape_from_1e_300():
    flow = _run("ss.escape_flow(")["flow"]
    assert flow.status.ok
    np.testing.assert_allclose(flow.log_norms[[0, -1]], [-300 * np.log(10), 0.0], atol=1e-9)


def test_stages_of_a_whole_run():
    made = _run("ss.sgd(")
    found = ss.find_plateaus(made["losses"], steps=made["run"].steps, singular_values=made["spectra"]).staircase
    assert found.ranks == (0, 1, 2, 3)
    np.testing.assert_allclose(found.losses, [7.0, 2.5, 0.5, 0.0], atol=5e-3)  # halves of the sums of 9, 4 and 1


def test_concepts_are_learned_at_the_predicted_times():
    made = _run("ss.symmetric_flows(")
    task, start = made["task"], made["starts"][0]
    times = np.sort(made["concept_stages"](task.strengths, start).times)
    run = ss.symmetric_flows(
        task.strengths, start[None], test_point=task.test_point, until=20.0, record=times, tolerance=1e-11
    )
    at = np.searchsorted(run.times, times)
    learned = [run.W[0, k, p, p] for k, p in zip(at, (2, 1, 0), strict=True)]  # the strongest concept first
    np.testing.assert_allclose(learned, 0.5, atol=0.01)
    assert made["counts"].min() >= 1
    assert made["counts"].max() <= 3


def test_nuclear_norm_with_keys_and_queries_apart():
    made = _run("ss.key_query_margin_flow(")
    least = made["solution"].certificate.primal
    apart, together = made["apart"], made["together"]
    excess = np.array([apart.spectrum(k).sum() / apart.margin[k] for k in range(3)]) / least - 1
    assert np.all(np.diff(excess) < 0)
    assert 0 < excess[-1] < 0.02
    assert all(np.linalg.norm(together.direction(k), "nuc") / least - 1 > 5 * excess[k] for k in (1, 2))
