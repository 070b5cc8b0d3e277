"""Pieces side by side: the same results in the same order, errors as they are, and the threads of BLAS put back."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from saddlescope.measure import product_update_spectrum
from saddlescope.measure.thread_pool import each


def blas_threads():
    return [library["num_threads"] for library in threadpool_info() if library["internal_api"] == "openblas"]


@pytest.mark.skipif(not blas_threads(), reason="NumPy has another BLAS than OpenBLAS")
def test_pieces_meet_where_there_are_threads_for_them():
    meeting = threading.Barrier(2, timeout=20)  # breaks unless two pieces are worked on at once
    with threadpool_limits(limits=2):
        before = blas_threads()  # a library that was built for one thread keeps to it
        assert each(lambda item: (meeting.wait() >= 0, item), [3, 1, 4, 1]) == [(True, item) for item in (3, 1, 4, 1)]
        assert blas_threads() == before
        assert 2 in before


def test_one_thread_takes_them_in_turn():
    with threadpool_limits(limits=1):
        assert each(lambda item: (threading.get_ident(), item), [3, 1]) == [(threading.get_ident(), k) for k in (3, 1)]


def test_an_error_in_a_piece_is_raised_and_the_threads_are_put_back():
    with threadpool_limits(limits=2):
        before = blas_threads()
        with pytest.raises(ZeroDivisionError):
            each(lambda item: 1 / item, [1, 0, 2])
        assert blas_threads() == before


def test_spectra_do_not_depend_on_the_number_of_threads():
    factors = [X.astype(np.float32) for X in np.random.default_rng(0).standard_normal((4, 7, 600, 64))]
    found = []
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            found.append(product_update_spectrum(*factors))
    np.testing.assert_array_equal(found[0].values, found[1].values)
    np.testing.assert_array_equal(found[0].noise_floor, found[1].noise_floor)


def test_callers_in_several_threads_do_not_leave_each_others_limits():
    with threadpool_limits(limits=2):
        before = blas_threads()
        callers = [
            threading.Thread(target=each, args=(lambda n: np.linalg.svdvals(np.eye(n)), [30] * 20)) for _ in "abc"
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert blas_threads() == before
