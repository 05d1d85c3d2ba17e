#!/usr/bin/env bash
# Measures Keyhush's exact noise beside opendp, and releases with noise; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export BENCH_DATE BENCH_REVISION BENCH_RUSTC
BENCH_DATE="$(date -u +%Y-%m-%dT%H:%M:%S+00:00)"
BENCH_REVISION="$(git describe --always --dirty --abbrev=40 --exclude '*')"
BENCH_RUSTC="$(rustc --version)"

out=(--out "bench/runs/$(date -u +%F)-noise")
case " $* " in *" --out "*) out=() ;; esac

target="${CARGO_TARGET_DIR:-target}"
cargo build --profile dist --locked -p keyhush-privacy --example bench_mechanism
cargo build --release --locked --manifest-path bench/noise/Cargo.toml --target-dir "$target/bench-noise"

# One core for both sides: the last one, which is least often the system's.
pin=()
if command -v taskset >/dev/null; then
    cores="$(taskset -cp $$ | sed 's/.*: //')"
    pin=(taskset -c "${cores##*[-,]}")
fi
mechanisms="$target/bench-noise/mechanisms.jsonl"
"${pin[@]}" "$target/dist/examples/bench_mechanism" >"$mechanisms"
"${pin[@]}" "$target/bench-noise/release/keyhush-bench-noise" --mechanisms "$mechanisms" "${out[@]}" "$@"
