"""Clean builds, and the programs of two of them run by turns; see README.md."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import resource
import shutil
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CROWD = ["--users", "20000", "--posts-per-user", "20", "--words-per-post", "20", "--seed", "1"]


def children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def build(source, target, profile):
    """Seconds by the clock and of CPU for a build from nothing."""
    shutil.rmtree(target, ignore_errors=True)
    command = ["cargo", "build", "--profile", profile, "-p", "keyhush", "--locked", "--timings"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    start, before = time.monotonic(), children()
    subprocess.run(command, cwd=source, env=environment, check=True)
    return {"profile": profile, "wall_s": time.monotonic() - start, "cpu_s": children() - before}


def cpu(command, folder):
    """CPU seconds of a process, and what it printed."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    answer, errors = process.communicate()  # waits, so that the account of children has it
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {errors.decode()}")
    return answer


def seconds(program, arguments, folder, field):
    """One measurement: what the benchmark says of itself, or the CPU seconds of the process."""
    shutil.rmtree(folder / "out", ignore_errors=True)
    before = children()
    answer = cpu([program, *arguments], folder)
    if field is None:
        return children() - before
    value = json.loads(answer)
    for key in field.split("."):
        value = value[key]
    return value


def commands(folder, first, packed):
    """What is run: its name, its unit, its arguments, and the field of its answer, or None for the CPU seconds of the process."""
    subprocess.run([first, "data", "synth", "--jsonl", "--quiet", *CROWD, "--out", folder / "posts.jsonl"], check=True)
    train = ["train", "--quiet", "--threads", "1", "--out", "out"]
    long = ["--set", "rounds=1500", "--set", "participation.cohort=2", "--set", "evaluation.every=20"]
    load = ["data", "import", "--quiet", "--threads", "1", "--replace", "--out", "posts.store"]
    all_commands = [
        ("train", "CPU s", [*train, "--set", "rounds=6"], None),
        ("train, 1,500 rounds of 2 users, 75 evaluations", "CPU s", [*train, *long], None),
        ("import, 20,000 users", "CPU s", [*load, "posts.jsonl"], None),
        ("local-training, mcmahan2018", "ms a user", ["bench", "local-training", "--json"], "ms_per_user_best"),
        ("local-training, gboard", "ms a user", ["bench", "local-training", "--model", "gboard", "--json"], "ms_per_user_best"),
        ("predict, 5,000 words", "ms a word", ["bench", "predict", "--words", "5000", "--json"], "ms_per_prediction"),
        ("secagg, 60 clients, 100,000 coordinates", "CPU s", ["bench", "secagg", "--clients", "60", "--dimension", "100000"], None),
        ("round, the server's optimizer", "s", ["bench", "round", "--json"], "parts.optimizer_s"),
    ]
    if packed:
        subprocess.run(["zstd", "-q", "-k", "-3", folder / "posts.jsonl"], check=True)
        all_commands.insert(3, ("import .zst, the same", "CPU s", [*load, "posts.jsonl.zst"], None))
    return all_commands


def pairs(programs, arguments, folder, field, count):
    """Both programs by turns; the first once more in each turn, to see what one program differs by."""
    (first, second), runs = programs, {"first": [], "again": [], "second": []}
    for number in range(count):
        order = [("first", first), ("second", second), ("again", first)]
        for key, program in order if number % 2 == 0 else reversed(order):
            runs[key].append(seconds(program, arguments, folder, field))
    return runs


def row(name, unit, runs):
    own = [(a + b) / 2 for a, b in zip(runs["first"], runs["again"])]
    return {
        "what": name,
        "unit": unit,
        "first": min(runs["first"] + runs["again"]),
        "second": min(runs["second"]),
        "change": statistics.median(b / a for a, b in zip(own, runs["second"])) - 1,
        "same": statistics.median(abs(b / a - 1) for a, b in zip(runs["first"], runs["again"])),
        "runs": runs,
    }


def markdown(results):
    machine, names = results["machine"], results["names"]
    lines = [
        "# Build",
        "",
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, load {machine['load_before']:.2f} before and "
        f"{machine['load_after']:.2f} after, {machine['compiler']}.",
        f"Revision {machine['revision']}.",
        "",
    ]
    if results["builds"]:
        lines += ["| build from nothing | clock, s | CPU, s |", "|---|---|---|"]
        lines += [f"| {b['name']} | {b['wall_s']:.0f} | {b['cpu_s']:.0f} |" for b in results["builds"]] + [""]
    lines += [f"| program | | {names[0]} | {names[1]} | change | same |", "|---|---|---|---|---|---|"]
    for r in results["rows"]:
        lines.append(
            f"| {r['what']} | {r['unit']} | {r['first']:.4g} | {r['second']:.4g} | {100 * r['change']:+.1f} % | {100 * r['same']:.1f} % |"
        )
    return "\n".join(lines) + "\n"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def said(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/build/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-build unless told")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target" / "bench-build", help="where to build")
    parser.add_argument("--against", metavar="REVISION", help="compare with the release of this revision instead of dist")
    parser.add_argument("--pairs", type=int, default=5, help="how often each program runs")
    parser.add_argument("--only", default="", help="only programs whose names contain one of these, separated by commas")
    parser.add_argument("--skip-builds", action="store_true", help="take the programs that are there")
    options = parser.parse_args()
    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-build"
    wanted = [part for part in options.only.split(",") if part]
    target = options.target.resolve()
    subprocess.run(["cargo", "fetch", "--locked"], cwd=ROOT, check=True)
    load_before, builds = os.getloadavg()[0], []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        plan = [("release", ROOT, "release")]
        if options.against:
            other = folder / "source"
            subprocess.run(["git", "worktree", "add", "--detach", other, options.against], cwd=ROOT, check=True)
            plan.append((options.against, other, "release"))
        else:
            plan.append(("dist", ROOT, "dist"))
        try:
            for name, source, profile in plan if not options.skip_builds else []:
                builds.append({"name": name} | build(source, target / name, profile))
                print(builds[-1], flush=True)
        finally:
            if options.against:
                subprocess.run(["git", "worktree", "remove", "--force", other], cwd=ROOT, check=True)
        # What the second is, comes first in the table: the new one is compared with it.
        programs = [target / name / profile / "keyhush" for name, _, profile in reversed(plan)]
        rows = []
        for name, unit, arguments, field in commands(folder, programs[0], shutil.which("zstd")):
            if not wanted or any(part in name for part in wanted):
                rows.append(row(name, unit, pairs(programs, arguments, folder, field, options.pairs)))
                print({key: rows[-1][key] for key in ("what", "first", "second", "change", "same")}, flush=True)
    results = {
        "machine": {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "compiler": said("rustc", "--version"),
            "revision": said("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"),
        },
        "names": [name for name, _, _ in reversed(plan)],
        "builds": builds,
        "rows": rows,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))
    timings = target / "release" / "cargo-timings" / "cargo-timing.html"
    if builds and timings.exists():
        shutil.copyfile(timings, out / "release.html")
    print(f"\n{markdown(results)}\nwritten to {out}")


if __name__ == "__main__":
    main()
