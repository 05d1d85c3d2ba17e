"""Makes poisson.json: the cells of ../tight-reference/poisson.json by another method, where it converges.

source: numpy 2.4.6 and scipy 1.17.1 (pip install numpy==2.4.6 scipy==1.17.1), in double precision.
Run it as `python generate.py` in this folder; it takes half an hour.

With A(a) = E_Q[(dP/dQ)^a], the curve of T rounds of a Poisson-sampled Gaussian is

    delta(eps) = (1 / 2 pi i) integral of A(1 + s)^T e^(-s eps) / (s (s + 1)) ds

along a vertical line right of 0, and with A(-s) in place of A(1 + s) for the direction of adding a user. Outcomes x so
far out that they change delta by less than 1e-9 of itself are left out; without them A is finite where the integrand
has its saddle point, through which the line is put. A - 1 = E_Q[(1 + u)^a - 1 - a u] is integrated by Gauss-Legendre
panels without cancellation. Every value is computed twice, with finer panels and steps; only those that agree to 1e-9
are kept, which leaves out short runs.
"""

import json
import math

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import ndtri

NODES, WEIGHTS = leggauss(16)


class Law:
    """Quadrature nodes for one round."""

    def __init__(self, q, z, rounds, delta, panels):
        self.rounds = rounds
        lo, hi = -13 * z, 1 - z * ndtri(1e-9 * delta / rounds)
        edges = np.linspace(lo, hi, panels + 1)
        half, mid = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        x = (mid[:, None] + half[:, None] * NODES).ravel()
        density = np.exp(-x * x / (2 * z * z)) / (math.sqrt(2 * math.pi) * z)
        self.weights = (half[:, None] * WEIGHTS).ravel() * density
        self.u = q * np.expm1((2 * x - 1) / (2 * z * z))
        self.loss = np.log1p(self.u)
        # ln(1 + u) - u, by its series where u is small.
        tail = np.zeros_like(self.u)
        for k in range(14, 1, -1):
            tail = (-1) ** (k + 1) / k + self.u * tail
        self.bend = np.where(np.abs(self.u) < 1e-2, self.u**2 * tail, self.loss - self.u)

    def ln_moment(self, a):
        """ln A at complex orders."""
        a = np.atleast_1d(a)[:, None]
        power = a * self.loss
        large = np.abs(power) > 0.3
        direct = np.exp(np.where(large, power, 0)) - 1 - a * self.u
        power = np.where(large, 0, power)
        tail = np.zeros_like(power)
        for k in range(20, 1, -1):
            tail = 1 / math.factorial(k) + power * tail
        return np.log1p(np.where(large, direct, a * self.bend + power**2 * tail) @ self.weights)

    def delta(self, epsilon, removing, steps):
        exponent = lambda s: self.rounds * self.ln_moment(1 + s if removing else -s) - s * epsilon

        def on_the_axis(ln_c):
            c = math.exp(ln_c)
            value = exponent(np.array([c + 0j]))[0].real - math.log(c * (c + 1))
            return value if math.isfinite(value) else 1e300

        c = math.exp(minimum(on_the_axis, -8.0, 16.0))
        height, d = on_the_axis(math.log(c)), 1e-3 * c
        curvature = (on_the_axis(math.log(c + d)) - 2 * height + on_the_axis(math.log(c - d))) / d**2
        scale = 1 / math.sqrt(curvature)
        # t = scale sinh(v): fine near the saddle, far-reaching.
        v = (np.arange(steps) + 0.5) * (12.0 / steps)
        total = 0.0
        for part in np.array_split(v, steps // 100):
            s = c + 1j * scale * np.sinh(part)
            values = np.exp(exponent(s) - np.log(s * (s + 1)) - height) * scale * np.cosh(part)
            total += values.real.sum()
            if np.abs(values).max() < 1e-15 * abs(total):
                break
        return math.exp(height) * total * (12.0 / steps) / math.pi


def minimum(f, lo, hi):
    grid = np.linspace(lo, hi, 49)
    best = int(np.argmin([f(t) for t in grid]))
    lo, hi = grid[max(best - 1, 0)], grid[min(best + 1, 48)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(30):
        x, y = hi - ratio * (hi - lo), lo + ratio * (hi - lo)
        lo, hi = (lo, y) if f(x) < f(y) else (x, hi)
    return (lo + hi) / 2


def epsilon(law, delta, near, steps):
    """Solves delta(eps) = delta for the direction of removing a user, by secants."""
    error = lambda e: math.log(max(law.delta(e, True, steps), 1e-300) / delta)
    a, b = near, near * (1 + 1e-4)
    at_a, at_b = error(a), error(b)
    for _ in range(12):
        if at_a == at_b or abs(b - a) < 1e-12 * b:
            break
        a, at_a, b = b, at_b, min(max(b - at_b * (b - a) / (at_b - at_a), 0.5 * b), 1.5 * b)
        at_b = error(b)
    return b


def main():
    with open("../tight-reference/poisson.json") as file:
        cells = json.load(file)["rows"]
    rows = []
    for cell in cells:
        if cell["rounds"] < 1000:
            continue
        q, z, rounds, delta = (cell[k] for k in ("sampling_rate", "noise_multiplier", "rounds", "delta"))
        coarse = epsilon(Law(q, z, rounds, delta, 400), delta, cell["tight"], 1200)
        fine_law = Law(q, z, rounds, delta, 600)
        fine = epsilon(fine_law, delta, coarse, 2000)
        # No loss of the other direction exceeds -ln(1 - q) a round.
        adding = 0.0 if fine >= -rounds * math.log1p(-q) else fine_law.delta(fine, False, 1200) / delta
        print(q, z, rounds, fine, fine / coarse - 1, fine / cell["tight"] - 1, adding, flush=True)
        if abs(fine / coarse - 1) < 1e-9:
            rows.append({"sampling_rate": q, "noise_multiplier": z, "rounds": rounds, "delta": delta, "epsilon": fine,
                         "adding": adding})  # fmt: skip
    source = (
        "Inversion of the moment generating function along a contour through its saddle point, numpy 2.4.6 and scipy"
        " 1.17.1, by generate.py beside this file; values that two resolutions agree on to 1e-9. The cell with rate"
        " 1e-5, 1e6 rounds and delta 10^-8.8 was checked with mpmath 1.4.1 at 32 digits, without leaving anything out."
    )
    note = (
        "epsilon is that of removing a user; adding is delta in the direction of adding one, at that epsilon, as a"
        " fraction of delta. In one cell the tight reference lies above these values by more than twice its last"
        " refinement: rate 1e-5, 1e6 rounds, delta 10^-8.8, by 4.4e-4 of itself."
    )
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    with open("poisson.json", "w") as file:
        file.write(f'{{\n "source": {json.dumps(source)},\n "note": {json.dumps(note)},\n "rows": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
