"""The page of the implicit bias on some tokens."""

import numpy as np
import pytest
import xarray as xr

from saddlescope.gallery import build_attention
from saddlescope.models.tokens.generators import gaussian_tokens
from saddlescope.store import read
from saddlescope.studies import implicit_bias


@pytest.fixture(scope="module")
def found():
    return implicit_bias(gaussian_tokens(2, 3, 3, seed=0), log_until=30.0, tolerance=1e-4)


def test_the_page_has_answers_pictures_and_data(found, tmp_path):
    text = build_attention(found, tmp_path / "site").read_text("utf-8")
    assert "2 samples of 3 tokens of dimension 3" in text
    for flow, verdict in found.verdicts.items():
        assert f"{flow}: {verdict.norm}. {verdict.says}" in text
    assert text.index("Norms of the directions") < text.index("Singular values of") < text.index("Solutions, and dir")
    assert f"{found.nuclear.certificate.primal:.9g}" in text
    assert found.assumptions.orthogonal.says in text
    assert len([*(tmp_path / "site/attention").glob("figure-[123].*")]) == 6
    xr.testing.assert_identical(read(tmp_path / "site/attention/flows.nc"), found.dataset)


def test_a_flow_without_a_direction_is_drawn_without_it(undrawn, found, tmp_path):
    lost = xr.where(found.dataset.flow == "W alone", np.nan, found.dataset[["direction", "singular_values", "excess"]])
    kept = found.dataset.assign(lost).assign_attrs(remarks="a <b>remark</b>")
    text = build_attention(type(found)(**vars(found) | {"dataset": kept}), tmp_path / "site").read_text("utf-8")
    assert "flow, diagonal" in text
    assert "flow, W alone" not in text
    assert "a &lt;b&gt;remark&lt;/b&gt;" in text
