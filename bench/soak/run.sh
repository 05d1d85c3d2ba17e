#!/usr/bin/env bash
# A thousand rounds over the network with faults, and whether memory and open files stay as they are; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target="${CARGO_TARGET_DIR:-target}"
profile=given
if [ -z "${KEYHUSH:-}" ]; then
    profile=dist
    cargo build --profile dist --locked -p keyhush --features network
    KEYHUSH="$target/dist/keyhush"
fi
exec python3 -B bench/soak/soak.py --keyhush "$KEYHUSH" --profile "$profile" "$@"
