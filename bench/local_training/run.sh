#!/usr/bin/env bash
# Measures Keyhush's local training beside PyTorch and JAX; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv-local-training"
python="$venv/bin/python"

case " $* " in *" --help "* | *" -h "*) help=yes ;; *) help=no ;; esac

# On Linux for x86-64 PyTorch's package only comes with its GPU libraries, which it loads on start even where there is
# no GPU: some gigabytes that nothing here uses.
[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check torch==2.15.0 jax==0.10.2 numpy==2.4.6
[ "$help" = no ] || exec "$python" bench/local_training/bench.py --help

cargo build --profile dist --locked -p keyhush

# One core for all sides: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
export TORCHINDUCTOR_CACHE_DIR="$PWD/$target/bench-inductor"
case "$target" in /*) TORCHINDUCTOR_CACHE_DIR="$target/bench-inductor" ;; esac
exec "${pin[@]}" "$python" bench/local_training/bench.py --binaries "$target/dist" "$@"
