#!/usr/bin/env bash
# Draws docs/pictures/typing.svg: the model of the README's first command, while somebody types.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
target=${CARGO_TARGET_DIR:-target}
cargo build --release --locked -p keyhush
work="$target/typing"
[ -d "$work/run/model" ] || "$target/release/keyhush" train --out "$work/run" --quiet
[ -d "$work/venv" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet pyte==0.8.2
"$work/venv/bin/python" docs/pictures/keystrokes.py "$target/release/keyhush" "$work/run/model" docs/pictures/typing.svg
