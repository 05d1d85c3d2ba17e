"""Writes table.md, results.json and plot.svg of a run; started by run.sh, explained in README.md.

The folder of raw results has `SIDE-DROPOUT.jsonl`, a line for every epoch; sides are keyhush, pytorch (the peer that must
be followed) and others such as perturbed (PyTorch with first parameters that differ in their last digits).
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WITHIN = 0.01


def line_of(*command):
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine():
    said = (line_of("lscpu") or "").splitlines()
    models = [line.split(":", 1)[1].strip() for line in said if line.startswith("Model name")]
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "rustc": line_of("rustc", "--version"),
        "revision": line_of("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"),
    }


def read(folder):
    """{dropout: {side: epochs}}"""
    runs = {}
    for path in sorted(folder.glob("*.jsonl")):
        side, _, dropout = path.stem.rpartition("-")
        runs.setdefault(dropout, {})[side] = [json.loads(line) for line in path.read_text().splitlines()]
    return {dropout: runs[dropout] for dropout in sorted(runs, key=float)}


def apart(one, other, key="valid_perplexity"):
    """How far two epochs are apart, as a part of the second."""
    return one[key] / other[key] - 1


def verdict(runs):
    """The largest distance of each dropout's run from PyTorch's."""
    return {
        dropout: max(abs(apart(a, b)) for a, b in zip(sides["keyhush"], sides["pytorch"], strict=True))
        for dropout, sides in runs.items()
    }


def markdown(results):
    where, runs = results["machine"], results["runs"]
    torch = next(iter(runs.values()))["pytorch"][0]
    lines = [
        "# The Penn Treebank with Keyhush and with PyTorch", "",
        f"{where['date']}, {where['cpu']}, {where['cores']} cores; PyTorch {torch['torch']} on {torch['device']}; "
        f"{where['rustc']}; revision {where['revision']}.", "",
        f"`{results['schedule']}`", "",
    ]  # fmt: skip
    for dropout, sides in runs.items():
        others = [side for side in sides if side not in ("keyhush", "pytorch")]
        lines += [f"## Dropout {dropout}", "", "Perplexity on the validation text:", ""]
        heads = ["epoch", "learning rate", "Keyhush", "PyTorch", "apart"]
        for side in others:
            heads += [f"PyTorch, {side}", "apart from PyTorch"]
        lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        for number, (ours, theirs) in enumerate(zip(sides["keyhush"], sides["pytorch"])):
            cells = [str(ours["epoch"]), f"{ours['learning_rate']:g}"]
            cells += [f"{ours['valid_perplexity']:.2f}", f"{theirs['valid_perplexity']:.2f}", f"{apart(ours, theirs):+.2%}"]
            for side in others:
                if number < len(sides[side]):
                    other = sides[side][number]
                    cells += [f"{other['valid_perplexity']:.2f}", f"{apart(other, theirs):+.2%}"]
                else:
                    cells += ["", ""]
            lines.append("| " + " | ".join(cells) + " |")
        largest = results["largest_distance"][dropout]
        within = "within" if largest < WITHIN else "NOT within"
        lines += ["", f"Keyhush is {within} {WITHIN:.0%} at every epoch; the largest distance is {largest:.2%}.", ""]
    lines += ["![perplexity by epoch](plot.svg)"]
    return "\n".join(lines) + "\n"


def plot(runs):
    """Perplexity by epoch: PyTorch as circles, Keyhush as lines."""
    epochs = max(len(sides["keyhush"]) for sides in runs.values())
    values = [e["valid_perplexity"] for sides in runs.values() for e in sides["keyhush"] + sides["pytorch"]]
    low, high = min(values) * 0.95, max(values) * 1.02

    def place(epoch, value):
        return 50 + 380 * (epoch - 1) / max(epochs - 1, 1), 230 - 200 * (value - low) / (high - low)

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" width="480" height="270" font-family="sans-serif" font-size="11">']
    parts.append('<rect width="480" height="270" fill="white"/>')
    for value in range(int(low // 50 + 1) * 50, int(high) + 1, 50):
        y = place(1, value)[1]
        parts.append(f'<path d="M50 {y:.1f}H430" stroke="#ddd"/><text x="44" y="{y + 4:.1f}" text-anchor="end">{value}</text>')
    for epoch in range(1, epochs + 1):
        parts.append(f'<text x="{place(epoch, low)[0]:.1f}" y="248" text-anchor="middle">{epoch}</text>')
    for colour, (dropout, sides) in zip(("#1f6fb4", "#c8501e", "#3c8c3c"), runs.items()):
        points = " ".join("{:.1f},{:.1f}".format(*place(e["epoch"], e["valid_perplexity"])) for e in sides["keyhush"])
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        for e in sides["pytorch"]:
            x, y = place(e["epoch"], e["valid_perplexity"])
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="none" stroke="{colour}"/>')
        y = 22 + 16 * list(runs).index(dropout)
        parts.append(f'<text x="425" y="{y}" text-anchor="end" fill="{colour}">dropout {dropout}: line Keyhush, circles PyTorch</text>')
    parts.append('<text x="240" y="264" text-anchor="middle">epoch (perplexity on the validation text)</text></svg>')
    return "\n".join(parts) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--raw", type=pathlib.Path, required=True, help="the folder of raw results")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--schedule", required=True, help="the flags that both sides had")
    parser.add_argument("--machine", type=pathlib.Path, help="JSON about the machine, where the run was made on another")
    options = parser.parse_args()
    runs = read(options.raw)
    about = json.loads(options.machine.read_text()) if options.machine else machine()
    results = {"machine": about, "schedule": options.schedule, "largest_distance": verdict(runs), "runs": runs}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (options.out / "table.md").write_text(markdown(results))
    (options.out / "plot.svg").write_text(plot(runs))
    print(markdown(results) + f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
