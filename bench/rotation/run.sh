#!/usr/bin/env bash
# Measures the random rotation beside the textbook loop; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export BENCH_DATE BENCH_REVISION BENCH_RUSTC
BENCH_DATE="$(date -u +%Y-%m-%dT%H:%M:%S+00:00)"
BENCH_REVISION="$(git describe --always --dirty --abbrev=40 --exclude '*')"
BENCH_RUSTC="$(rustc --version)"

out=(--out "bench/runs/$(date -u +%F)-rotation")
case " $* " in *" --out "*) out=() ;; esac

cargo build --profile dist --locked -p keyhush-privacy --example bench_rotation

# One core: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
"${pin[@]}" "${CARGO_TARGET_DIR:-target}/dist/examples/bench_rotation" "${out[@]}" "$@"
