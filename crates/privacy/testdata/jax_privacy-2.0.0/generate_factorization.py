"""Makes factorization.json: BLTs and banded matrices as jax_privacy optimises them, and their errors.

source: jax_privacy 2.0.0 (pip install jax_privacy==2.0.0), in double precision.
Run it as `python generate_factorization.py` in this folder; it takes about half an hour on one core.
`bench/factorization/` takes the cells and the functions from here and puts our answers and the times beside them.

- A BLT with J buffers is `buffered_toeplitz.optimize(min_buffers=J, max_buffers=J)` with its defaults. Where that
  raises, because the library's own check of the result fails, its last iterate stands here with `refused`.
- A banded matrix is `toeplitz.optimize_banded_toeplitz` with its defaults. It knows one participation a user; its
  result is judged under the limits of the cell, which keep participations at least the bands apart.
- The errors are the library's: `toeplitz.per_query_error` of the column, its largest or its mean, times
  `toeplitz.minsep_sensitivity_squared`; both squared. What it calls min_sep is the distance of two participations.
"""

import json
import pathlib
import time

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
from jax_privacy.matrix_factorization import buffered_toeplitz, toeplitz

ROUNDS = (500, 2000, 4000)
DISTANCES = (1, 100, 400)
BUFFERS = (2, 3, 4, 5)
OBJECTIVES = ("max", "mean")


def blt_cells():
    """Every distance with as many participations as fit, one participation, and some limits in between."""
    for rounds in ROUNDS:
        limits = [(distance, -(-rounds // distance)) for distance in DISTANCES] + [(1, 1)]
        for distance, count in limits:
            for buffers in BUFFERS:
                for objective in OBJECTIVES:
                    yield cell(rounds, distance, count, objective) | {"buffers": buffers}
    for distance, count in ((1, 5), (100, 5)):
        for objective in OBJECTIVES:
            yield cell(2000, distance, count, objective) | {"buffers": 3}


def banded_cells():
    """One participation, and participations at least the bands apart."""
    for rounds in ROUNDS:
        limits = [(1, 1, 32), (100, -(-rounds // 100), 32), (100, -(-rounds // 100), 100)]
        limits += [(400, 10, 400)] if rounds == 4000 else []
        for distance, count, bands in limits:
            for objective in OBJECTIVES:
                yield cell(rounds, distance, count, objective) | {"bands": bands}


def cell(rounds, distance, count, objective):
    return {"rounds": rounds, "distance": distance, "max_participations": count, "objective": objective}


def errors(column, question):
    """What the library says of a column: squared sensitivity, largest and mean squared error."""
    n = question["rounds"]
    per_query = toeplitz.per_query_error(strategy_coef=column, n=n)
    squared = toeplitz.minsep_sensitivity_squared(
        column, min_sep=question["distance"], max_participations=question["max_participations"], n=n
    )
    return {
        "squared_sensitivity": float(squared),
        "max_squared_error": float(per_query[-1] * squared),
        "mean_squared_error": float(jnp.mean(per_query) * squared),
    }


def optimise_blt(question):
    """The library's BLT for a cell, whether it refused it, and the seconds that it took."""
    last = []
    start = time.perf_counter()
    refused = None
    try:
        blt = buffered_toeplitz.optimize(
            n=question["rounds"],
            min_sep=question["distance"],
            max_participations=question["max_participations"],
            error=question["objective"],
            min_buffers=question["buffers"],
            max_buffers=question["buffers"],
            callback=lambda step: last.__setitem__(slice(None), [step.params]),
        )
    except RuntimeError as error:
        refused = str(error).splitlines()[0]
        blt, _ = buffered_toeplitz.blt_pair_from_theta_pair(*last[0])
        blt = blt.canonicalize()
    seconds = time.perf_counter() - start
    answer = {"buffer_decay": blt.buf_decay.tolist(), "output_scale": blt.output_scale.tolist()}
    if refused:
        answer["refused"] = refused
    return answer, seconds


BANDED = {}


def optimise_banded(question):
    """The library's banded matrix for a cell, scaled to c_0 = 1, and the seconds that it took."""
    key = question["rounds"], question["bands"], question["objective"]
    if key not in BANDED:
        start = time.perf_counter()
        reduction = jnp.max if question["objective"] == "max" else jnp.mean
        column = toeplitz.optimize_banded_toeplitz(question["rounds"], question["bands"], reduction_fn=reduction)
        BANDED[key] = {"coefficients": (column / column[0]).tolist()}, time.perf_counter() - start
    return BANDED[key]


def column_of(question, answer):
    if "coefficients" in answer:
        return jnp.array(answer["coefficients"])
    blt = buffered_toeplitz.BufferedToeplitz.build(answer["buffer_decay"], answer["output_scale"])
    return blt.toeplitz_coefs(question["rounds"])


def rows(only_rounds=None):
    """Every cell with the library's answer, its errors and its seconds, one after the other."""
    for cells, optimise in ((blt_cells(), optimise_blt), (banded_cells(), optimise_banded)):
        for question in cells:
            if only_rounds not in (None, question["rounds"]):
                continue
            answer, seconds = optimise(question)
            yield question, answer, errors(column_of(question, answer), question), seconds


def write(path, answered):
    """The file of vectors, from rows without their seconds."""
    lines = []
    for question, answer, judged in answered:
        # Columns of hundreds of coefficients are left out: their errors are what counts.
        kept = {} if "coefficients" in answer else answer
        lines.append(json.dumps(question | kept | judged))
    source = (
        "jax_privacy 2.0.0 in double precision, by generate_factorization.py beside this file: "
        "buffered_toeplitz.optimize and toeplitz.optimize_banded_toeplitz with their defaults"
    )
    note = "distance is the difference of two participations' rounds, jax_privacy's min_sep; errors are squared"
    text = f'{{\n "source": {json.dumps(source)},\n "note": {json.dumps(note)},\n "rows": [\n  '
    path.write_text(text + ",\n  ".join(lines) + "\n ]\n}\n")


def main():
    write(pathlib.Path(__file__).parent / "factorization.json", [row[:3] for row in rows()])


if __name__ == "__main__":
    main()
