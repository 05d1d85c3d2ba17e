#!/usr/bin/env bash
# Records what the real MLflow is sent and answers, for the tests that run every time. Installs it from PyPI.
# source: mlflow 3.17.2 from PyPI, with the requests of this crate
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../../../.."
KEYHUSH_RECORD=1 cargo test --profile ci -p keyhush-tracking --test all -- --ignored --exact real::the_real_mlflow_has_what_it_was_sent
