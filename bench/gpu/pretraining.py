"""Epochs of `keyhush pretrain` on one card, beside PyTorch, in one call. Prints a table, and writes every line it read.

The text is made up: a million words by Zipf's law, in lines of twenty. Of Keyhush the second epoch counts; the first has the recording of
graphs in it. Its rate has the reading of the text's ids, the losses and what else the loop does in it.
"""
import argparse, json, random, subprocess, sys, tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--keyhush", required=True, help="the program")
parser.add_argument("--models", default="mcmahan2018,zaremba650")
parser.add_argument("--words", type=int, default=1_000_000)
parser.add_argument("--threads", action="store_true", help="also on a thread, which takes minutes")
parser.add_argument("--lines", help="a file for the lines as they were printed")
args = parser.parse_args()
lines = open(args.lines, "w") if args.lines else None
here = __file__.rsplit("/", 1)[0]


def measured(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-800:], file=sys.stderr)
        return None
    line = done.stdout.strip().splitlines()[-1]
    if lines:
        print(json.dumps({"command": command[1:]}), line, sep="\n", file=lines, flush=True)
    return json.loads(line)


def text(folder):
    draw = random.Random(1)
    with open(f"{folder}/text.txt", "w") as to:
        for _ in range(args.words // 20):
            print(*(f"w{int(40_000 ** draw.random())}x" for _ in range(20)), file=to)
    return f"{folder}/text.txt"


print("| model | who | precision | tokens a second | epochs of a million tokens a second |")
print("|---|---|---|---|---|")
with tempfile.TemporaryDirectory() as folder:
    path = text(folder)
    for model in args.models.split(","):
        engines = [["--engine", "cuda", "--precision", p] for p in ["f32", "tf32", "f16"]] + ([[]] if args.threads else [])
        # PyTorch clips no gradients here; what that costs is shown for one precision.
        for engine, clip in [(engine, "0") for engine in engines] + [(engines[0], "1")]:
            out = f"{folder}/{model}-{clip}-{'-'.join(engine)}"
            command = [args.keyhush, "pretrain", "--data", path, "--model", model, "--epochs", "2", "--learning-rate", "0.5", "--clip-gradients", clip, "--out", out, "--json", "--quiet"]
            if m := measured(command + engine):
                print(f"| {model} | Keyhush{'' if engine else ', one thread'}{', gradients clipped' if clip != '0' else ''} | {engine[3] if engine else 'f32'} | {m['tokens_per_s']:,.0f} | {m['tokens_per_s'] / 1e6:.2f} |", flush=True)
        for precision in ["float32", "tf32"]:
            for graph in [[], ["--graph"]]:
                command = [sys.executable, f"{here}/peer_torch_pretraining.py", "--model", model, "--precision", precision]
                if m := measured(command + graph):
                    print(f"| {model} | {m['peer']} | {precision} | {m['tokens_per_s']:,.0f} | {m['tokens_per_s'] / 1e6:.2f} |", flush=True)
