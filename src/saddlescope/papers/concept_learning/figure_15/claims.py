"""What the entry `figure_15` holds the measured signals and the direct estimator against."""

from collections.abc import Callable

import numpy as np
import xarray as xr

from saddlescope.reproduction.claim import Claim, Estimate

_LINEAR = 0.8  # colour setting beyond which jittered colours stop at 0 and 1


def _at(run: xr.Dataset, side: int) -> xr.Dataset:
    """The measurements of one of the two distributions: 0 is left, 1 is right."""
    return run.sel(color_setting=run.attrs["compared"][side])


def _ratio(side: int) -> Callable[[xr.Dataset], Estimate]:
    """The ratio of mu of colour to mu of size."""

    def statistic(run: xr.Dataset) -> Estimate:
        mu = _at(run, side).mu
        ratio = mu.sel(concept="color") / mu.sel(concept="size")
        return Estimate.mean(ratio, f"mu {_means(mu.sel(concept='color'))} and {_means(mu.sel(concept='size'))}")

    return statistic


def _means(values: xr.DataArray) -> str:
    return f"{float(values.mean()):.3g}"


def _small_ratio(run: xr.Dataset) -> Estimate:
    """Colour's signal among small circles over size's, on the left."""
    signal = _at(run, 0).signal
    color = signal.sel(concept="color").isel(other=1)
    size = signal.sel(concept="size").mean("other")
    return Estimate.mean(color / size, f"{_means(color)} and {_means(size)}")


def _image_ratio(run: xr.Dataset) -> Estimate:
    """Colour's image signal among big circles over size's among red ones, on the left: those of mu."""
    signal = _at(run, 0).image_signal.isel(other=0)
    return Estimate.mean(signal.sel(concept="color") / signal.sel(concept="size"))


def _crossing(run: xr.Dataset) -> Estimate:
    """The colour setting at which the two mu are equal, by linear interpolation of their log ratio; for each seed."""
    mu = run.mu.transpose("seed", "color_setting", "concept").values
    excess = np.log(mu[..., 0] / mu[..., 1])
    if np.any(excess[:, 0] >= 0) or np.any(excess[:, -1] <= 0) or np.any(np.diff(excess, axis=1) <= 0):
        return Estimate.unresolved("The signals do not cross once between the settings; set more color_settings.")
    return Estimate.mean([np.interp(0.0, of_seed, run.color_setting.values) for of_seed in excess])


def _slope(run: xr.Dataset) -> Estimate:
    """The exponent of colour's signal among big circles in its setting, as far as colours stay within 0 and 1."""
    linear = run.isel(color_setting=(run.color_setting <= _LINEAR).values)
    if linear.sizes["color_setting"] < 2:
        return Estimate.unresolved(f"Two colour settings up to {_LINEAR:g} are needed.")
    signal = linear.signal.sel(concept="color").isel(other=0).transpose("color_setting", "seed")
    return Estimate.mean(np.polyfit(np.log(linear.color_setting.values), np.log(signal.values), 1)[0])


def _big_over_small(run: xr.Dataset) -> Estimate:
    signal = _at(run, 0).signal.sel(concept="color")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


def _red_over_blue(run: xr.Dataset) -> Estimate:
    signal = _at(run, 0).signal.sel(concept="size")
    return Estimate.mean(signal.isel(other=0) / signal.isel(other=1))


def _size_by_color(run: xr.Dataset) -> Estimate:
    """Size's mu on the left over that on the right: nothing but the colours' setting is changed."""
    left, right = (_at(run, side).mu.sel(concept="size") for side in (0, 1))
    return Estimate.mean(left / right, f"{_means(right)} becomes {_means(left)}")


def _color_by_size(run: xr.Dataset) -> Estimate:
    """Colour's signal among big circles at the largest size setting over that at the least."""
    signal = run.signal_by_size.sel(concept="color").isel(other=0)
    least, largest = signal.isel(size_setting=0), signal.isel(size_setting=-1)
    told = f"{_means(least)} becomes {_means(largest)} between size settings"
    return Estimate.mean(largest / least, f"{told} {float(run.size_setting[0]):g} and {float(run.size_setting[-1]):g}")


def _error(concept: str) -> Callable[[xr.Dataset], Estimate]:
    """Root mean square error of the estimator over true images, on the side where it is larger."""

    def statistic(run: xr.Dataset) -> Estimate:
        squares = ((run.position - run.true_position) ** 2).sel(concept=concept)
        mean, count = squares.mean("image"), run.sizes["image"]
        side = int(mean.values.argmax())
        value = float(mean[side]) ** 0.5
        error = 1.96 * float(squares[side].std()) / count**0.5 / (2 * value)
        return Estimate(value, error, remark=f"{count} images, {run.side.values[side]}")

    return statistic


def _bias(run: xr.Dataset) -> Estimate:
    """The largest mean error of a class and concept, of either sign."""
    error = (run.position - run.true_position).groupby(run.image_class)
    mean, spread = error.mean("image"), error.std("image")
    worst = np.unravel_index(int(np.abs(mean.values).argmax()), mean.shape)
    count = int((run.image_class == mean.image_class.values[worst[mean.dims.index("image_class")]]).sum())
    return Estimate(abs(float(mean.values[worst])), 1.96 * float(spread.values[worst]) / count**0.5)


def _blank(run: xr.Dataset) -> Estimate:
    return Estimate(float(run.blank.mean()), remark=f"{run.blank.size} images")


_PLACE = "appendix G.1"
_BAR = "the bound is this project's bar"
_DERIVED = "this project's, derived: see `saddlescope.train.diffusion.signals`"

CLAIMS = (
    Claim(
        name="left",
        says="On the left, colours 0.7 apart, colour has the stronger signal: mu of colour over mu of size",
        source="Figure 15, left; the setting is the upper end of appendix G.1",
        statistic=_ratio(0),
        low=1.0,
    ),
    Claim(
        name="right",
        says="On the right, colours 0.2 apart, size has the stronger signal: the same ratio",
        source="Figure 15, right; the setting is the lower end of appendix G.1",
        statistic=_ratio(1),
        high=1.0,
    ),
    Claim(
        name="sensitivity",
        says="On the left colour is stronger as well where single images are compared that differ in one concept alone",
        source="section 1, the signal as sensitivity of the process; the bound is that of `left`",
        statistic=_image_ratio,
        low=1.0,
    ),
    Claim(
        name="small-circles",
        says="On the left colour is stronger whatever the size: its signal over size's among small circles, where the "
        "unseen class lies",
        source="Figure 15 has one signal for each concept; the bound is that of `left`",
        statistic=_small_ratio,
        low=1.0,
    ),
    Claim(
        name="crossing",
        says="Between the two settings the signals change places: colour setting at which they are equal",
        source="Figure 6 (a), whose order of learning is reversed between 0.2 and 0.7",
        statistic=_crossing,
        low=0.2,
        high=0.7,
    ),
    Claim(
        name="proportional",
        says="Colour's signal is proportional to its setting: exponent, up to settings of 0.8",
        source=_DERIVED,
        statistic=_slope,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="big-and-small",
        says="A big circle carries more of colour's signal: that among big circles over that among small ones",
        source=f"{_DERIVED}; {_BAR}",
        statistic=_big_over_small,
        low=2.0,
    ),
    Claim(
        name="red-and-blue",
        says="Red and blue circles carry size's signal alike: that among red ones over that among blue ones",
        source=_DERIVED,
        statistic=_red_over_blue,
        low=0.98,
        high=1.02,
    ),
    Claim(
        name="size-independent",
        says="Size's signal does not depend on colour's setting: that on the left over that on the right",
        source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
        statistic=_size_by_color,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="color-independent",
        says="Colour's signal does not depend on size's setting: that among big circles at the largest setting over "
        "that at the least",
        source=f"{_PLACE}: control the strength of the two concept signals independently; {_BAR}",
        statistic=_color_by_size,
        low=0.9,
        high=1.1,
    ),
    Claim(
        name="orthogonal",
        says="The two concepts are orthogonal in pixels, as in the SIM task: cosine of the angle between the means of "
        "the trained classes, on the left",
        source=f"section 2, whose clusters lie on coordinate axes; {_BAR}",
        statistic=lambda run: Estimate.mean(_at(run, 0).overlap),
        low=-0.1,
        high=0.1,
    ),
    Claim(
        name="reads-color",
        says="The direct estimator reads colour off true images: root mean square error, in units of the distance of "
        "the class means",
        source="this project's bar",
        statistic=_error("color"),
        high=0.1,
    ),
    Claim(
        name="reads-size",
        says="The direct estimator reads size off true images: root mean square error, in the same units",
        source="this project's bar",
        statistic=_error("size"),
        high=0.1,
    ),
    Claim(
        name="calibrated",
        says="It is right on average in every class: largest mean error",
        source="this project's bar",
        statistic=_bias,
        high=0.05,
    ),
    Claim(
        name="seen",
        says="It sees the circle in every true image: fraction called blank",
        source="this project's bar",
        statistic=_blank,
        high=0.0,
    ),
)
