"""Imports a synthetic corpus of 620,000 posts by 19,000 users in several formats; see README.md."""

import argparse
import csv
import datetime
import gzip
import json
import os
import pathlib
import platform
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
CROWD = ["--users", "19000", "--posts-per-user", "34", "--words-per-post", "236", "--seed", "1"]


def measured(command):
    """Runs a command that prints JSON; the answer with wall and CPU seconds and the largest resident memory."""
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    answer = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: status {status}")
    return json.loads(answer) | {
        "wall_s": time.monotonic() - start,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
    }


def convert(lines, folder):
    """The same posts as a table and compressed."""
    table = folder / "posts.csv"
    with open(lines) as source, open(table, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["user", "text"])
        for post in map(json.loads, source):
            writer.writerow([post["user"], post["text"]])
    packed = folder / "posts.jsonl.gz"
    with open(lines, "rb") as source, gzip.open(packed, "wb", compresslevel=1) as out:
        shutil.copyfileobj(source, out, 1 << 20)
    return [table, packed]


def row(name, runs):
    best = min(runs, key=lambda run: run["wall_s"])
    megabytes = best["text_bytes"] / 1e6
    return {
        "file": name,
        "text_mb": megabytes,
        "users": best["users"],
        "posts": best["posts"],
        "tokens": best["tokens"],
        "wall_s": best["wall_s"],
        "mb_per_s": megabytes / best["wall_s"],
        "cpu_s": min(run["cpu_s"] for run in runs),
        "memory_mib": max(run["memory_mib"] for run in runs),
        "runs": [{key: run[key] for key in ("wall_s", "cpu_s", "memory_mib")} for run in runs],
    }


def markdown(results):
    machine = results["machine"]
    lines = [
        "# Import",
        "",
        f"{machine['date']}, {machine['processor']}, {machine['cores']} cores, load {machine['load_before']:.2f} before and "
        f"{machine['load_after']:.2f} after.",
        f"Revision {machine['revision']}.",
        "",
        f"`keyhush data synth --jsonl {' '.join(CROWD)}`, then `keyhush data import FILE`, the fastest of "
        f"{len(results['rows'][0]['runs'])} by wall time; memory is the largest resident set of all of them.",
        "",
        "| file | text, MB | posts | users | tokens | wall, s | text, MB/s | CPU, s | memory, MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results["rows"]:
        lines.append(
            f"| {r['file']} | {r['text_mb']:.0f} | {r['posts']:,} | {r['users']:,} | {r['tokens']:,} | {r['wall_s']:.1f} "
            f"| {r['mb_per_s']:.0f} | {r['cpu_s']:.1f} | {r['memory_mib']:.0f} |"
        )
    opening = results["show_s"]
    lines += ["", f"`keyhush data show --index 0 --posts 1` of the store, from start to end of the process: {opening * 1e3:.0f} ms."]
    return "\n".join(lines) + "\n"


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/import/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-import unless told")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "dist", help="where cargo built")
    options = parser.parse_args()
    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-import"
    keyhush = options.binaries / "keyhush"
    revision = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines, store = folder / "posts.jsonl", folder / "posts.store"
        subprocess.run([keyhush, "data", "synth", "--jsonl", "--quiet", *CROWD, "--out", lines], check=True)
        files = [lines, *convert(lines, folder)]
        load_before, rows = os.getloadavg()[0], []
        for file in files:
            command = [keyhush, "data", "import", file, "--out", store, "--replace", "--quiet", "--json"]
            rows.append(row(file.name, [measured(command) for _ in range(options.repeats)]))
            print(rows[-1], flush=True)
        show = [keyhush, "data", "show", store, "--index", "0", "--posts", "1", "--json"]
        show_s = min(measured(show)["wall_s"] for _ in range(10))
    results = {
        "machine": {
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "load_before": load_before,
            "load_after": os.getloadavg()[0],
            "revision": revision,
        },
        "rows": rows,
        "show_s": show_s,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))
    print(f"\n{markdown(results)}\nwritten to {out}")


if __name__ == "__main__":
    main()
