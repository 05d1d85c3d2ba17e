#!/usr/bin/env bash
# Measures what clean builds cost, and whether `--release` runs as fast as `--profile dist`; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec python3 bench/build/bench.py "$@"
