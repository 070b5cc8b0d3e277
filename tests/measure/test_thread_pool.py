"""Parallel pieces: equal results in the same order, errors raised, and the BLAS threads restored."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from saddlescope.measure import product_update_spectrum
from saddlescope.measure.thread_pool import threaded_map


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"]


@pytest.mark.skipif(not blas_threads(), reason="NumPy has another BLAS than OpenBLAS")
def test_pieces_run_in_parallel_if_threads_are_available():
    meeting = threading.Barrier(2, timeout=20)  # breaks unless two pieces run at once
    with threadpool_limits(limits=2):
        before = blas_threads()  # a library built for one thread stays at one
        assert threaded_map(lambda item: (meeting.wait() >= 0, item), [3, 1, 4, 1]) == [
            (True, item) for item in (3, 1, 4, 1)
        ]
        assert blas_threads() == before
        assert 2 in before


def test_an_error_in_a_piece_is_raised_and_the_threads_are_restored():
    with threadpool_limits(limits=2):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError):
            threaded_map(lambda item: 1 / item, [1, 0, 2])
        assert blas_threads() == before


def test_progress_is_reported_after_each_piece():
    fractions = []
    with threadpool_limits(limits=2):
        assert threaded_map(lambda item: -item, [1, 2, 3, 4], lambda fraction, _: fractions.append(fraction)) == [
            -1,
            -2,
            -3,
            -4,
        ]
    assert fractions == [0.25, 0.5, 0.75, 1.0]


def test_spectra_do_not_depend_on_the_number_of_threads():
    factors = [X.astype(np.float32) for X in np.random.default_rng(0).standard_normal((4, 7, 600, 64))]
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(product_update_spectrum(*factors))
    np.testing.assert_array_equal(found[0].values, found[1].values)
    np.testing.assert_array_equal(found[0].noise_floor, found[1].noise_floor)


def test_concurrent_callers_restore_the_limits():
    with threadpool_limits(limits=2):
        before = blas_threads()
        callers = [
            threading.Thread(target=threaded_map, args=(lambda n: np.linalg.svdvals(np.eye(n)), [30] * 20))
            for _ in "abc"
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert blas_threads() == before
