#!/usr/bin/env bash
# Measures rounds of users on an NVIDIA card, beside JAX and PyTorch; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target="${CARGO_TARGET_DIR:-target}"
[ -n "${KEYHUSH:-}" ] || { cargo build --profile dist --locked -p keyhush --features cuda; KEYHUSH="$target/dist/keyhush"; }
exec "${PYTHON:-python3}" bench/gpu/bench.py --keyhush "$KEYHUSH" "$@"
