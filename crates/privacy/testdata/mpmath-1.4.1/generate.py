"""Makes renyi_fractional.json and renyi_epsilon.json.

source: mpmath 1.4.1 and, for one column, dp_accounting 0.6.0 (pip install mpmath==1.4.1 dp_accounting==0.6.0).
Run it as `python generate.py` in this folder; it takes some minutes.

With Q = N(0, z^2), u = q (e^((2x - 1) / (2 z^2)) - 1) and E_Q[u] = 0:

    A(a) - 1 = E_Q[(1 + u)^a - 1 - a u],      RDP(a) = ln A(a) / (a - 1).

Everything is Gauss-Legendre quadrature on pieces at 40 digits, repeated with other pieces and compared.
"""

import json

import mpmath as mp

mp.mp.dps = 40


def moment_excess(q, z, a, pieces_per_z=1):
    """A(a) - 1 for a real or complex order a, to about 30 digits."""
    q, z = mp.mpf(q), mp.mpf(z)
    reach = 15 * z + 1
    lo, hi = -reach, mp.re(a) + reach
    width = z * min(1, z) / pieces_per_z
    pieces = int(mp.ceil((hi - lo) / width))
    nodes = [lo + (hi - lo) * i / pieces for i in range(pieces + 1)]

    def integrand(x):
        u = q * mp.expm1((2 * x - 1) / (2 * z * z))
        return (mp.power(1 + u, a) - 1 - a * u) * mp.exp(-x * x / (2 * z * z))

    return mp.quad(integrand, nodes, maxdegree=5) / (mp.sqrt(2 * mp.pi) * z)


def ln_moment(q, z, a):
    return mp.log1p(moment_excess(q, z, a))


def epsilon_at(q, z, rounds, delta, a):
    """The conversion of Canonne, Kamath and Steinke 2020 at one order."""
    return (rounds * ln_moment(q, z, a) - mp.log(delta * a)) / (a - 1) + mp.log1p(-1 / a)


def smallest_epsilon(q, z, rounds, delta, start):
    """The order that minimises epsilon, by golden sections in ln(a - 1), and the minimum."""
    ratio = (mp.sqrt(5) - 1) / 2
    value = lambda t: epsilon_at(q, z, rounds, delta, 1 + mp.exp(t))
    lo, hi = mp.log(mp.mpf(start) - 1) - 1, mp.log(mp.mpf(start) - 1) + 1
    x, y = hi - ratio * (hi - lo), lo + ratio * (hi - lo)
    fx, fy = value(x), value(y)
    while hi - lo > mp.mpf("1e-9"):
        if fx < fy:
            hi, y, fy = y, x, fx
            x = hi - ratio * (hi - lo)
            fx = value(x)
        else:
            lo, x, fx = x, y, fy
            y = lo + ratio * (hi - lo)
            fy = value(y)
    t = (lo + hi) / 2
    return 1 + mp.exp(t), value(t)


def digits(x, n=20):
    return mp.nstr(x, n, min_fixed=-4, max_fixed=6)


def write(name, source, note, rows):
    lines = ",\n".join("  {" + ", ".join(f'"{k}": {v}' for k, v in row.items()) + "}" for row in rows)
    text = f'{{\n "source": {json.dumps(source)},\n "note": {json.dumps(note)},\n "rows": [\n{lines}\n ]\n}}\n'
    json.loads(text)
    with open(name, "w") as file:
        file.write(text)
    print(name, len(rows), "rows", flush=True)


def renyi_fractional():
    from dp_accounting.rdp import rdp_privacy_accountant

    cases = [
        (1e-6, 0.4, 1.5), (1e-6, 1.0, 2.7), (1e-6, 1.0, 33.3), (1e-6, 10.0, 1.1), (1e-6, 10.0, 33.3),
        (1e-5, 0.6, 5.7), (1e-4, 1.0, 1.1), (1e-4, 1.0, 14.5), (1e-4, 3.0, 5.7),
        (1e-3, 0.4, 1.1), (1e-3, 0.7, 2.7), (1e-3, 1.0, 5.7), (1e-3, 1.0, 33.3), (1e-3, 5.0, 1.5),
        (0.01, 0.5, 1.5), (0.01, 0.8, 5.7), (0.01, 1.0, 1.1), (0.01, 2.0, 33.3), (0.01, 10.0, 2.7),
        (0.1, 0.4, 1.1), (0.1, 1.0, 1.5), (0.1, 2.0, 5.7), (0.1, 4.0, 33.3),
        (0.5, 0.4, 1.5), (0.5, 0.8, 33.3), (0.5, 1.0, 2.7), (0.5, 4.0, 5.7), (0.5, 10.0, 1.1),
    ]  # fmt: skip
    rows = []
    for q, z, a in cases:
        order = mp.mpf(a)
        value = ln_moment(q, z, order)
        again = mp.log1p(moment_excess(q, z, order, pieces_per_z=2))
        assert abs(value / again - 1) < mp.mpf("1e-22"), (q, z, a, value, again)
        theirs = rdp_privacy_accountant._compute_log_a(q, z, a)
        rows.append({
            "sampling_rate": repr(q), "noise_multiplier": repr(z), "order": repr(a), "ln_moment": digits(value),
            "dp_accounting": repr(float(theirs)) if theirs < 1e300 else "null",
        })  # fmt: skip
        print(q, z, a, digits(value), float(theirs) / float(value) - 1, flush=True)
    write(
        "renyi_fractional.json",
        "mpmath 1.4.1, Gauss-Legendre quadrature at 40 digits by generate.py beside this file, given to 20 digits;"
        " the column dp_accounting is _compute_log_a of dp_accounting 0.6.0.",
        "ln_moment is ln E_Q[(dP/dQ)^order] = (order - 1) RDP(order) of a Poisson-sampled Gaussian. dp_accounting drops"
        " the signs of a series at fractional orders and comes out above, rounding aside; null where it is infinite.",
        rows,
    )


def renyi_epsilon():
    cases = [
        # q, z, rounds, delta, an order near the best
        (0.01, 1.0, 1000000, 10 ** -6.6, 1.4), (0.01, 1.0, 100000, 10 ** -6.6, 2.2), (0.01, 0.8, 1000, 1e-6, 5.5),
        (0.1, 2.0, 1000, 1e-5, 5.0), (0.5, 0.6, 30, 1e-6, 2.0), (0.5, 10.0, 200, 1e-7, 12.0),
        (1e-3, 1.0, 1000000, 1e-7, 5.0), (1e-3, 0.4, 100, 1e-5, 3.0), (1e-4, 0.5, 100000, 1e-8, 4.0),
        (1e-6, 1.0, 1000000, 1e-9, 22.0), (0.02, 5.0, 5000, 1e-9, 20.0), (0.9, 1.5, 10, 1e-5, 5.0),
    ]  # fmt: skip
    rows = []
    for q, z, rounds, delta, near in cases:
        order, epsilon = smallest_epsilon(mp.mpf(q), mp.mpf(z), rounds, mp.mpf(delta), near)
        rows.append({
            "sampling_rate": repr(q), "noise_multiplier": repr(z), "rounds": rounds, "delta": repr(delta),
            "order": digits(order, 8), "epsilon": digits(epsilon),
        })  # fmt: skip
        print(q, z, rounds, digits(order, 8), digits(epsilon), flush=True)
    write(
        "renyi_epsilon.json",
        "mpmath 1.4.1, Gauss-Legendre quadrature at 40 digits and golden sections over the order by generate.py beside"
        " this file, given to 20 digits.",
        "The smallest epsilon over all orders by the conversion of Canonne, Kamath and Steinke 2020, from exact Renyi"
        " divergences of a Poisson-sampled Gaussian; the order is good to about 8 digits.",
        rows,
    )


if __name__ == "__main__":
    renyi_fractional()
    renyi_epsilon()
