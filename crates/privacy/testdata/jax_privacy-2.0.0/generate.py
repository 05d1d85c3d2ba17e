"""Makes toeplitz_sensitivity.json.

source: jax_privacy 2.0.0 (pip install jax_privacy==2.0.0), in double precision.
Run it as `python generate.py` in this folder; it takes some minutes.

What jax_privacy calls min_sep is the distance of two participations: 1 allows every round.

- `minsep_sensitivity_squared` of a Toeplitz matrix: exact, for non-negative and non-increasing columns.
- `get_sensitivity_banded` of the dense matrix: exact when the bands are at most min_sep, whatever the order of the
  coefficients.
- `get_min_sep_sensitivity_upper_bound` of the dense matrix: an upper bound for anything; beside it stands the exact
  value, by trying every pattern of participation.
"""

import json
import math

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
from jax_privacy.matrix_factorization import buffered_toeplitz, sensitivity, toeplitz


def number(x):
    return repr(float(x))


def numbers(xs):
    return "[" + ", ".join(number(x) for x in xs) + "]"


def case(distance, count, squared, bound=None):
    """One limit of participation and the squared sensitivity under it."""
    fields = {"distance": distance, "max_participations": count, "squared_sensitivity": float(squared)}
    return json.dumps(fields if bound is None else fields | {"upper_bound": float(bound)})


def listed(cases):
    return "[\n   " + ",\n   ".join(cases) + "]"


def square_root_column(bands):
    """The first coefficients of (1 - x)^(-1/2): (-1)^i C(-1/2, i)."""
    column = [1.0]
    for i in range(1, bands):
        column.append(column[-1] * (2 * i - 1) / (2 * i))
    return column


def toeplitz_squared(column, rounds, distance, count):
    return toeplitz.minsep_sensitivity_squared(jnp.asarray(column), distance, count, n=rounds)


def by_enumeration(column, rounds, distance, count):
    """The squared sensitivity by trying every pattern of participation."""
    dense = np.zeros((rounds, rounds))
    for j in range(rounds):
        for i, c in enumerate(column[: rounds - j]):
            dense[i + j, j] = c
    gram = np.abs(dense.T @ dense)
    best = 0.0
    stack = [((), 0)]
    while stack:
        chosen, free_from = stack.pop()
        if chosen:
            best = max(best, gram[np.ix_(chosen, chosen)].sum())
        if len(chosen) < count:
            stack.extend((chosen + (p,), p + distance) for p in range(free_from, rounds))
    return best


def banded_monotone():
    columns = []
    for bands, rounds in [(1, 50), (2, 64), (8, 100), (32, 400), (128, 1000), (400, 2000)]:
        columns.append((f"square root, {bands} bands", square_root_column(bands), rounds))
    for bands, rounds in [(4, 32), (8, 64), (16, 128)]:
        columns.append((f"optimize_banded_toeplitz, {bands} bands",
                        list(map(float, toeplitz.optimize_banded_toeplitz(rounds, bands))), rounds))  # fmt: skip
    for name, column, rounds in columns:
        bands = len(column)
        limits = {(1, 1), (bands, 3), (max(1, bands // 2), 4), (max(1, bands // 3), 7), (bands + 5, rounds), (1, 12)}
        cases = [case(d, k, toeplitz_squared(column, rounds, d, k)) for d, k in sorted(limits)]
        yield {"made": json.dumps(name), "rounds": rounds, "coefficients": numbers(column), "cases": listed(cases)}


def banded_any_order():
    columns = [[0.5, 1.0, 0.3], [1.0, 0.0, 0.9, 0.1], [0.2, 0.3, 0.4, 0.5, 1.0]]
    for column in columns:
        rounds = 24
        dense = toeplitz.materialize_lower_triangular(jnp.asarray(column), rounds)
        cases = []
        for distance, count in [(len(column), 3), (len(column) + 3, 2), (1, 3), (2, 4), (3, 5)]:
            exact = by_enumeration(column, rounds, distance, count)
            if distance >= len(column):
                theirs = sensitivity.get_sensitivity_banded(dense, distance, count) ** 2
                assert abs(theirs / exact - 1) < 1e-12
            bound = sensitivity.get_min_sep_sensitivity_upper_bound(dense, distance, count) ** 2
            cases.append(case(distance, count, exact, bound))
        yield {"rounds": rounds, "coefficients": numbers(column), "cases": listed(cases)}


def blts():
    for rounds, distance, count in [(100, 20, 5), (500, 100, 3), (500, 1, 1), (2000, 300, 6), (2000, 484, 3)]:
        blt = buffered_toeplitz.optimize(n=rounds, min_sep=distance, max_participations=count, max_buffers=4)
        column = blt.toeplitz_coefs(rounds)
        single = buffered_toeplitz.sensitivity_squared(blt, rounds)
        assert math.isclose(float(single), float(toeplitz_squared(column, rounds, 1, 1)), rel_tol=1e-9)
        limits = {(distance, count), (1, 1), (max(1, distance // 2), count + 1), (7, 40)}
        cases = [case(d, k, toeplitz_squared(column, rounds, d, k)) for d, k in sorted(limits)]
        yield {
            "made": json.dumps(f"optimize(n={rounds}, min_sep={distance}, max_participations={count})"),
            "rounds": rounds, "buffer_decay": numbers(blt.buf_decay), "output_scale": numbers(blt.output_scale),
            "cases": listed(cases),
        }  # fmt: skip


def block(name, rows):
    lines = ",\n".join("  {" + ", ".join(f'"{k}": {v}' for k, v in row.items()) + "}" for row in rows)
    return f' "{name}": [\n{lines}\n ]'


if __name__ == "__main__":
    source = (
        "jax_privacy 2.0.0 in double precision, by generate.py beside this file. banded and blt: exact"
        " (toeplitz.minsep_sensitivity_squared); any_order: squared_sensitivity by trying every pattern of"
        " participation, upper_bound by sensitivity.get_min_sep_sensitivity_upper_bound."
    )
    note = "distance is the difference of two participations' rounds, what jax_privacy calls min_sep"
    parts = [
        f' "source": {json.dumps(source)}',
        f' "note": {json.dumps(note)}',
        block("banded", banded_monotone()),
        block("any_order", banded_any_order()),
        block("blt", blts()),
    ]
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    json.loads(text)
    with open("toeplitz_sensitivity.json", "w") as file:
        file.write(text)
