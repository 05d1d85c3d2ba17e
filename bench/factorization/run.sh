#!/usr/bin/env bash
# Optimises strategy matrices beside jax_privacy; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv-factorization"
python="$venv/bin/python"

[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check jax_privacy==2.0.0 jax==0.10.2 optax==0.2.8

cargo build --profile dist --locked -p keyhush-privacy --example bench_factorization

# One core for both sides: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "${pin[@]}" "$python" bench/factorization/bench.py --binaries "$target/dist" "$@"
