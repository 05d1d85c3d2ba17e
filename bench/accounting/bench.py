"""Keyhush's accountants beside dp_accounting's and TensorFlow Privacy's; started by run.sh, explained in README.md."""

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
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# name: sampling rate, noise, rounds, delta, target epsilon for calibration
RUNS = {
    "A": (5000 / 763430, 1.0, 5000, 1e-9, 4.0),
    "B": (0.001, 1.0, 10_000, 2.5118864315095823e-7, None),
    "C": (0.01, 0.8, 1000, 1e-6, 2.0),
    "D": (0.1, 2.0, 1000, 1e-5, 8.0),
    "E": (0.001, 1.0, 1_000_000, 2.5118864315095823e-7, None),
    "F": (1e-5, 1.0, 1_000_000, 2.5118864315095823e-7, None),
}
# name: population, cohort, noise, rounds
FIXED_SIZE = {"fig2": (1_000_000, 100, 10.0, 200), "cifar": (1_000_000, 2231, 0.6693, 4000)}
FIXED_SIZE_DELTA = 2.511886431509577e-7
# name: rounds, rounds between two participations, participations
TREES = {"pt-PT_530_54_8": (530, 54, 8), "ru-RU_870_327_3": (870, 327, 3), "de-DE_930_212_4": (930, 212, 4)}
# What one question to the command line is.
QUERY = [
    "privacy", "epsilon", "--mechanism", "poisson", "--population", "763430", "--cohort", "5000",
    "--noise-multiplier", "1", "--rounds", "5000", "--delta", "1e-9",
]  # fmt: skip


class Case:
    """A question, how to ask the peer, and how often to ask either."""

    def __init__(self, group, name, ask, repeats, ours):
        self.group, self.name, self.ask, self.repeats, self.ours = group, name, ask, repeats, ours
        self.peer_wall, self.peer_cpu, self.peer_value = [], [], None
        self.our_wall, self.our_cpu, self.our_value = [], [], None

    def ask_peer(self):
        wall, cpu = time.perf_counter(), time.process_time()
        self.peer_value = self.ask()
        self.peer_wall.append(time.perf_counter() - wall)
        self.peer_cpu.append(time.process_time() - cpu)

    def ask_ours(self, binary):
        out = subprocess.run(
            [binary, "--repeats", str(self.ours), self.name], check=True, capture_output=True, text=True
        )
        answer = json.loads(out.stdout)
        self.our_value = answer["value"]
        self.our_wall.append(answer["wall_min_s"])
        if answer["cpu_mean_s"] is not None:
            self.our_cpu.append(answer["cpu_mean_s"])

    def result(self, truth):
        row = {
            "case": self.name, "group": self.group, "peer_wall_s": min(self.peer_wall),
            "peer_cpu_s": min(self.peer_cpu) if self.peer_cpu else None,
            "keyhush_wall_s": min(self.our_wall), "keyhush_cpu_s": min(self.our_cpu) if self.our_cpu else None,
            "ratio": min(self.peer_wall) / min(self.our_wall),
            "peer_value": float(self.peer_value), "keyhush_value": self.our_value,
        }  # fmt: skip
        if truth is not None:
            row["truth"] = truth
            row["peer_excess"] = row["peer_value"] / truth - 1
            row["keyhush_excess"] = row["keyhush_value"] / truth - 1
        return row


def poisson_event(rate, noise, rounds):
    import dp_accounting as dp

    return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), rounds)


def fresh(accountant):
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

    return RdpAccountant() if accountant == "rdp" else PLDAccountant()


def epsilon(accountant, run):
    rate, noise, rounds, delta, _ = run
    return lambda: fresh(accountant).compose(poisson_event(rate, noise, rounds)).get_epsilon(delta)


def calibration(accountant, run):
    import dp_accounting as dp

    rate, _, rounds, delta, target = run
    return lambda: dp.calibrate_dp_mechanism(
        lambda: fresh(accountant),
        lambda noise: poisson_event(rate, noise, rounds),
        target, delta, bracket_interval=dp.LowerEndpointAndGuess(0.3, 1), tol=1e-4,
    )  # fmt: skip


def fixed_size(population, cohort, noise, rounds):
    import dp_accounting as dp
    from dp_accounting.rdp import RdpAccountant

    event = dp.SampledWithoutReplacementDpEvent(population, cohort, dp.GaussianDpEvent(noise))

    def ask():
        accountant = RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
        return accountant.compose(event, rounds).get_epsilon(FIXED_SIZE_DELTA)

    return ask


TREE_PROGRAM = """
import importlib.util, json, pathlib, sys, time
package = pathlib.Path(importlib.util.find_spec("tensorflow_privacy").origin).parent
path = package / "privacy" / "analysis" / "tree_aggregation_accountant.py"
spec = importlib.util.spec_from_file_location("tree_aggregation_accountant", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
rounds, between, participations = map(int, sys.argv[1:])
wall, cpu = time.perf_counter(), time.process_time()
rho = module.compute_zcdp_single_tree(7.0, rounds, participations, between)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu, rho]))
"""


class TreeCase(Case):
    """TensorFlow Privacy keeps results in caches: every call is a process of its own, timed inside."""

    def ask_peer(self):
        arguments = [str(n) for n in self.ask]
        out = subprocess.run(
            [sys.executable, "-c", TREE_PROGRAM, *arguments], check=True, capture_output=True, text=True
        )
        wall, cpu, self.peer_value = json.loads(out.stdout.splitlines()[-1])
        self.peer_wall.append(wall)
        self.peer_cpu.append(cpu)


def cases(options):
    scale = (lambda n: 1) if options.quick else (lambda n: max(1, round(n * options.repeats)))
    for name, run in RUNS.items():
        yield Case("RDP epsilon", f"rdp_{name}", epsilon("rdp", run), scale(10), 200)
    for name, run in RUNS.items():
        yield Case("PLD epsilon", f"pld_{name}", epsilon("pld", run), scale(5), 20)
    for name, run in RUNS.items():
        if run[-1]:
            yield Case("RDP calibration", f"calibrate_rdp_{name}", calibration("rdp", run), scale(3), 20)
    for name, run in RUNS.items():
        if run[-1] and not options.quick:
            yield Case("PLD calibration", f"calibrate_pld_{name}", calibration("pld", run), scale(1), 10)
    for name, (population, cohort, noise, rounds) in FIXED_SIZE.items():
        ask = fixed_size(population, cohort, noise, rounds)
        yield Case("fixed-size RDP epsilon", f"fixed-size_{name}", ask, scale(3), 50)
    if options.tree:
        for name, limits in TREES.items():
            yield TreeCase("tree rho (TensorFlow Privacy)", f"tree_{name}", limits, 1, 1000)


def tree_alone(binary):
    """Our trees without the peer."""
    names = [f"tree_{name}" for name in TREES]
    out = subprocess.run([binary, "--repeats", "1000", *names], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


def start_up(keyhush, repeats):
    rows = []
    for name, arguments in {"keyhush --version": ["--version"], "keyhush privacy epsilon": QUERY}.items():
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            done = subprocess.run([keyhush, *arguments], capture_output=True, text=True)
            seconds.append(time.perf_counter() - start)
        failed = done.returncode != 0
        rows.append(
            {
                "case": name,
                "wall_s": None if failed else min(seconds),
                "said": (done.stderr if failed else done.stdout).strip(),
            }
        )
    return rows


def line_of(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(load_before):
    models = [
        line.split(":", 1)[1].strip() for line in (line_of("lscpu") or "").splitlines() if line.startswith("Model name")
    ]
    versions = {}
    for package in ("dp_accounting", "numpy", "scipy", "tensorflow_privacy"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            pass
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
    }  # fmt: skip


def geometric_mean(numbers):
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


def seconds(s):
    if s is None:
        return ""
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if s * factor >= 1 or unit == "us":
            return f"{s * factor:.3g} {unit}"


def markdown(results):
    where = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in where["packages"].items())
    lines = [
        "# Accounting: time and tightness", "",
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, pinned to {where['pinned_to']}, load "
        f"{where['load_before'][0]:.2f} before and {where['load_after'][0]:.2f} after.",
        f"Python {where['python']}, {packages}; {where['rustc']}.",
        f"Revision {where['revision']}" + (" with uncommitted changes." if where["uncommitted_changes"] else "."), "",
        "Wall time of one call, the smallest of the repeats; CPU time of the peer beside it.", "",
        "| case | peer | peer CPU | keyhush | ratio | peer says | keyhush says | truth | peer's excess | our excess |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for row in results["cases"]:
        tight = (
            [f"{row['truth']:.6g}", f"{row['peer_excess']:.1e}", f"{row['keyhush_excess']:.1e}"]
            if "truth" in row
            else [""] * 3
        )
        cells = [row["case"], seconds(row["peer_wall_s"]), seconds(row["peer_cpu_s"]), seconds(row["keyhush_wall_s"]),
                 f"{row['ratio']:.0f}", f"{row['peer_value']:.6g}", f"{row['keyhush_value']:.6g}", *tight]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| group | cases | times faster, geometric mean | smallest |", "|---|---|---|---|"]
    for group in results["groups"]:
        lines.append(
            f"| {group['group']} | {group['cases']} | {group['geometric_mean']:.0f} | {group['smallest']:.0f} |"
        )
    lines += ["", "| on its own | wall time |", "|---|---|"]
    for row in results["trees"]:
        lines.append(f"| {row['case']} (rho {row['value']:.4f}) | {seconds(row['wall_min_s'])} |")
    for row in results["start_up"]:
        lines.append(f"| `{row['case']}` | {seconds(row['wall_s']) or 'failed'} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/accounting/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-accounting unless told")
    parser.add_argument("--repeats", type=float, default=1.0, help="how many times as many repeats as usual")
    parser.add_argument("--tree", action="store_true", help="also TensorFlow Privacy's tree accountant (minutes)")
    parser.add_argument("--quick", action="store_true", help="one repeat of everything, no calibration by PLD")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "dist", help="where cargo built")
    options = parser.parse_args()
    logging.getLogger("absl").setLevel(logging.ERROR)

    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-accounting"
    example, keyhush = options.binaries / "examples" / "bench_accounting", options.binaries / "keyhush"
    truths = json.loads((HERE / "truth.json").read_text())
    load_before, rows = os.getloadavg(), []
    # What Python loads at the first call is not to be counted.
    for accountant in ("rdp", "pld"):
        epsilon(accountant, (0.01, 2.0, 10, 1e-5, None))()
    for case in cases(options):
        for _ in range(case.repeats):
            case.ask_peer()
            case.ask_ours(example)
        rows.append(case.result(truths.get(case.name.removeprefix("pld_"))))
        row = rows[-1]
        print(
            f"{row['case']:24}{seconds(row['peer_wall_s']):>10}{seconds(row['keyhush_wall_s']):>10}{row['ratio']:9.0f}",
            flush=True,
        )
    groups = []
    for group in dict.fromkeys(row["group"] for row in rows):
        ratios = [row["ratio"] for row in rows if row["group"] == group]
        groups.append(
            {"group": group, "cases": len(ratios), "geometric_mean": geometric_mean(ratios), "smallest": min(ratios)}
        )
    results = {
        "cases": rows,
        "groups": groups,
        "trees": tree_alone(example),
        "start_up": start_up(keyhush, 5 if options.quick else 40),
        "machine": machine(load_before),
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))
    print(f"\n{markdown(results)}\nwritten to {out}")


if __name__ == "__main__":
    main()
