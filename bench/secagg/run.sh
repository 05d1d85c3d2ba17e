#!/usr/bin/env bash
# Measures Keyhush's secure aggregation beside Flower's SecAgg+; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv-secagg"
python="$venv/bin/python"

case " $* " in *" --help "* | *" -h "*) exec python3 bench/secagg/bench.py --help ;; esac

[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check flwr==1.41.0 numpy==2.4.6

# The comparison has a graph that protects nobody, which what people install refuses.
cargo build --profile dist --locked -p keyhush --features insecure

# One core for both sides: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "${pin[@]}" "$python" bench/secagg/bench.py --binaries "$target/dist" "$@"
