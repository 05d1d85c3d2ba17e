#!/usr/bin/env bash
# Trains on the Penn Treebank with Keyhush and with PyTorch, side by side; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

usage="usage: bench/pretrain/run.sh --text FOLDER [--device cpu|cuda] [--epochs N] [--out FOLDER]"
text="" device=cpu epochs=4 out="bench/runs/$(date -u +%F)-pretrain-ptb"
while [ $# -gt 0 ]; do
    case "$1" in
        --text) text="$2" ;;
        --device) device="$2" ;;
        --epochs) epochs="$2" ;;
        --out) out="$2" ;;
        *) echo "$usage" >&2; [ "$1" = --help ] && exit 0 || exit 2 ;;
    esac
    shift 2
done
[ -f "$text/ptb.train.txt" ] || { echo "$usage; FOLDER holds ptb.train.txt, ptb.valid.txt and ptb.test.txt" >&2; exit 2; }

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv-local-training" # the one of bench/local_training: PyTorch takes 6 GB
python="$venv/bin/python"
[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check torch==2.15.0 numpy==2.4.6
cargo build --profile dist --locked -p keyhush

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$python" -B bench/pretrain/prepare.py "$text" "$work"
model=(--model zaremba650 --hidden 200 --embedding 200 --vocabulary-size 10001)
schedule=(--epochs "$epochs" --batch 20 --unroll 20 --learning-rate 1 --decay-after 2 --decay 0.5 --seed 1)
texts=(--data "$work/train.txt" --valid "$work/valid.txt")
export OMP_NUM_THREADS=1 MKL_NUM_THREADS=1
for dropout in 0 0.2; do
    keyhush=("$target/dist/keyhush" pretrain "${texts[@]}" "${model[@]}" --dropout "$dropout" "${schedule[@]}" --clip-gradients 0 --json --quiet)
    peer=("$python" -B bench/pretrain/peer_torch.py --start "$work/start-$dropout" "${texts[@]}" "${schedule[@]}" --device "$device")
    "$target/dist/keyhush" pretrain "${texts[@]}" "${model[@]}" --dropout "$dropout" --epochs 0 --seed 1 --quiet \
        --out "$work/start-$dropout"
    "${keyhush[@]}" --out "$work/model-$dropout" >"$work/keyhush-$dropout.jsonl" &
    first=$!
    "${peer[@]}" >"$work/pytorch-$dropout.jsonl" &
    second=$!
    wait $first
    wait $second
    # How far PyTorch follows itself: the same run with first parameters that differ in their last digits.
    "${peer[@]}" --perturb 1e-6 >"$work/perturbed-$dropout.jsonl"
done
"$python" -B bench/pretrain/compare.py --raw "$work" --out "$out" --schedule "${model[*]} ${schedule[*]}"
