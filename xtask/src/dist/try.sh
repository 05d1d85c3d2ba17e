#!/bin/sh
# What a release must do for whoever gets it: `sh try.sh FOLDER`, in an empty folder, with `keyhush` on the path. A model is trained, and
# another by a server and devices, over TLS; both ledgers are verified.
set -eu
cd "$1"

cat >task.toml <<'END'
rounds = 2
unit = "device"
data = { kind = "devices" }
model = { preset = "tiny", vocabulary = 100, hidden = 6, embedding = 6 }
local = { batch = 4, unroll = 5, learning_rate = 0.5, most_tokens = 40 }
participation = { kind = "arrival", population = 60, cohort = 8, min_separation = 1, max_participations = 1 }
clip = { kind = "flat", norm = 0.5 }
privacy = { mechanism = "tree", noise_multiplier = 4.0, delta = 1e-5 }
server = { optimizer = "sgd", learning_rate = 0.5 }
evaluation = { every = 2, users = 6, most_tokens = 300 }
devices = { select_seconds = 2, report_seconds = 30, tick_seconds = 0.2, begin_with = 30 }
END

keyhush --version
keyhush train --quiet --out run --set rounds=2 --set participation.population=2000 --set participation.cohort=20
keyhush privacy verify run

# Both end by themselves, soon; on a busy machine, and under an emulator, later.
timeout 900 keyhush serve task.toml --listen 127.0.0.1:0 --data data --secrets secrets --until-done --least-pause 0 2>server.log &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
waited=0
until grep -qs 'to connect a device' server.log; do
    waited=$((waited + 1))
    if [ $waited -gt 300 ] || ! kill -0 $server; then
        echo "the server does not listen:" >&2
        cat server.log >&2
        exit 1
    fi
    sleep 0.2
done
address=https://localhost:$(sed -n 's/.*listening on .*:\([0-9]*\)$/\1/p' server.log)
keyhush device --server "$address" --pin secrets/tls/cert.pem --token secrets/token --synthetic --count 40 --for-seconds 900 >devices.log 2>&1 &
devices=$!
trap 'kill $server $devices 2>/dev/null || true' EXIT
wait $server || { cat server.log devices.log >&2; exit 1; }
kill $devices 2>/dev/null || true
tail -n 1 server.log
keyhush privacy verify data/models/task
