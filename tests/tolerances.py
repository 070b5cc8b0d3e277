"""Table of tolerances. Loosening one is an edit here, with its reason beside it."""

# measure: singular values, relative to the largest
SPECTRUM_FROM_DOUBLE = 1e-13  # QR and SVD in float64; the reference's long double difference costs 1e-19 / 1e-6
SPECTRUM_FROM_SINGLE = 2e-7  # roots of squares in float64: sqrt(8 eps) = 4e-8 times the size before the halves cancel
SPECTRUM_IN_SINGLE = 2e-6  # where the library has no float64: QR and SVD in float32, eps = 1.2e-7
RANK = 1e-12  # sums of a few dozen float64 shares
CROSSING = 1e-12  # interpolation of a function that is exactly of the interpolated form

# flow: error of a stage time in units of the requested tolerance
FLOW_STAGE_TIME = 3  # what `gradient_flow` promises; reached: 0.1 to 2.2

# theory: Algorithm 1
GREEDY = 1e-10  # times (relative to max(1, T)) and states against rational arithmetic; reached: 8e-14
TEACHER = 1e-12  # the last saddle of the attention task against the teacher; reached: 2e-16
TRANSITION = 1e-6  # ends of transitions against SciPy's flow, to rtol=1e-8
