"""Statistics behind the claims of the entry `figure_15`."""

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Estimate

_LINEAR = 0.8  # colour setting beyond which jittered colours stop at 0 and 1


def _at(run: xr.Dataset, side: int) -> xr.Dataset:
    """Select the measurements of one of the two distributions: 0 is left, 1 is right."""
    return run.sel(color_setting=run.attrs["compared"][side])


def signal_ratio(run: xr.Dataset, *, side: int) -> Estimate:
    """Return mu of colour over mu of size."""
    mu = _at(run, side).mu
    ratio = mu.sel(concept="color") / mu.sel(concept="size")
    return Estimate.mean(ratio, f"mu {_means(mu.sel(concept='color'))} and {_means(mu.sel(concept='size'))}")


def _means(values: xr.DataArray) -> str:
    return f"{float(values.mean()):.3g}"


def small_circle_ratio(run: xr.Dataset) -> Estimate:
    """Return colour's signal among small circles over size's, on the left."""
    signal = _at(run, 0).signal
    color = signal.sel(concept="color").isel(other=1)
    size = signal.sel(concept="size").mean("other")
    return Estimate.mean(color / size, f"{_means(color)} and {_means(size)}")


def image_ratio(run: xr.Dataset) -> Estimate:
    """Return colour's image signal among big circles over size's among red ones, on the left, as for mu."""
    signal = _at(run, 0).image_signal.isel(other=0)
    return Estimate.mean(signal.sel(concept="color") / signal.sel(concept="size"))


def crossing(run: xr.Dataset) -> Estimate:
    """Return the colour setting at which both mu are equal, by linear interpolation of their log ratio."""
    mu = run.mu.transpose("seed", "color_setting", "concept").values
    excess = np.log(mu[..., 0] / mu[..., 1])
    if np.any(excess[:, 0] >= 0) or np.any(excess[:, -1] <= 0) or np.any(np.diff(excess, axis=1) <= 0):
        return Estimate.unresolved("The signals do not cross once between the settings; set more color_settings.")
    return Estimate.mean([np.interp(0.0, of_seed, run.color_setting.values) for of_seed in excess])


def signal_exponent(run: xr.Dataset) -> Estimate:
    """Return the exponent of colour's signal among big circles in its setting, while colours stay within 0 and 1."""
    linear = run.isel(color_setting=(run.color_setting <= _LINEAR).values)
    if linear.sizes["color_setting"] < 2:
        return Estimate.unresolved(f"Two colour settings up to {_LINEAR:g} are needed.")
    signal = linear.signal.sel(concept="color").isel(other=0).transpose("color_setting", "seed")
    return Estimate.mean(np.polyfit(np.log(linear.color_setting.values), np.log(signal.values), 1)[0])


def big_over_small(run: xr.Dataset) -> Estimate:
    """Return colour's signal among big circles over that among small ones."""
    signal = _at(run, 0).signal.sel(concept="color")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


def red_over_blue(run: xr.Dataset) -> Estimate:
    """Return size's signal among red circles over that among blue ones."""
    signal = _at(run, 0).signal.sel(concept="size")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


def size_by_color(run: xr.Dataset) -> Estimate:
    """Return size's mu on the left over that on the right; only the colours' setting differs."""
    left, right = (_at(run, side).mu.sel(concept="size") for side in (0, 1))
    return Estimate.mean(left / right, f"{_means(right)} becomes {_means(left)}")


def color_by_size(run: xr.Dataset) -> Estimate:
    """Return colour's signal among big circles at the largest size setting over that at the least."""
    signal = run.signal_by_size.sel(concept="color").isel(other=0)
    least, largest = signal.isel(size_setting=0), signal.isel(size_setting=-1)
    remark = f"{_means(least)} becomes {_means(largest)} between size settings"
    return Estimate.mean(
        largest / least, f"{remark} {float(run.size_setting[0]):g} and {float(run.size_setting[-1]):g}"
    )


def reading_error(run: xr.Dataset, *, concept: str) -> Estimate:
    """Return the root mean square error of the estimator on the side where it is larger."""
    squares = ((run.position - run.true_position) ** 2).sel(concept=concept)
    mean, count = squares.mean("image"), run.sizes["image"]
    side = int(mean.values.argmax())
    value = float(mean[side]) ** 0.5
    error = 1.96 * float(squares[side].std()) / count**0.5 / (2 * value)
    return Estimate(value, error, remark=f"{count} images, {run.side.values[side]}")


def reading_bias(run: xr.Dataset) -> Estimate:
    """Return the largest mean error of a class and concept, of either sign."""
    error = (run.position - run.true_position).groupby(run.image_class)
    mean, spread = error.mean("image"), error.std("image")
    worst = np.unravel_index(int(np.abs(mean.values).argmax()), mean.shape)
    count = int((run.image_class == mean.image_class.values[worst[mean.dims.index("image_class")]]).sum())
    return Estimate(abs(float(mean.values[worst])), 1.96 * float(spread.values[worst]) / count**0.5)


def overlap(run: xr.Dataset) -> Estimate:
    """Return the cosine of the angle between the concepts on the left."""
    return Estimate.mean(_at(run, 0).overlap)


def blank_share(run: xr.Dataset) -> Estimate:
    """Return the fraction of true images that the estimator calls blank."""
    return Estimate(float(run.blank.mean()), remark=f"{run.blank.size} images")
