"""Claims of the entry `figure_15`."""

from functools import partial

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claims, Estimate

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


def reading_error(run: xr.Dataset, *, concept: str) -> Estimate:
    """Return the root mean square error of the estimator on the side where it is larger."""
    squares = ((run.position - run.true_position) ** 2).sel(concept=concept)
    mean, count = squares.mean("image"), run.sizes["image"]
    side = int(mean.values.argmax())
    value = float(mean[side]) ** 0.5
    error = 1.96 * float(squares[side].std()) / count**0.5 / (2 * value)
    return Estimate(value, error, remark=f"{count} images, {run.side.values[side]}")


_PLACE = "appendix G.1"

_BAR = "the bound is this project's bar"

_DERIVED = "this project's, derived: see `saddlescope.train.diffusion.signals`"

claims = Claims()

claims.add(
    "left",
    "On the left, colours 0.7 apart, colour has the stronger signal",
    quantity="mu of colour over mu of size",
    kind="printed",
    source="Figure 15, left; the setting is the upper end of appendix G.1",
    low=1.0,
)(partial(signal_ratio, side=0))

claims.add(
    "right",
    "On the right, colours 0.2 apart, size has the stronger signal",
    quantity="the same ratio",
    kind="printed",
    source="Figure 15, right; the setting is the lower end of appendix G.1",
    high=1.0,
)(partial(signal_ratio, side=1))


@claims.add(
    "sensitivity",
    "On the left colour is stronger as well where single images are compared that differ in one concept alone",
    quantity="value",
    kind="printed",
    source="section 1, the signal as sensitivity of the process; the bound is that of `left`",
    low=1.0,
)
def image_ratio(run: xr.Dataset) -> Estimate:
    """Return colour's image signal among big circles over size's among red ones, on the left, as for mu."""
    signal = _at(run, 0).image_signal.isel(other=0)
    return Estimate.mean(signal.sel(concept="color") / signal.sel(concept="size"))


@claims.add(
    "small-circles",
    "On the left colour is stronger whatever the size",
    quantity="its signal over size's among small circles, where the unseen class lies",
    kind="printed",
    source="Figure 15 has one signal for each concept; the bound is that of `left`",
    low=1.0,
)
def small_circle_ratio(run: xr.Dataset) -> Estimate:
    """Return colour's signal among small circles over size's, on the left."""
    signal = _at(run, 0).signal
    color = signal.sel(concept="color").isel(other=1)
    size = signal.sel(concept="size").mean("other")
    return Estimate.mean(color / size, f"{_means(color)} and {_means(size)}")


@claims.add(
    "crossing",
    "Between the two settings the signals change places",
    quantity="colour setting at which they are equal",
    kind="printed",
    source="Figure 6 (a), whose order of learning is reversed between 0.2 and 0.7",
    low=0.2,
    high=0.7,
)
def crossing(run: xr.Dataset) -> Estimate:
    """Return the colour setting at which both mu are equal, by linear interpolation of their log ratio."""
    mu = run.mu.transpose("seed", "color_setting", "concept").values
    excess = np.log(mu[..., 0] / mu[..., 1])
    if np.any(excess[:, 0] >= 0) or np.any(excess[:, -1] <= 0) or np.any(np.diff(excess, axis=1) <= 0):
        return Estimate.unresolved("The signals do not cross once between the settings; set more color_settings.")
    return Estimate.mean([np.interp(0.0, of_seed, run.color_setting.values) for of_seed in excess])


@claims.add(
    "proportional",
    "Colour's signal is proportional to its setting",
    quantity="exponent, up to settings of 0.8",
    kind="printed",
    source=_DERIVED,
    low=0.98,
    high=1.02,
)
def signal_exponent(run: xr.Dataset) -> Estimate:
    """Return the exponent of colour's signal among big circles in its setting, while colours stay within 0 and 1."""
    linear = run.isel(color_setting=(run.color_setting <= _LINEAR).values)
    if linear.sizes["color_setting"] < 2:
        return Estimate.unresolved(f"Two colour settings up to {_LINEAR:g} are needed.")
    signal = linear.signal.sel(concept="color").isel(other=0).transpose("color_setting", "seed")
    return Estimate.mean(np.polyfit(np.log(linear.color_setting.values), np.log(signal.values), 1)[0])


@claims.add(
    "big-and-small",
    "A big circle carries more of colour's signal",
    quantity="that among big circles over that among small ones",
    kind="printed",
    source=f"{_DERIVED}; {_BAR}",
    low=2.0,
)
def big_over_small(run: xr.Dataset) -> Estimate:
    """Return colour's signal among big circles over that among small ones."""
    signal = _at(run, 0).signal.sel(concept="color")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


@claims.add(
    "red-and-blue",
    "Red and blue circles carry size's signal alike",
    quantity="that among red ones over that among blue ones",
    kind="printed",
    source=_DERIVED,
    low=0.98,
    high=1.02,
)
def red_over_blue(run: xr.Dataset) -> Estimate:
    """Return size's signal among red circles over that among blue ones."""
    signal = _at(run, 0).signal.sel(concept="size")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


@claims.add(
    "size-independent",
    "Size's signal does not depend on colour's setting",
    quantity="that on the left over that on the right",
    kind="printed",
    source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
    low=0.9,
    high=1.1,
)
def size_by_color(run: xr.Dataset) -> Estimate:
    """Return size's mu on the left over that on the right; only the colours' setting differs."""
    left, right = (_at(run, side).mu.sel(concept="size") for side in (0, 1))
    return Estimate.mean(left / right, f"{_means(right)} becomes {_means(left)}")


@claims.add(
    "color-independent",
    "Colour's signal does not depend on size's setting",
    quantity="that among big circles at the largest setting over that at the least",
    kind="printed",
    source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
    low=0.9,
    high=1.1,
)
def color_by_size(run: xr.Dataset) -> Estimate:
    """Return colour's signal among big circles at the largest size setting over that at the least."""
    signal = run.signal_by_size.sel(concept="color").isel(other=0)
    least, largest = signal.isel(size_setting=0), signal.isel(size_setting=-1)
    remark = f"{_means(least)} becomes {_means(largest)} between size settings"
    return Estimate.mean(
        largest / least, f"{remark} {float(run.size_setting[0]):g} and {float(run.size_setting[-1]):g}"
    )


@claims.add(
    "orthogonal",
    "The two concepts are orthogonal in pixels, as in the SIM task",
    quantity="cosine of the angle between the means of the trained classes, on the left",
    kind="printed",
    source=f"section 2, whose clusters lie on coordinate axes; {_BAR}",
    low=-0.1,
    high=0.1,
)
def overlap(run: xr.Dataset) -> Estimate:
    """Return the cosine of the angle between the concepts on the left."""
    return Estimate.mean(_at(run, 0).overlap)


claims.add(
    "reads-color",
    "The direct estimator reads colour off true images",
    quantity="root mean square error, in units of the distance of the class means",
    kind="own",
    source="this project's bar",
    high=0.1,
)(partial(reading_error, concept="color"))

claims.add(
    "reads-size",
    "The direct estimator reads size off true images",
    quantity="root mean square error, in the same units",
    kind="own",
    source="this project's bar",
    high=0.1,
)(partial(reading_error, concept="size"))


@claims.add(
    "calibrated",
    "It is right on average in every class",
    quantity="largest mean error",
    kind="own",
    source="this project's bar",
    high=0.05,
)
def reading_bias(run: xr.Dataset) -> Estimate:
    """Return the largest mean error of a class and concept, of either sign."""
    error = (run.position - run.true_position).groupby(run.image_class)
    mean, spread = error.mean("image"), error.std("image")
    worst = np.unravel_index(int(np.abs(mean.values).argmax()), mean.shape)
    count = int((run.image_class == mean.image_class.values[worst[mean.dims.index("image_class")]]).sum())
    return Estimate(abs(float(mean.values[worst])), 1.96 * float(spread.values[worst]) / count**0.5)


@claims.add(
    "seen",
    "It sees the circle in every true image",
    quantity="fraction called blank",
    kind="own",
    source="this project's bar",
    high=0.0,
)
def blank_share(run: xr.Dataset) -> Estimate:
    """Return the fraction of true images that the estimator calls blank."""
    return Estimate(float(run.blank.mean()), remark=f"{run.blank.size} images")
