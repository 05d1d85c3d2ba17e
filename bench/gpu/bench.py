"""Rounds of 100 users on one card: Keyhush beside JAX and PyTorch, in one call. Prints a table, and writes every line it read."""
import argparse, json, subprocess, sys

parser = argparse.ArgumentParser()
parser.add_argument("--keyhush", required=True, help="the program")
parser.add_argument("--models", default="mcmahan2018,gboard,so-nwp")
parser.add_argument("--precisions", default="f32,tf32,f16", help="those of Keyhush")
parser.add_argument("--peers", default="jax,torch", help="those that run beside it; with neither, nothing is compared")
parser.add_argument("--rounds", default="20")
parser.add_argument("--lines", help="a file for the lines as they were printed")
args = parser.parse_args()
# At the usual rate of 0.5 the training of so-nwp amplifies roundings, and updates differ by that.
RATES = {"so-nwp": "0.18"}
lines = open(args.lines, "w") if args.lines else None


def measured(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-800:], file=sys.stderr)
        return None
    line = done.stdout.strip().splitlines()[-1]
    if lines:
        print(line, file=lines, flush=True)
    return json.loads(line)


def keyhush(model, precision):
    command = [args.keyhush, "bench", "gpu", "--model", model, "--users", "100", "--rounds", args.rounds, "--precision", precision, "--json"]
    return measured(command + (["--learning-rate", RATES[model]] if model in RATES else []))


def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


here = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
failed = False
columns = ["model", "who", "precision", "ms a round of 100", "on the card", "of the copy peak", "of the multiply peak", "off the threads", "users left to the host"]
row(columns)
row(["---"] * len(columns))
for model in args.models.split(","):
    for precision in args.precisions.split(","):
        if not (m := keyhush(model, precision)):
            failed = True
            row([model, "Keyhush", precision, "failed"] + [""] * 5)
            continue
        copy = f"{100 * m['share_of_copy_peak']:.0f} % of {m['copy_peak_tb_per_s']:.2f} TB/s"
        multiply = f"{100 * m['share_of_multiply_peak']:.0f} % of {m['multiply_peak_tflops']:.0f} TFLOP/s"
        times = [f"{m['ms_per_100_users']:.2f}", f"{m['ms_per_round_on_the_card']:.2f}"]
        row([model, "Keyhush", precision, *times, copy, multiply, f"{m['largest_relative_difference']:.1e}", str(m["users_left_to_host"])])
    for precision in ["float32", "tensorfloat32"] if "jax" in args.peers else []:
        if m := measured([sys.executable, f"{here}/peer_jax.py", "--model", model, "--precision", precision]):
            row([model, m["peer"], precision, f"{m['ms_per_round']:.2f}"] + [""] * 5)
if "torch" in args.peers and "mcmahan2018" in args.models and (m := measured([sys.executable, f"{here}/peer_torch.py"])):
    row(["mcmahan2018", m["peer"], "float32", f"{m['ms_per_round']:.1f}"] + [""] * 5)
sys.exit(1 if failed else 0)
