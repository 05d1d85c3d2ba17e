#!/usr/bin/env bash
# Draws docs/pictures/dashboard-*.png: a server with a task of real devices in a headless Chromium, as its test opens it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
drawn=$(mktemp -d)
trap 'rm -r "$drawn"' EXIT
KEYHUSH_PICTURES="$drawn" cargo test --locked -p keyhush --features full --test all dashboard::page::the_page_is_used
cp "$drawn"/dashboard-{light,operations}.png docs/pictures/
