#!/usr/bin/env bash
# Imports a corpus of 750 MB and measures time and memory; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
cargo build --profile dist --locked -p keyhush
exec python3 bench/import/bench.py --binaries "$target/dist" "$@"
