#!/usr/bin/env bash
# Measures Keyhush's accountants beside dp_accounting; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv"
python="$venv/bin/python"

tree=no
for arg in "$@"; do
    case "$arg" in
        --tree) tree=yes ;;
        --help | -h) exec python3 bench/accounting/bench.py --help ;;
    esac
done

[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check dp_accounting==0.6.0
if [ "$tree" = yes ]; then
    # Without what it depends on: only a file that needs neither TensorFlow nor the rest is imported.
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps tensorflow-privacy==0.9.0
fi

cargo build --profile dist --locked -p keyhush-privacy --example bench_accounting
cargo build --profile dist --locked -p keyhush

# One core for both sides: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "${pin[@]}" "$python" bench/accounting/bench.py --binaries "$target/dist" "$@"
