"""What all tests share: float64 in JAX, strict promotion, and the data folder."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def types_unchecked() -> Callable[[], AbstractContextManager[None]]:
    """Types are not checked at run time within it, as in the hands of users: small right-hand sides are much faster."""

    @contextmanager
    def context() -> Iterator[None]:
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            yield
        finally:
            jaxtyping.config.update("jaxtyping_disable", False)

    return context


@pytest.fixture
def tiny(monkeypatch):
    """The tiny entry of tests/tiny.py, in place of all others."""
    import tiny

    monkeypatch.setattr("saddlescope.reproduction.entry.find", tiny.find)
    monkeypatch.setattr("saddlescope.reproduction.entry.names", lambda: tiny.NAMES)
    return tiny.ENTRY


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of official data sets; tests that want it skip where it is absent, except in CI."""
    given = os.environ.get("SADDLESCOPE_DATA", str(Path(__file__).parents[2] / "shared" / "data"))
    folder = Path(given)
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"CI needs the official data; there is no folder {folder}. Set SADDLESCOPE_DATA.")
        pytest.skip("official data absent: set SADDLESCOPE_DATA")
    return folder
