"""A thousand rounds over the network with faults, and whether the server's memory and files stay as they are. README.md says what is done."""

import argparse
import collections
import csv
import datetime
import json
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from analysis import slope  # noqa: E402
from picture import draw  # noqa: E402
from proxy import Proxy  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TASK = "soak"
ROUND = re.compile(r"soak: round (\d+) released")
FAILED = re.compile(r"soak: .*failed")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keyhush", required=True, help="the program")
    parser.add_argument("--profile", default="?", help="how it was built, for the README of the run")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--kills", type=int, nargs="*", default=[30, 60, 90, 120], help="rounds after which the server is killed")
    parser.add_argument("--warm-up", type=int, default=350, help="rounds after the last kill that do not count for slopes")
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two samples")
    parser.add_argument("--out", type=pathlib.Path)
    return parser.parse_args()


class Devices:
    """Processes of synthetic devices: one that stays and is measured, and two kinds that are killed again and again, with others in their place."""

    STAY = 160
    # How many of them, what else they are told, and how long they live, in seconds.
    COME_AND_GO = [
        # A day of 30 years: those who are free now stay free. They crash, lose their network, are slow, are taken up by their owners, and have wrong clocks.
        (60, ["--behaviour", "realistic", "--day-seconds", "1e9"], (30, 60)),
        (10, [], (10, 40)),
    ]

    def __init__(self, args, port, token, folder):
        self.args, self.port, self.token, self.folder = args, port, token, folder
        self.random = random.Random(3)
        self.started = self.killed = 0
        self.stays = self._start(self.STAY, [])
        self.others = [[None, time.time() + 5] for _ in self.COME_AND_GO]

    def _start(self, count, more):
        self.started += 1
        command = [self.args.keyhush, "device", "--synthetic", "--server", f"http://127.0.0.1:{self.port}", "--count", str(count)]
        command += ["--seed", str(self.started), "--token", self.token, "--most-inputs", "100000", "--json", *more]
        log = open(self.folder / "devices.log", "a")
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def look(self):
        """Kills those whose time is over, and starts others a moment later."""
        if self.stays.poll() is not None:
            raise SystemExit("the devices ended by themselves")
        for place, (count, more, lives) in zip(self.others, self.COME_AND_GO):
            process, until = place
            if time.time() < until:
                continue
            if process:
                process.kill()
                process.wait()
                self.killed += 1
                place[:] = [None, time.time() + self.random.uniform(1, 5)]
            else:
                place[:] = [self._start(count, more), time.time() + self.random.uniform(*lives)]

    def processes(self):
        return [process for process in [self.stays, *(process for process, _ in self.others)] if process]

    def stop(self):
        for process in self.processes():
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)


class Server:
    """The server, which is killed and started again on the same data."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.log = folder / "server.log"
        self.lives, self.rounds, self.failed, self.read = 0, 0, 0, 0
        self.port = None
        self.start()

    def start(self):
        listen = f"127.0.0.1:{self.port or 0}"
        command = [self.args.keyhush, "serve", f"{TASK}.toml", "--listen", listen, "--data", "data", "--secrets", "secrets"]
        command += ["--plain-http", "--until-done", "--least-pause", "0", "--set", f"rounds={self.args.rounds}"]
        command += ["--set", f"participation.max_participations={self.args.rounds}"]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.lives += 1
        if self.port is None:
            until = time.time() + 60
            while not (found := re.search(r"listening on 127\.0\.0\.1:(\d+)", self.log.read_text())):
                if time.time() > until or self.process.poll() is not None:
                    raise SystemExit(f"the server does not begin:\n{self.log.read_text()}")
                time.sleep(0.05)
            self.port = int(found[1])

    def look(self):
        with open(self.log) as log:
            log.seek(self.read)
            for line in iter(log.readline, ""):
                if not line.endswith("\n"):
                    break
                self.read = log.tell()
                if "panicked" in line:
                    raise SystemExit(f"the server panicked: {line}")
                if found := ROUND.search(line):
                    self.rounds = int(found[1])
                elif FAILED.search(line):
                    self.failed += 1

    def kill(self):
        self.process.kill()
        self.process.wait()
        time.sleep(random.uniform(0.2, 3))
        self.start()


class Operator:
    """Somebody who looks at the server as an operator does, where the program has a console: the tasks, the page, what monitoring reads."""

    PATHS = ["/healthz", "/readyz", "/metrics", "/", "/api/tasks", "/api/dashboard"]

    def __init__(self, args, folder):
        command = [args.keyhush, "access", "create", "soak", "--role", "operator", "--secrets", "secrets", "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        self.token = json.loads(done.stdout)["token"] if done.returncode == 0 else None
        self.answers = collections.Counter()

    def look(self, port):
        for path in self.PATHS if self.token else []:
            asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {self.token}"})
            try:
                with urllib.request.urlopen(asked, timeout=5) as answer:
                    answer.read()
                    self.answers[f"{path} {answer.status}"] += 1
            except urllib.error.HTTPError as error:
                self.answers[f"{path} {error.code}"] += 1
            except OSError:
                self.answers[f"{path} not answered"] += 1


def sample(process):
    """Memory in KiB, sockets, other open files and threads of a process; nothing if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        links = []
        for entry in os.scandir(f"/proc/{process.pid}/fd"):
            try:
                links.append(os.readlink(entry.path))
            except OSError:
                pass
    except OSError:
        return None
    number = lambda name: int(found[1]) if (found := re.search(rf"{name}:\s+(\d+)", status)) else None
    if number("VmRSS") is None:
        return None
    sockets = sum(link.startswith("socket:") for link in links)
    return [number("VmRSS"), sockets, len(links) - sockets, number("Threads")]


def run(args, folder, samples):
    shutil.copy(HERE / "task.toml", folder / f"{TASK}.toml")
    server = Server(args, folder)
    proxy = Proxy(server.port, mean_life_s=45, stalled=0.01, seed=1)
    operator = Operator(args, folder)
    devices = Devices(args, proxy.port, str(folder / "secrets" / "token"), folder)
    kills, rows, began, last = list(args.kills), [], time.time(), (0, time.time())
    try:
        while server.process.poll() is None:
            server.look()
            devices.look()
            if kills and server.rounds >= kills[0]:
                time.sleep(random.uniform(0, 1.5))
                server.kill()
                kills.pop(0)
            operator.look(server.port)
            at = time.time() - began
            taken = [sample(server.process), sample(devices.stays)]
            if all(taken):
                rows.append([round(at, 2), server.lives, server.rounds, *taken[0], *taken[1]])
                samples.writerow(rows[-1])
            if server.rounds > last[0]:
                last = (server.rounds, time.time())
            if time.time() - last[1] > 300:
                raise SystemExit(f"no round was released within five minutes:\n{server.log.read_text()[-3000:]}")
            time.sleep(max(0.0, args.every - (time.time() - began - at)))
        server.look()
        devices.stop()
    finally:
        for process in [server.process, *devices.processes()]:
            if process.poll() is None:
                process.kill()
    if server.process.returncode != 0:
        raise SystemExit(f"the server failed ({server.process.returncode}):\n{server.log.read_text()[-3000:]}")
    return server, proxy, devices, operator, rows, time.time() - began


COLUMNS = ["seconds", "life", "round", *[f"{who}_{what}" for who in ("server", "devices") for what in ("rss_kib", "sockets", "other_files", "threads")]]


def verified(args, folder):
    """What the program says of the ledger, and the rounds that are in it."""
    models = folder / "data" / "models" / TASK
    done = subprocess.run([args.keyhush, "privacy", "verify", models, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"the ledger is not verified: {done.stderr}{done.stdout}")
    bodies = [json.loads(line)["entry"]["body"] for line in (models / "ledger.jsonl").read_text().splitlines()]
    kinds = dict(collections.Counter(next(iter(body)) if isinstance(body, dict) else body for body in bodies))
    if kinds.get("release") != args.rounds:
        raise SystemExit(f"{args.rounds} rounds were planned and said to be released, and the ledger has {kinds}")
    return json.loads(done.stdout), kinds


def judged(args, rows):
    """Slopes of the last life of the server, after the warm-up."""
    last = max(row[1] for row in rows)
    first = min(row[2] for row in rows if row[1] == last)
    steady = [row for row in rows if row[1] == last and row[2] >= first + args.warm_up]
    found = {}
    for column in range(3, len(COLUMNS)):
        values = [row[column] for row in steady]
        fitted = slope([row[2] for row in steady], values)
        found[COLUMNS[column]] = {**fitted, "least": min(values), "median": statistics.median(values), "most": max(values)}
    return {"from_round": steady[0][2], "to_round": steady[-1][2], "samples": len(steady), **found}


def table(took):
    """What a reader wants to know, as Markdown."""
    steady, connections = took["steady"], took["connections"]
    lines = [
        f"| rounds released | {took['rounds']:,}, all of them in a ledger that `keyhush privacy verify` accepts |",
        f"| failed attempts | {took['failed_attempts']:,} |",
        f"| server killed (`kill -9`) | {took['server_killed']} times |",
        f"| processes of devices killed (`kill -9`) | {took['device_processes_killed']} |",
        f"| connections | {connections['opened']:,}; {connections['cut']:,} were cut, {connections['stalled']:,} stalled, {connections['refused']:,} found no server |",
        f"| time | {took['seconds'] / 60:.0f} minutes |",
    ]
    out = ["| | |", "|---|---|", *lines, ""]
    out += [f"Rounds {steady['from_round']:,} to {steady['to_round']:,}, {steady['samples']} samples:", ""]
    out += ["| | least | median | most | slope for 1,000 rounds (95 % interval) |", "|---|---|---|---|---|"]
    names = [("rss_kib", "resident memory, KiB"), ("sockets", "sockets"), ("other_files", "other open files"), ("threads", "threads")]
    for who in ("server", "devices"):
        for column, name in names:
            of = steady[f"{who}_{column}"]
            slope_of = f"{of['per_1000_rounds']:+.1f} ({of['least_95']:+.1f} to {of['most_95']:+.1f})"
            out.append(f"| {who}: {name} | {of['least']:,} | {of['median']:,} | {of['most']:,} | {slope_of} |")
    return "\n".join(out) + "\n"


def main():
    args = arguments()
    args.keyhush = os.path.abspath(args.keyhush)
    out = args.out or ROOT / "bench" / "runs" / f"{datetime.date.today()}-soak"
    out.mkdir(parents=True, exist_ok=True)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="keyhush-soak-"))
    # A SIGTERM ends it as Ctrl-C does: nothing that was started is left.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    try:
        with open(out / "samples.csv", "w", newline="", buffering=1) as file:
            samples = csv.writer(file)
            samples.writerow(COLUMNS)
            server, proxy, devices, operator, rows, seconds = run(args, folder, samples)
        verdict, entries = verified(args, folder)
        took = {
            "profile": args.profile,
            "machine": f"{platform.system()} {platform.release()}, {os.cpu_count()} cores",
            "seconds": round(seconds, 1),
            "rounds": server.rounds,
            "failed_attempts": server.failed,
            "server_killed": server.lives - 1,
            "device_processes_killed": devices.killed,
            "connections": {"opened": proxy.opened, "cut": proxy.cut, "stalled": proxy.stalls, "refused": proxy.refused},
            "operator": dict(sorted(operator.answers.items())),
            "ledger": verdict,
            "ledger_entries": entries,
            "steady": judged(args, rows),
        }
        (out / "table.md").write_text(table(took))
        (out / "soak.json").write_text(json.dumps(took, indent=1) + "\n")
        (out / "soak.svg").write_text(draw(rows, args.warm_up))
        print(json.dumps(took, indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
