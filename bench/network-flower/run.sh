#!/usr/bin/env bash
# Rounds of two devices over the network, Keyhush beside Flower, and what each does when its server is killed; see README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

target="${CARGO_TARGET_DIR:-target}"
venv="$target/bench-venv-network-flower"
python="$venv/bin/python"

case " $* " in *" --help "* | *" -h "*) exec python3 bench/network-flower/bench.py --help ;; esac

[ -x "$python" ] || python3 -m venv "$venv"
"$python" -m pip install --quiet --disable-pip-version-check flwr==1.41.0 numpy==2.4.6

cargo build --profile dist --locked -p keyhush --features network
exec "$python" -B bench/network-flower/bench.py --binaries "$target/dist" "$@"
