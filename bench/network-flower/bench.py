"""Rounds of two devices over the network, Keyhush beside Flower, and a server that is killed; started by run.sh, explained in README.md."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
# How long a run of Flower may take to come to its next round before it is taken to be stuck, in seconds.
PATIENCE = 180


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Flower:
    """A SuperLink with its database, and SuperNodes: processes on loopback."""

    def __init__(self, folder, devices):
        self.folder, self.devices, self.port = folder, devices, free_port()
        self.notes = folder / "notes.jsonl"
        home = folder / "home"
        home.mkdir(parents=True)
        address = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (home / "config.toml").write_text(address)
        bin_ = pathlib.Path(sys.executable).parent
        path = f"{bin_}{os.pathsep}{os.environ['PATH']}"
        self.env = os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PATH": path, "OMP_NUM_THREADS": "1"}
        self.processes = []
        self.link = self.start_link()
        self.nodes = [self.start_node(number) for number in range(devices)]

    def spawn(self, name, *command):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen([*map(str, command)], env=self.env, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def start_link(self):
        link = self.spawn("superlink", "flower-superlink", "--insecure", "--port", self.port, "--database", "state.db",
                          "--disable-runtime-dependency-installation")
        until = time.time() + 60
        while time.time() < until:
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return link
            time.sleep(0.1)
        sys.exit(f"the SuperLink does not begin: {self.folder}/superlink.log")

    def start_node(self, number):
        return self.spawn(f"supernode-{number}", "flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.port}",
                          "--port", free_port(), "--node-config", f"partition-id={number}")

    def asked(self, *command):
        done = subprocess.run(["flwr", *command, "--format", "json"], env=self.env, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"flwr {' '.join(command)}: {done.stdout}{done.stderr}")
        return json.loads(done.stdout)

    def run(self, rounds):
        config = f'notes="{self.notes}" rounds={rounds} devices={self.devices}'
        return self.asked("run", str(HERE / "app"), "here", "-c", config)["run-id"]

    def lines(self):
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []

    def status(self, run):
        runs = self.asked("ls", "here")["runs"]
        return next(({k: r[k] for k in ("status", "status-details")} for r in runs if r["run-id"] == run), None)

    def wait(self, is_it, patience=PATIENCE):
        """Until the notes are so, or nothing new stands in them for too long."""
        seen, since = 0, time.time()
        while time.time() - since < patience:
            lines = self.lines()
            if is_it(lines):
                return True
            if len(lines) != seen:
                seen, since = len(lines), time.time()
            time.sleep(0.05)
        return False

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def is_over(lines):
    return any(line["what"] == "over" for line in lines)


def released(lines):
    return [line["round"] for line in lines if line["what"] == "released" and line["round"] > 0]


def busy(lines, start, end):
    """Seconds between two times in which at least one device trained."""
    spans = sorted((max(line["began_s"], start), min(line["ended_s"], end)) for line in lines if line["what"] == "trained")
    total, until = 0.0, start
    for began, ended in spans:
        total += max(0.0, ended - max(began, until))
        until = max(until, ended)
    return total


def times(lines):
    """As `keyhush bench network` counts them: from one release to the next, the first round left out."""
    at = {line["round"]: line["at_s"] for line in lines if line["what"] == "released" and line["round"] > 0}
    pairs = [(at[n - 1], at[n]) for n in sorted(at) if n - 1 in at]
    training = [busy(lines, *pair) for pair in pairs]
    overhead = [end - start - trained for (start, end), trained in zip(pairs, training)]
    return {
        "measured": len(pairs),
        "wall_s": statistics.mean(end - start for start, end in pairs),
        "training_s": statistics.mean(training),
        "overhead_s": statistics.mean(overhead),
        "overhead_median_s": statistics.median(overhead),
        "overhead_most_s": max(overhead),
    }


def flower_rounds(folder, devices, rounds):
    flower = Flower(folder, devices)
    try:
        run = flower.run(rounds)
        if not flower.wait(is_over):
            sys.exit(f"Flower does not come to its end: {folder}")
        return {"round": times(flower.lines()), "lines": flower.lines(), "run": flower.status(run)}
    finally:
        flower.stop()


def flower_killed(folder, devices, rounds, at_round, away_s):
    """Kills the SuperLink when the first device has trained in a round, and starts it again on the same database."""
    flower = Flower(folder, devices)
    try:
        run = flower.run(rounds)
        mid_round = lambda lines: any(line["what"] == "trained" and line["round"] == at_round for line in lines)
        if not flower.wait(mid_round):
            sys.exit(f"Flower does not come to round {at_round}: {folder}")
        before = released(flower.lines())
        flower.link.kill()
        flower.link.wait()
        killed_s = time.time()
        time.sleep(away_s)
        flower.link = flower.start_link()
        back_s = time.time()
        over = flower.wait(is_over, patience=90)
        return {
            "rounds": rounds,
            "released_before_the_kill": before,
            "away_s": back_s - killed_s,
            "released_after": [n for n in released(flower.lines()) if n not in before],
            "came_to_its_end": over,
            "waited_s": time.time() - back_s,
            "run": flower.status(run),
            "lines": flower.lines(),
        }
    finally:
        flower.stop()


def keyhush(binary, devices, rounds, *more):
    command = [binary, "bench", "network", "--devices", devices, "--goal", 2, "--rounds", rounds, *more, "--json"]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def machine():
    names = {line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")}
    revision = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return {
        "cpu": ", ".join(names),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg(),
        "revision": revision.stdout.strip(),
        "flwr": subprocess.run([sys.executable, "-m", "pip", "show", "flwr"], capture_output=True, text=True)
        .stdout.split("Version: ")[1].split()[0],
    }


def table(results):
    def row(name, took):
        r = took["round"]
        return (f"| {name} | {r['measured']} | {r['wall_s']:.3f} | {r['training_s']:.4f} | **{r['overhead_s']:.4f}** "
                f"| {r['overhead_median_s']:.4f} | {r['overhead_most_s']:.4f} |")

    ours, theirs = results["keyhush"], results["flower"]
    killed, stopped = results["keyhush_killed"], results["flower_killed"]
    ratio = theirs["round"]["overhead_s"] / statistics.mean(r["round"]["overhead_s"] for r in ours)
    lines = [
        "| two devices, 29,264 parameters | rounds | seconds a round | of which training | overhead | median | most |",
        "|---|---|---|---|---|---|---|",
        *(row(f"Keyhush, pass {n + 1}", r) for n, r in enumerate(ours)),
        row("Flower", theirs),
        "",
        f"Flower's overhead is {ratio:.0f} times Keyhush's.",
        "",
        "| the server is killed (SIGKILL) | Keyhush | Flower |",
        "|---|---|---|",
        f"| rounds asked for | {killed['rounds']} | {stopped['rounds']} |",
        f"| kills | {killed['kills']} | 1 |",
        f"| rounds released in the end | {killed['rounds_closed']} | {len(stopped['released_before_the_kill']) + len(stopped['released_after'])} |",
        f"| attempts that came to nothing | {killed['rounds_failed']} | {'0' if stopped['came_to_its_end'] else '1, and the run with it'} |",
        f"| what the server says of the run | all rounds released | {stopped['run']['status']}: {stopped['run']['status-details']} |",
        f"| participations lost, doubled | {killed['participations']['lost']}, {killed['participations']['doubled']} | not known to it |",
        f"| the last model is that of a run without kills | {'yes, to the bit' if killed['digests']['equal'] else 'NO'} | there is none |",
    ]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binaries", type=pathlib.Path, required=True, help="where keyhush is")
    parser.add_argument("--rounds", type=int, default=20, help="rounds of Keyhush, each pass (default 20)")
    parser.add_argument("--flower-rounds", type=int, default=8, help="rounds of Flower, of some ten seconds each (default 8)")
    parser.add_argument("--passes", type=int, default=3, help="passes of Keyhush (default 3)")
    parser.add_argument("--out", type=pathlib.Path, help="where the table goes")
    args = parser.parse_args()
    out = args.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-network-flower"
    binary, work = args.binaries / "keyhush", pathlib.Path(tempfile.mkdtemp(prefix="network-flower-"))
    results = {"machine": machine(), "keyhush": []}
    for _ in range(args.passes - 1):
        results["keyhush"].append(keyhush(binary, 2, args.rounds))
    results["flower"] = flower_rounds(work / "rounds", 2, args.flower_rounds)
    # One pass of ours after theirs: the machine is shared.
    results["keyhush"].append(keyhush(binary, 2, args.rounds))
    results["flower_killed"] = flower_killed(work / "killed", 2, args.flower_rounds, 3, 2)
    results["keyhush_killed"] = keyhush(binary, 6, args.rounds, "--kill-server-every", 4)
    results["machine"]["load_after"] = os.getloadavg()
    out.mkdir(parents=True, exist_ok=True)
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "table.md").write_text(table(results))
    print(table(results))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
