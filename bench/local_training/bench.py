"""Keyhush's local training beside PyTorch's and JAX's; started by run.sh, explained in README.md."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import work  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WAYS = {"PyTorch": ["eager", "compiled output", "compiled", "compiled step"], "JAX": ["scan", "unrolled"]}
# For the cases that are no preset: the ways that were the fastest, or within a few percent of it, for mcmahan2018.
FAST_WAYS = {"PyTorch": ["eager", "compiled step"], "JAX": ["scan"]}
PROGRAMS = {"PyTorch": "peer_torch.py", "JAX": "peer_jax.py"}
# The peers' allocator keeps what it was given, which spares PyTorch some page faults.
KEEP = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_TOP_PAD_": str(2**26)}
# How far losses and norm of two peers may be apart, as a part of them: more, and they did not do the same work.
PEERS_AGREE = 1e-3


class Peer:
    """A worker that waits between passes, and what it measured."""

    def __init__(self, library, way, model, users):
        self.library, self.way, self.cpu_ms, self.wall_ms, self.failure = library, way, [], [], None
        command = [sys.executable, "-B", str(HERE / PROGRAMS[library]), model, way, str(users)]
        self.said = tempfile.TemporaryFile("w+")
        self.worker = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True, env=os.environ | KEEP
        )
        ready = self.worker.stdout.readline()
        if not ready:
            self.worker.wait()
            self.said.seek(0)
            self.failure = (self.said.read().strip().splitlines() or ["it said nothing"])[-1]
            return
        about = json.loads(ready)
        self.version, self.outcome = about["version"], about["outcome"]

    def measure(self):
        if self.failure:
            return
        print(file=self.worker.stdin, flush=True)
        answer = json.loads(self.worker.stdout.readline())
        self.cpu_ms.append(answer["cpu_ms"])
        self.wall_ms.append(answer["wall_ms"])

    def end(self):
        self.worker.communicate()
        self.said.close()

    def result(self):
        row = {"side": self.library, "way": self.way}
        if self.failure:
            return row | {"failed": self.failure}
        first, last, norm = self.outcome
        return row | {
            "version": self.version, "ms_per_user": min(self.cpu_ms), "cpu_ms": self.cpu_ms, "wall_ms": self.wall_ms,
            "first_loss": first, "last_loss": last, "norm": norm,
        }  # fmt: skip


class Ours:
    """`keyhush bench local-training`: a process for each pass."""

    def __init__(self, binary, model, users):
        case = work.MODELS[model]
        arguments = ["--model", case["preset"], "--users", str(users), "--threads", "1", "--json"]
        arguments += ["--vocabulary", str(case["vocabulary"]), "--tokens", str(work.token_count(case))]
        arguments += ["--batch", str(case["rows"]), "--unroll", str(case["steps"])]
        self.command = [str(binary), "bench", "local-training", *arguments]
        self.answers, self.failure = [], None
        self.measure()
        self.answers.clear()

    def measure(self):
        if self.failure:
            return
        try:
            done = subprocess.run(self.command, capture_output=True, text=True)
        except OSError as error:
            self.failure = error.strerror
            return
        if done.returncode != 0:
            self.failure = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
            return
        self.answers.append(json.loads(done.stdout.strip().splitlines()[-1]))

    def end(self):
        pass

    def result(self):
        row = {"side": "Keyhush", "way": "keyhush bench local-training"}
        if self.failure:
            return row | {"failed": self.failure}
        times = [answer["ms_per_user"] for answer in self.answers]
        return row | {"ms_per_user": min(times), "cpu_ms": times, "answers": self.answers}


def measured(model, options):
    """All sides on one model, a pass of each in turn."""
    sides = [Ours(options.binaries / "keyhush", model, options.users)]
    peers = WAYS if model in work.PRESETS else FAST_WAYS
    sides += [Peer(library, way, model, options.users) for library, ways in peers.items() for way in ways]
    for number in range(options.passes):
        # Forth and back, so that nobody always follows the same neighbour.
        for side in sides if number % 2 == 0 else reversed(sides):
            side.measure()
    for side in sides:
        side.end()
    rows = [side.result() for side in sides]
    outcomes = [side.outcome for side in sides if isinstance(side, Peer) and not side.failure]
    for outcome in outcomes:
        if any(abs(a / b - 1) > PEERS_AGREE for a, b in zip(outcome, outcomes[0])):
            sys.exit(f"{model}: the peers did not do the same work: {outcomes}")
    return {"model": model, "gflop": work.gflop(work.MODELS[model]), "sides": rows, "summary": summary(rows)}


def summary(rows):
    """The fastest way of each side, and how many times as long as ours it takes."""
    best = {}
    for row in rows:
        side = row["side"]
        if "failed" not in row and (side not in best or row["ms_per_user"] < best[side]["ms_per_user"]):
            best[side] = {"way": row["way"], "ms_per_user": row["ms_per_user"]}
    if "Keyhush" in best:
        for row in best.values():
            row["ratio"] = row["ms_per_user"] / best["Keyhush"]["ms_per_user"]
    return best


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


def markdown(results):
    where, models = results["machine"], results["models"]
    versions = {row["side"]: row["version"] for m in models for row in m["sides"] if "version" in row}
    lines = [
        "# Local training of one user on one core", "",
        f"{where['date']}, {where['cpu']}, {where['cores']} cores, pinned to {where['pinned_to']}, load "
        f"{where['load_before'][0]:.2f} before and {where['load_after'][0]:.2f} after.",
        f"Python {where['python']}, {', '.join(f'{s} {v}' for s, v in versions.items())}; {where['rustc']}.",
        f"Revision {where['revision']}" + (" with uncommitted changes." if where["uncommitted_changes"] else "."), "",
        f"CPU time for a user's tokens (1,600 unless said otherwise), f32, the fastest of {results['passes']} passes of "
        f"{results['users']} users; the fastest way of each peer.", "",
        "| model | GFLOP | Keyhush | PyTorch | JAX | PyTorch / Keyhush | JAX / Keyhush |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for m in models:
        best = m["summary"]

        def cell(side, key, form):
            return form.format(best[side][key]) if key in best.get(side, {}) else ""

        sides = ("Keyhush", "PyTorch", "JAX")
        cells = [m["model"], f"{m['gflop']:.1f}", *(cell(side, "ms_per_user", "{:.1f} ms") for side in sides)]
        cells += [cell(side, "ratio", "{:.2f}") for side in sides[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Every way:", "", "| model | side | way | fastest | all passes | GFLOP/s |"]
    lines.append("|---|---|---|---|---|---|")
    for m in models:
        for row in m["sides"]:
            cells = [m["model"], row["side"], row["way"]]
            if "failed" in row:
                cells += ["did not run", "", ""]
            else:
                passes = ", ".join(f"{ms:.0f}" for ms in row["cpu_ms"])
                cells += [f"{row['ms_per_user']:.1f} ms", passes, f"{1e3 * m['gflop'] / row['ms_per_user']:.0f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, prog="bench/local_training/run.sh")
    parser.add_argument("--out", type=pathlib.Path, help="where to write; bench/runs/<date>-local-training unless told")
    parser.add_argument("--model", choices=work.MODELS, action="append", help="only this model; may be repeated")
    parser.add_argument("--passes", type=int, default=5, help="how often every side runs")
    parser.add_argument("--users", type=int, default=4, help="users in a pass")
    parser.add_argument("--binaries", type=pathlib.Path, default=ROOT / "target" / "dist", help="where cargo built")
    options = parser.parse_args()

    out = options.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-local-training"
    load_before, models = os.getloadavg(), []
    for model in options.model or work.MODELS:
        models.append(measured(model, options))
        for row in models[-1]["sides"]:
            time = row.get("failed") or f"{row['ms_per_user']:8.1f} ms"
            print(f"{model:24}{row['side']:10}{row['way']:30}{time}", flush=True)
    results = {"models": models, "passes": options.passes, "users": options.users, "machine": machine(load_before)}
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(markdown(results))
    print(f"\n{markdown(results)}\nwritten to {out}")


if __name__ == "__main__":
    main()
