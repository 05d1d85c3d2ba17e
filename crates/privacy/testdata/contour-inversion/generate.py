"""Makes poisson.json, the cells of ../tight-reference/poisson.json by another method where it converges, and
composed.json, unlike rounds and groups of users.

source: numpy 2.4.6 and scipy 1.17.1 (pip install numpy==2.4.6 scipy==1.17.1), in double precision.
Run it as `python generate.py` in this folder; it takes half an hour.

With A(a) = E_Q[(dP/dQ)^a], the curve of T rounds of a Poisson-sampled Gaussian is

    delta(eps) = (1 / 2 pi i) integral of A(1 + s)^T e^(-s eps) / (s (s + 1)) ds

along a vertical line right of 0, and with A(-s) in place of A(1 + s) for the direction of adding a user. Outcomes x so
far out that they change delta by less than 1e-9 of itself are left out; without them A is finite where the integrand
has its saddle point, through which the line is put. Unlike rounds multiply their A; a group of k users who are each
sampled on their own is a mixture of k + 1 Gaussians; a Gaussian release has ln A(a) = a (a - 1) mu^2 / 2. A - 1 = E_Q[(1 + u)^a - 1 - a u] is integrated by Gauss-Legendre
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
    """Quadrature nodes for one kind of round."""

    def __init__(self, q, z, rounds, delta, panels, group=1):
        self.rounds = rounds
        # No loss of the direction of adding a user exceeds this.
        self.most_added = -group * math.log1p(-q)
        lo, hi = -13 * z, group - z * ndtri(1e-9 * delta / rounds)
        edges = np.linspace(lo, hi, panels + 1)
        half, mid = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        x = (mid[:, None] + half[:, None] * NODES).ravel()
        density = np.exp(-x * x / (2 * z * z)) / (math.sqrt(2 * math.pi) * z)
        self.weights = (half[:, None] * WEIGHTS).ravel() * density
        self.u = sum(
            math.comb(group, j) * q**j * (1 - q) ** (group - j) * np.expm1((2 * x - j) * j / (2 * z * z))
            for j in range(1, group + 1)
        )
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


class Gaussian:
    """A Gaussian release; the same in both directions."""

    def __init__(self, mu):
        self.rounds, self.mu, self.most_added = 1, mu, math.inf

    def ln_moment(self, a):
        return np.atleast_1d(a * (a - 1) * self.mu**2 / 2)


class Run:
    """Several kinds of rounds."""

    def __init__(self, laws):
        self.laws = laws

    def delta(self, epsilon, removing, steps):
        if not removing and epsilon >= sum(law.rounds * law.most_added for law in self.laws):
            return 0.0

        def exponent(s):
            order = 1 + s if removing else -s
            return sum(law.rounds * law.ln_moment(order) for law in self.laws) - s * epsilon

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


def epsilon(run, delta, near, steps, removing=True):
    """Solves delta(eps) = delta, by secants."""
    error = lambda e: math.log(max(run.delta(e, removing, steps), 1e-300) / delta)
    a, b = near, near * (1 + 1e-4)
    at_a, at_b = error(a), error(b)
    for _ in range(30):
        if at_a == at_b or abs(b - a) < 1e-12 * b:
            break
        a, at_a, b = b, at_b, min(max(b - at_b * (b - a) / (at_b - at_a), 0.5 * b), 1.5 * b)
        at_b = error(b)
    return b


def write(name, source, note, rows):
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    with open(name, "w") as file:
        file.write(f'{{\n "source": {json.dumps(source)},\n "note": {json.dumps(note)},\n "rows": [\n{lines}\n ]\n}}\n')


def composed():
    """Random runs of up to three kinds of rounds, and groups."""
    rng = np.random.default_rng(2018)
    rows = []
    while len(rows) < 40:
        kinds = int(rng.integers(1, 4))
        group = int(rng.integers(2, 5)) if kinds == 1 else 1
        parts = []
        for _ in range(kinds):
            q, z = 10 ** rng.uniform(-4, -0.1), rng.uniform(0.6, 5)
            parts.append((float(f"{q:.3g}"), float(f"{z:.3g}"), int(10 ** rng.uniform(2, 5))))
        mu = float(f"{rng.uniform(0.05, 1):.3g}") if kinds > 1 and rng.uniform() < 0.5 else None
        delta = 10.0 ** -int(rng.integers(4, 11))

        def run(panels):
            laws = [Law(q, z, rounds, delta, panels, group) for q, z, rounds in parts]
            return Run(laws + ([Gaussian(mu)] if mu else []))

        # Where a normal law of the same variance would put it.
        variance = sum(law.rounds * 2 * law.ln_moment(2.0)[0].real / 2 for law in run(200).laws)
        near = variance / 2 + math.sqrt(variance) * -ndtri(delta)
        if not 0.05 < near < 15:
            continue
        coarse = epsilon(run(400), delta, near, 1200)
        fine = epsilon(run(600), delta, coarse, 2000)
        if abs(fine / coarse - 1) > 1e-9 or not 0.05 < fine < 20:
            continue
        if run(600).delta(fine, False, 2000) > delta:
            fine = max(fine, epsilon(run(600), delta, fine, 2000, removing=False))
        rows.append({
            "parts": [dict(zip(("sampling_rate", "noise_multiplier", "rounds"), part)) for part in parts],
            "mu": mu, "group": group, "delta": delta, "epsilon": fine,
        })  # fmt: skip
        print(len(rows), rows[-1], flush=True)
    write(
        "composed.json",
        "Inversion of the moment generating function along a contour through its saddle point, numpy 2.4.6 and scipy"
        " 1.17.1, by generate.py beside this file; values that two resolutions agree on to 1e-9.",
        "Poisson-sampled rounds of several kinds, with a Gaussian release of parameter mu where there is one, or for a"
        " group of users; epsilon is the larger of both directions.",
        rows,
    )


def main():
    with open("../tight-reference/poisson.json") as file:
        cells = json.load(file)["rows"]
    rows = []
    for cell in cells:
        if cell["rounds"] < 1000:
            continue
        q, z, rounds, delta = (cell[k] for k in ("sampling_rate", "noise_multiplier", "rounds", "delta"))
        coarse = epsilon(Run([Law(q, z, rounds, delta, 400)]), delta, cell["tight"], 1200)
        run = Run([Law(q, z, rounds, delta, 600)])
        fine = epsilon(run, delta, coarse, 2000)
        adding = run.delta(fine, False, 1200) / delta
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
    write("poisson.json", source, note, rows)


if __name__ == "__main__":
    main()
    composed()
