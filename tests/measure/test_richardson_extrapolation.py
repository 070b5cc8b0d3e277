import numpy as np
import pytest

from saddlescope._shared.errors import InputError
from saddlescope.measure import richardson

LOG_ALPHAS = np.array([-32, -64, -1024]) * np.log(10)


@pytest.mark.parametrize("scales", [2, 3])
def test_polynomials_in_one_over_log_are_extrapolated_exactly(scales):
    rng = np.random.default_rng(0)
    coefficients = rng.standard_normal((scales, 4, 2))  # limit first
    logs = LOG_ALPHAS[:scales]
    times = sum(coefficients[n] / np.power(-logs, n)[:, None, None] for n in range(scales))
    np.testing.assert_allclose(richardson(times, logs), coefficients[0], rtol=1e-12)


def test_the_order_of_the_scales_does_not_matter():
    times = np.random.default_rng(1).uniform(1, 2, (3, 5))
    np.testing.assert_allclose(richardson(times[::-1], LOG_ALPHAS[::-1]), richardson(times, LOG_ALPHAS), rtol=1e-13)


def test_the_error_left_is_of_the_next_order():
    """Extrapolating T + C h + D h^2 from h and h/4 leaves -D h^2 / 4."""
    logs = np.array([-100.0, -400.0])
    times = 3 + 2 / -logs + 5 / logs**2
    assert float(richardson(times, logs)) - 3 == pytest.approx(-5 / 100**2 / 4, rel=1e-9)


def test_a_stage_that_was_not_found_has_no_limit():
    limits = richardson(np.array([[1.0, np.nan], [1.0, 2.0]]), LOG_ALPHAS[:2])
    assert limits[0] == 1
    assert np.isnan(limits[1])


@pytest.mark.parametrize(
    ("times", "log_scales", "sentence"),
    [
        ([[1.0], [1.0]], [-1.0, -1.0], "log_scales must be two or more different numbers"),
        ([[1.0], [1.0]], [1e-32, 1e-64], "Use math.log"),
        ([[1.0, 2.0, 3.0]], [-1.0, -2.0], r"times must have shape \(2, \.\.\.\), one row per log_scale"),
    ],
)
def test_invalid_input_raises(times, log_scales, sentence):
    with pytest.raises(InputError, match=sentence):
        richardson(times, log_scales)
