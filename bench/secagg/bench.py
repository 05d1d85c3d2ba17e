"""Keyhush's secure aggregation beside Flower's, and at scale; started by run.sh, explained in README.md."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

# The rounds that both do: clients, coordinates, neighbours, threshold, clients that vanish. The first protects nobody, and is
# told to; the second has what the parameter finder gives for a third of the clients corrupted and 5 % gone.
SHARED = [(50, 1_000_000, 8, 5, 3), (100, 1_000_000, 34, 29, 5)]
CHOSEN = {SHARED[0]: ["--degree", 8, "--threshold", 5]}
# Flower's numbers are up to 2^22, its sums mod 2^32; ours once with the same, once with what a sum of ours needs.
WAYS = {"Keyhush, mod 2^32": ["--largest", 2**22, "--bits", 32], "Keyhush": []}

# Rounds of ours alone.
ROUNDS = [
    ["--clients", 100, "--dimension", 2_400_000],
    ["--clients", 1000, "--dimension", 2_400_000],
    ["--clients", 1000, "--dimension", 2_400_000, "--adversary", "semi-malicious"],
    ["--clients", 6500, "--dimension", 240_000],
    ["--clients", 6500, "--dimension", 240_000, "--adversary", "semi-malicious"],
]
SAMPLES = [
    ["--clients", 6500, "--dimension", 2_400_000, "--dropout", dropout, "--adversary", adversary]
    for dropout in (0.05, 0.1)
    for adversary in ("curious", "semi-malicious")
]
STREAMS = 2048


def asked(command):
    """The line of JSON that a command prints."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def compared(binary, case, passes):
    """Both sides in turn, several times."""
    clients, dimension, degree, threshold, dropped = case
    ours = [binary, "bench", "secagg", "--clients", clients, "--dimension", dimension, "--dropout", dropped / clients]
    ours += CHOSEN.get(case, [])
    sides = {"Flower": [sys.executable, "-B", HERE / "peer_flower.py", *case]}
    sides |= {way: [*ours, *words, "--json"] for way, words in WAYS.items()}
    answers = {side: [] for side in sides}
    for number in range(passes):
        # Forth and back, so that nobody always follows the same neighbour.
        for side in list(sides) if number % 2 == 0 else reversed(sides):
            answer = asked(sides[side])
            answers[side].append(answer)
            print(f"{clients} clients, pass {number + 1} {side:24}{answer['cpu_s']:8.3f} CPU s", flush=True)
            if side != "Flower" and (answer["degree"], answer["threshold"], answer["dropped"]) != case[2:]:
                sys.exit(f"the sides do not do the same round: {answer}")
    medians = {side: statistics.median(a["cpu_s"] for a in answers[side]) for side in sides}
    protocol = statistics.median(a["protocol_s"] for a in answers["Flower"])
    return {
        "case": case,
        "answers": answers,
        "median_cpu_s": medians,
        "median_protocol_s": protocol,
        "ratio": {way: medians["Flower"] / medians[way] for way in WAYS},
        "ratio_protocol": {way: protocol / medians[way] for way in WAYS},
    }


def alone(binary, cases, *more):
    answers = []
    for case in cases:
        answers.append(asked([binary, "bench", "secagg", *case, *more, "--json"]))
        print(" ".join(map(str, case)), "measured", flush=True)
    return answers


def line_of(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(load_before):
    said = (line_of("lscpu") or "").splitlines()
    models = [line.split(":", 1)[1].strip() for line in said if line.startswith("Model name")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "pinned_to": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "load_before": load_before,
        "load_after": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "rustc": line_of("rustc", "--version"),
        "revision": line_of("git", "rev-parse", "HEAD"),
        "uncommitted_changes": bool(line_of("git", "status", "--porcelain")),
    }


def rows(head, body):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *("| " + " | ".join(row) + " |" for row in body)]


def markdown(results):
    where = results["machine"]
    lines = [
        "# Secure aggregation", "",
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, pinned to {where['pinned_to']}, load "
        f"{where['load_before'][0]:.2f} before and {where['load_after'][0]:.2f} after.",
        f"Python {where['python']}; {where['rustc']}.",
        f"Revision {where['revision']}" + (" with uncommitted changes." if where["uncommitted_changes"] else "."),
    ]  # fmt: skip
    for comparison in results.get("compared", []):
        lines += ["", *of_comparison(comparison)]
    if results.get("rounds"):
        lines += ["", *of_rounds(results["rounds"])]
    if results.get("samples"):
        lines += ["", *of_samples(results["samples"])]
    return "\n".join(lines) + "\n"


def of_comparison(compared):
    flower = compared["answers"]["Flower"]
    body = []
    for side, median in compared["median_cpu_s"].items():
        passes = ", ".join(f"{a['cpu_s']:.3f}" for a in compared["answers"][side])
        ratios = [f"{compared[of][side]:.1f}" if side in compared[of] else "" for of in ("ratio", "ratio_protocol")]
        body.append([side, f"{median:.3f}", passes, *ratios])
    protocol = compared["median_protocol_s"]
    clients, dimension, degree, threshold, dropped = compared["case"]
    insecure = " (insecure)" if compared["answers"]["Keyhush"][0]["insecure"] else ""
    return [
        f"## {clients} clients, {degree} neighbours, beside Flower {flower[0]['version']}", "",
        f"{dimension:,} coordinates, threshold {threshold}{insecure}, {dropped} vanish before their input; CPU seconds of all "
        f"clients and the server. Flower's begin with updates and end with their mean; {protocol:.3f} of them are between "
        "residues and their sum, which is what Keyhush's are.", "",
        *rows(["side", "median", "all passes", "Flower / Keyhush", "the same, residues to sum"], body),
    ]  # fmt: skip


def named(answer):
    return [f"{answer['clients']:,}", f"{answer['dimension']:,}", f"{answer['dropped']}", answer["adversary"],
            f"{answer['degree']} / {answer['threshold']}", f"{answer['bits']}"]  # fmt: skip


NAMES = ["clients", "coordinates", "vanish", "adversary", "k / t", "bits"]


def of_rounds(rounds):
    clients, servers = [], []
    for a in rounds:
        c, s, b = a["client"], a["server"], a["bytes"]
        steps = [f"{1e3 * c[step]['mean_s']:.2f}" for step in ("keys", "shares", "deliver", "mask", "agree", "unmask")]
        traffic = [f"{b['total']['up']:,.0f}", f"{b['total']['down']:,.0f}"]
        clients.append([*named(a), *steps, f"{1e3 * c['total_s']:.1f}", f"{1e3 * c['mask']['max_s']:.1f}", *traffic])
        steps = ("keys_s", "directory_s", "route_s", "add_s", "answers_s", "reconstruct_s", "expand_s", "unmask_s", "total_s")
        servers.append([*named(a), *(f"{s[step]:.3f}" for step in steps), f"{a['masks']:,}",
                        f"{a['ns_per_mask_element']:.3f}", f"{a['peak_mb']:.0f}", f"{a['wall_s']:.0f}"])  # fmt: skip
    return [
        "## Whole rounds, one thread", "",
        "A client, CPU milliseconds and bytes (the mean over all):", "",
        *rows([*NAMES, "keys", "shares", "delivery", "masking", "agreement", "unmasking", "all", "masking, most", "bytes up", "down"], clients), "",
        "The server, CPU seconds; unmasking is secrets, masks and what is around them. Memory is of the whole process, "
        "with all clients:", "",
        *rows([*NAMES, "keys", "directory", "routing", "adding inputs", "answers", "secrets", "masks", "unmasking", "all",
               "masks taken off", "ns a coordinate", "peak MB", "wall s"], servers),
    ]  # fmt: skip


def of_samples(samples):
    body = [
        [*named(a), f"{a['streams_measured']:,} of {a['streams']:,}", f"{a['measured_cpu_s']:.2f}",
         f"{a['ns_per_mask_element']:.3f}", f"{a['extrapolated_cpu_s']:.1f}"]
        for a in samples
    ]  # fmt: skip
    head = [*NAMES, "masks", "CPU s", "ns a coordinate", "all masks, extrapolated CPU s"]
    return ["## Masks of larger rounds, a sample", "", *rows(head, body)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/secagg/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-secagg unless told")
    parser.add_argument("--passes", type=int, default=5, help="how often both sides run")
    parser.add_argument("--only", choices=["flower", "rounds", "samples"], action="append", help="only this part")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "dist", help="where cargo built")
    options = parser.parse_args()

    parts = options.only or ["flower", "rounds", "samples"]
    binary = options.binaries / "keyhush"
    load_before, results = os.getloadavg(), {}
    if "flower" in parts:
        results["compared"] = [compared(binary, case, options.passes) for case in SHARED]
    if "rounds" in parts:
        results["rounds"] = alone(binary, ROUNDS)
    if "samples" in parts:
        results["samples"] = alone(binary, SAMPLES, "--streams-sample", STREAMS)
    results["machine"] = machine(load_before)
    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-secagg"
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))
    print(f"\n{markdown(results)}\nwritten to {out}")


if __name__ == "__main__":
    main()
