#!/usr/bin/env bash
# Draws docs/pictures/board-light.png: the board with four runs in a headless Chromium, as its test opens it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
drawn=$(mktemp -d)
trap 'rm -r "$drawn"' EXIT
KEYHUSH_PICTURES="$drawn" cargo test --locked -p keyhush --features full --test all board::the_page_fits
cp "$drawn/board-light.png" docs/pictures/
