"""Search for starts with several descents, verified by an independent count."""

import numpy as np
import pytest

from saddlescope.flow import find_start, symmetric_flows
from saddlescope.flow.two_layer.start_search import SearchError
from saddlescope.measure import find_descents

MU_3, MU_4 = np.array([1.0, 1.5, 2.2]), np.array([1.0, 1.5, 2.2, 2.7])  # Figures 8 and 9
A_3 = MU_3**2 / 3 + 0.05**2
A_4 = MU_4**2 / 4 + np.array([0.05, 0.05, 0.05, 0.5]) ** 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "x", "descents", "bar"), [(A_3, MU_3, 3, 0.08), (A_4, MU_4, 4, 0.03)], ids=["triple", "quadruple"]
)
def test_rises_that_can_be_seen(a, x, descents, bar):
    """A third rise of at least 8 %, a fourth of at least 3 % of |x|^2 / 2."""
    found = find_start(a, descents=descents, test_point=x, until=40.0, seed=0, num_starts=6144, generations=10)
    assert found.rise > bar
    assert np.abs(found.start).max() <= 0.3
    flows = symmetric_flows(a, found.start[None], test_point=x, until=40.0, tolerance=1e-11)
    counted = find_descents(flows.turning_losses)
    assert counted.counts[0] == descents
    np.testing.assert_allclose(counted.rises[0, -1] / (x @ x / 2), found.rise, rtol=1e-12)


@pytest.mark.slow
def test_every_rise_and_fall_is_as_large_as_asked():
    settings = {"descents": 3, "test_point": MU_3, "until": 40.0, "num_starts": 2048, "generations": 12}
    found = find_start(A_3, **settings, seed=1, least=0.02)
    assert find_descents(found.flow.turning_losses, hysteresis=0.02).counts[0] == 3
    assert find_start(A_3, **settings, seed=1, least=0.02).rise == found.rise
    assert found.followed == 2048 + 12 * 512


def test_breeding_improves_on_the_pool():
    settings = {"descents": 2, "test_point": MU_3, "until": 40.0, "seed": 2, "num_starts": 512}
    one, other = (find_start(A_3, **settings, generations=generations).rise for generations in (0, 8))
    assert other > one > 0


def test_what_there_is_not_is_not_found():
    with pytest.raises(SearchError, match="5 descents"):
        find_start(A_3, descents=5, test_point=MU_3, until=40.0, seed=0, num_starts=256, generations=1)
    with pytest.raises(SearchError, match="until"):
        find_start(A_3, descents=2, test_point=MU_3, until=0.5, seed=0, num_starts=256, generations=0)
