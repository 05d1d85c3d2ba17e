"""Keyhush's strategy matrices beside jax_privacy's; started by run.sh, explained in README.md."""

import argparse
import datetime
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "crates" / "privacy" / "testdata" / "jax_privacy-2.0.0"))
import generate_factorization as peer  # noqa: E402

# How far above the peer's squared error ours may be.
ALLOWED = 1.005
# How far the two evaluators may be apart, on either side's matrix.
EVALUATORS_AGREE = 1e-8


def matrix_of(answer):
    """A peer's answer as Keyhush writes a strategy matrix."""
    if "coefficients" in answer:
        return {"kind": "banded", "coefficients": answer["coefficients"]}
    return {"kind": "blt", "buffer_decay": answer["buffer_decay"], "output_scale": answer["output_scale"]}


def ask_ours(binary, question, answer):
    line = json.dumps(question | {"peer": matrix_of(answer)})
    out = subprocess.run([binary], input=line, check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def compare(binary, question, answer, by_peer, peer_seconds):
    """One row: both matrices under one evaluator, ours, and how far the peer's evaluator is from it."""
    ours = ask_ours(binary, question, answer)
    key = f"{question['objective']}_squared_error"
    ours_by_peer = peer.errors(peer.column_of(question, ours["matrix"]), question)
    apart = [abs(ours["peer_errors"][key] / by_peer[key] - 1), abs(ours["errors"][key] / ours_by_peer[key] - 1)]
    row = question | {
        "peer_squared_error": ours["peer_errors"][key],
        "keyhush_squared_error": ours["errors"][key],
        "ratio": ours["errors"][key] / ours["peer_errors"][key],
        "evaluators_apart": max(apart),
        "peer_s": peer_seconds,
        "keyhush_s": ours["seconds"],
        "peer_matrix": matrix_of(answer),
        "keyhush_matrix": ours["matrix"],
    }
    if "refused" in answer:
        row["peer_refused"] = answer["refused"]
    return row


def line_of(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(load_before):
    models = [
        line.split(":", 1)[1].strip() for line in (line_of("lscpu") or "").splitlines() if line.startswith("Model name")
    ]
    versions = {name: importlib.metadata.version(name) for name in ("jax_privacy", "jax", "optax", "numpy")}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "pinned_to": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_before": load_before,
        "load_after": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": versions,
        "rustc": line_of("rustc", "--version"),
        "revision": line_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(line_of("git", "status", "--porcelain")),
    }


def geometric_mean(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def group_of(row):
    if "bands" in row:
        return f"banded, {row['objective']}"
    return f"BLT with {row['buffers']} buffers, {row['objective']}"


def groups(rows):
    for name in sorted({group_of(row) for row in rows}):
        members = [row for row in rows if group_of(row) == name]
        yield {
            "group": name,
            "cells": len(members),
            "worst_ratio": max(row["ratio"] for row in members),
            "best_ratio": min(row["ratio"] for row in members),
            "times_faster": geometric_mean([row["peer_s"] / row["keyhush_s"] for row in members]),
        }


def cells(row):
    form = f"{row['bands']} bands" if "bands" in row else f"{row['buffers']} buffers"
    mark = " (1)" if "peer_refused" in row else ""
    return [
        str(row["rounds"]), str(row["distance"]), str(row["max_participations"]), form, row["objective"],
        f"{row['peer_squared_error']:.6g}{mark}", f"{row['keyhush_squared_error']:.6g}", f"{row['ratio']:.6f}",
        f"{row['evaluators_apart']:.0e}", f"{row['peer_s']:.1f} s", f"{row['keyhush_s']:.3f} s",
    ]  # fmt: skip


def markdown(results):
    where, rows = results["machine"], results["rows"]
    packages = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    lines = [
        "# Factorization: errors and time", "",
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, pinned to {where['pinned_to']}, load "
        f"{where['load_before'][0]:.2f} before and {where['load_after'][0]:.2f} after.",
        f"Python {where['python']}, {packages}; {where['rustc']}.",
        f"Revision {where['revision']}" + (" with uncommitted changes." if where["uncommitted_changes"] else "."), "",
        f"{len(rows)} cells; the worst ratio of squared errors is {results['worst_ratio']:.6f}, {ALLOWED} is allowed. "
        f"The two evaluators are at most {max(row['evaluators_apart'] for row in rows):.0e} apart.", "",
        "| group | cells | worst ratio | best ratio | times faster, geometric mean |", "|---|---|---|---|---|",
    ]  # fmt: skip
    for group in results["groups"]:
        lines.append(
            f"| {group['group']} | {group['cells']} | {group['worst_ratio']:.6f} | {group['best_ratio']:.6f} | "
            f"{group['times_faster']:.0f} |"
        )
    lines += [
        "", "Squared errors, both by our evaluator; below 1 is less error for us. Times include what jax compiles.",
        "(1): jax_privacy refused its own result; its last iterate is compared.", "",
        "| n | distance | participations | form | error | jax_privacy | keyhush | ratio | evaluators apart | "
        "jax_privacy took | keyhush took |", "|---|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write(out, results):
    out.mkdir(parents=True, exist_ok=True)
    kept = results | {"rows": [shortened(row) for row in results["rows"]]}
    (out / "results.json").write_text(json.dumps(kept, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))


def shortened(row):
    """Without the columns of banded matrices, which are long."""
    drop = ("peer_matrix", "keyhush_matrix") if "bands" in row else ()
    return {name: value for name, value in row.items() if name not in drop}


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/factorization/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-factorization unless told")
    parser.add_argument("--quick", action="store_true", help="only the cells of 500 rounds")
    parser.add_argument("--vectors", type=pathlib.Path, help="also write jax_privacy's answers, as the tests read them")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "dist", help="where cargo built")
    options = parser.parse_args()
    logging.getLogger("absl").setLevel(logging.ERROR)

    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-factorization"
    binary = options.binaries / "examples" / "bench_factorization"
    load_before, rows, answered = os.getloadavg(), [], []
    for question, answer, by_peer, seconds in peer.rows(500 if options.quick else None):
        answered.append((question, answer, by_peer))
        rows.append(compare(binary, question, answer, by_peer, seconds))
        print(" ".join(f"{cell:>12}" for cell in cells(rows[-1])), flush=True)
    results = {
        "rows": rows,
        "groups": list(groups(rows)),
        "worst_ratio": max(row["ratio"] for row in rows),
        "machine": machine(load_before),
    }
    write(out, results)
    if options.vectors:
        peer.write(options.vectors, answered)
    print(f"\n{markdown(results)}\nwritten to {out}")
    bad = [row for row in rows if not row["ratio"] <= ALLOWED or not row["evaluators_apart"] <= EVALUATORS_AGREE]
    for row in bad:
        print(f"not as good: {' '.join(cells(row))}", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
