#!/usr/bin/env bash
# What a round costs beside the users' training, and what a second thread costs; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

cargo build --profile dist --locked -p keyhush
exec "${CARGO_TARGET_DIR:-target}/dist/keyhush" bench round "$@"
