"""Statistics behind the claims of the entry `width`."""

import xarray as xr

from saddlescope.reproduction.claim import Estimate


def _descent_share(run: xr.Dataset, width: int, scale: int, *, dim: int = 0, of: str = "several") -> Estimate:
    """Return P(two or more descents); width, scale and dim are indices into the run's lists."""
    one = run.isel(width=width, scale=scale, dim=dim)
    return Estimate.share(float(one[of]), float(one.starts))


def widest_share(run: xr.Dataset) -> Estimate:
    """Return P(two or more descents) at the largest width, second scale, d = 2."""
    narrow, wide = (_descent_share(run, k, 1) for k in (0, -1))
    remark = f"d' = {int(run.width[0])}: {narrow.value:.4f}, {int(run.width[-1])}: {wide.value:.4f}"
    return Estimate(wide.value, wide.uncertainty, f"{remark}, tau = {float(run.scale[1]):g}")


def dimension_difference(run: xr.Dataset) -> Estimate:
    """Return P(two or more) at d = 2 less that at the high dimension, mean over widths, smallest scale."""
    pairs = [(_descent_share(run, k, 0), _descent_share(run, k, 0, dim=1)) for k in range(run.sizes["width"])]
    remark = ", ".join(f"{one.value:.3f} and {other.value:.3f}" for one, other in pairs)
    errors = [one.uncertainty**2 + other.uncertainty**2 for one, other in pairs]
    mean = sum(one.value - other.value for one, other in pairs) / len(pairs)
    return Estimate(mean, sum(errors) ** 0.5 / len(pairs), f"d = {int(run.dim[0])} and {int(run.dim[1])}: {remark}")


def smallest_scale_share(run: xr.Dataset) -> Estimate:
    """Return P(two or more) at width 16, or the nearest, and the smallest scale."""
    place = int(abs(run.width.values - 16).argmin())
    remark = f"with rises above 0.1 %: {_descent_share(run, place, 0, of='visible').value:.4f}"
    one = _descent_share(run, place, 0)
    return Estimate(
        one.value, one.uncertainty, f"d' = {int(run.width[place])}, tau = {float(run.scale[0]):g}; {remark}"
    )


def entry_moment(run: xr.Dataset, *, kind: str) -> Estimate:
    """Return the mean of w_ii(0), the mean or the root mean square of w_ij(0), in units of equation E.1."""
    one = run.isel(dim=0)
    cells = one.starts.size
    if kind == "major":
        return Estimate(float(one.major_mean.mean()), 1.96 * float((one.major_error**2).mean() / cells) ** 0.5)
    error = 1.96 * float((1 / one.starts).mean() / cells) ** 0.5
    if kind == "minor":
        return Estimate(float(one.minor_mean.mean()), error)
    return Estimate(float(one.minor_size.mean()), 1.5 * error)  # the fourth moment of w_ij is at most 9 squares


def sgd_share(run: xr.Dataset) -> Estimate:
    """Return the share of SGD runs with three descents."""
    if int(run.flow_descents) != 3:
        return Estimate.unresolved("No start with three clear descents was drawn; raise pool.")
    counts = run.sgd_descents.values
    off = float(abs(run.sgd_loss - run.flow_loss).max())
    return Estimate(float((counts == 3).mean()), remark=f"{len(counts)} runs, up to {off:.2g} |x|^2 / 2 off the flow")
