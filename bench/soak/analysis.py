"""A line through samples, with an interval that holds although neighbouring samples are alike (Newey and West 1987)."""

import math


def slope(xs, ys):
    """Least squares: units of y for 1,000 of x, with a 95 % interval."""
    n = len(xs)
    if n < 10:
        raise SystemExit(f"only {n} samples after the warm-up: run more rounds")
    mean_x, mean_y = sum(xs) / n, sum(ys) / n
    spread = sum((x - mean_x) ** 2 for x in xs)
    b = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    moments = [(x - mean_x) * (y - mean_y - b * (x - mean_x)) for x, y in zip(xs, ys)]
    # Samples that are up to so far apart are taken to depend on each other: a tenth of all.
    lags = max(1, n // 10)
    covariance = lambda lag: sum(moments[i] * moments[i - lag] for i in range(lag, n))
    variance = covariance(0) + 2 * sum((1 - lag / (lags + 1)) * covariance(lag) for lag in range(1, lags + 1))
    error = math.sqrt(max(variance, 0.0)) / spread
    return {"per_1000_rounds": 1000 * b, "least_95": 1000 * (b - 1.96 * error), "most_95": 1000 * (b + 1.96 * error)}
