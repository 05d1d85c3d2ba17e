#!/usr/bin/env bash
# Everything that is claimed of a card, in parts of less than ten minutes each, for machines that are lent for a short time:
#
#   card.sh tests OUT PROGRAM_OF_TESTS...     the tests that need a card; the programs as `cargo test --no-run` names them
#   card.sh agreement OUT KEYHUSH             updates of all 100 users beside those of threads, at the usual rates
#   card.sh rounds OUT KEYHUSH [bench.py's]   rounds of three models beside JAX and PyTorch
#   card.sh run OUT KEYHUSH STORE simulated|secret    5,000 rounds of 100 users
#   card.sh large OUT KEYHUSH STORE           100 rounds of 5,000 users
#
# STORE is the folder of bench/runs/2026-11-18-gpu-run-2: blogs cut at 1,600 tokens a user (`keyhush data import`). Each part writes what is
# printed into files under OUT while it runs, so that what was measured is kept where a machine is taken away.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
part="$1" out="$2"
shift 2
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv | tee "$out/card.txt"

train() { # NAME KEYHUSH STORE SETTINGS...
  local name="$1" keyhush="$2" store="$3"
  shift 3
  local settings=()
  for setting in "data.path=$store" "$@"; do settings+=(--set "$setting"); done
  { time "$keyhush" train "$here/../runs/2026-11-18-gpu-run-2/run.toml" --engine cuda --precision f16 --threads "$(nproc)" --out "$out/$name.run" "${settings[@]}"; } 2>&1 |
    tee "$out/$name.txt"
  cp "$out/$name.run/metrics.jsonl" "$out/$name-metrics.jsonl"
  # The folder of a run has models and vectors: too much to keep.
  rm -rf "$out/$name.run"
}

case "$part" in
tests)
  for program in "$@"; do KEYHUSH_CARD=required "$program" --nocapture --test-threads 1 2>&1; done | tee "$out/tests.txt"
  ;;
agreement)
  for model in mcmahan2018:0.5 gboard:0.5 so-nwp:0.18; do
    for precision in f32 f16; do
      "$1" bench gpu --model "${model%:*}" --learning-rate "${model#*:}" --users 100 --rounds 1 --compared 100 --precision "$precision" --json
    done
  done | tee "$out/agreement.jsonl"
  ;;
rounds)
  program="$1"
  shift
  "${PYTHON:-python3}" "$here/bench.py" --keyhush "$program" --rounds 12 --lines "$out/rounds.jsonl" "$@" | tee "$out/rounds.md"
  ;;
run)
  case "$3" in
  simulated) train simulated-5000 "$1" "$2" noise_seed=1 ;;
  secret) train secret-5000 "$1" "$2" ;;
  *) echo "card.sh: simulated or secret, not $3" >&2 && exit 2 ;;
  esac
  ;;
large) train users-5000 "$1" "$2" noise_seed=1 rounds=100 participation.cohort=5000 stands_for= ;;
*) echo "card.sh: no part is called $part" >&2 && exit 2 ;;
esac
