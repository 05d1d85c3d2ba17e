#!/bin/sh
# Tables 1 and 2 and Figure 2 of Popov et al. 2018 at their size: `zaremba650` with 30,000 words, on Wikipedia and blogs. For a GPU.
#
# usage: full-size.sh [plan] WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER
#
# The texts are those of wikipedia-blogs.sh. With "plan" nothing is trained: data, stores and an untrained model are made, and `keyhush plan`
# checks the settings of each kind of row; that runs anywhere. KEYHUSH names another program than the keyhush of the path (the real run needs one
# with the feature cuda), THREADS how many threads do what the GPU does not.
set -eu

plan=no
if [ "${1:-}" = plan ]; then
    plan=yes
    shift
fi
if [ $# -ne 5 ]; then
    echo "usage: $0 [plan] WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER" >&2
    exit 2
fi
wikipedia=$1 wikipedia_test=$2 blogs=$3 words=$4 out=$5
keyhush=${KEYHUSH:-keyhush}
threads=${THREADS:-$(nproc)}
experiments=$(dirname "$0")/..
mkdir -p "$out"

# One public vocabulary for all.
{ printf '%s\n' . , '!' '?' '"' "'" '(' ')' ':' ';' - '...'; cut -f1 "$words"; } > "$out/list.txt"
[ -e "$out/words.vocab" ] || "$keyhush" data vocab --from-list "$out/list.txt" --no-punctuation --size 30000 --out "$out/words.vocab" -q

# Standard English: all paragraphs to learn from and to rehearse, 600 to measure on.
[ -e "$out/general.txt" ] || zstd -dcq "$wikipedia" | grep . > "$out/general.txt"
[ -e "$out/standard.test.txt" ] || zstd -dcq "$wikipedia_test" | awk 'NF { n++ } n > 600 { exit } { print }' > "$out/standard.test.txt"

# Users: the last people are measured on, the others are trained on; by person, and some of them as one node.
[ -e "$out/users.test.jsonl" ] || zstd -dcq "$blogs" | tail -n 1000 > "$out/users.test.jsonl"
last=$(head -n 1 "$out/users.test.jsonl" | sed 's/.*"user": *"\([^"]*\)".*/\1/')
[ -e "$out/trained.jsonl" ] || zstd -dcq "$blogs" | awk -v last="\"$last\"" 'index($0, last) { exit } { print }' > "$out/trained.jsonl"
[ -e "$out/node.jsonl" ] || head -n 2000 "$out/trained.jsonl" | sed 's/"user": *"[^"]*"/"user": "node"/' > "$out/node.jsonl"
for store in trained node; do
    [ -e "$out/$store.store" ] || "$keyhush" data import "$out/$store.jsonl" --vocab "$out/words.vocab" --out "$out/$store.store" -q
done

if [ $plan = yes ]; then
    general=$out/untrained
    [ -e "$general/model.safetensors" ] || "$keyhush" pretrain --data "$out/standard.test.txt" --vocab "$out/words.vocab" \
        --model zaremba650 --epochs 0 --out "$general" -q
    check() {
        store=$1
        shift
        for key in data.seed data.dialect data.users data.posts_per_user model.preset; do set -- --set "$key=" "$@"; done
        "$keyhush" plan "$experiments/common/popov2018.toml" --set data.kind=store --set "data.path=\"$out/$store.store\"" \
            --set data.held_out_per_mille=0 --set "model.from=\"$general\"" --set 'model.public="trained on public text"' -q "$@" > "$out/plan.txt"
        echo "plans: $store $*" | sed 's/--set [a-z._]*= //g'
    }
    for lambda in 0.25 0.5 0.75; do
        check node --set finetune.kind=rehearsal --set "finetune.public_text=\"$out/general.txt\"" --set finetune.general_tokens=1000000 \
            --set "finetune.lambda=$lambda" --set participation.population=1 --set participation.cohort=1
        check node --set finetune.kind=without-forgetting --set "finetune.lambda=$lambda" --set participation.population=1 --set participation.cohort=1
    done
    check node --set finetune.kind=retraining --set participation.population=1 --set participation.cohort=1
    for rounds in 1 300; do
        check trained --set finetune.kind=rehearsal --set "finetune.public_text=\"$out/general.txt\"" --set finetune.general_tokens=100000 \
            --set finetune.lambda=0.5 --set local.most_tokens=4000 --set participation.population=20000 --set "rounds=$rounds"
        check trained --set finetune.kind=retraining --set local.most_tokens=4000 --set participation.population=20000 --set "rounds=$rounds"
    done
    exit 0
fi

# The general model, as Zaremba et al. (2014) train their medium one: 39 epochs, dropout 0.5.
[ -e "$out/general/model.safetensors" ] || "$keyhush" pretrain --data "$out/general.txt" --vocab "$out/words.vocab" --model zaremba650 \
    --epochs 39 --batch 20 --unroll 35 --learning-rate 1 --decay-after 6 --decay 0.833 --clip-gradients 5 --engine cuda --precision tf32 --out "$out/general"

# The GPU refuses to learn from soft labels, and an experiment stops at the first row that is refused. What is finished is kept, so the same
# command on threads does the rest.
run() {
    table=$1 store=$2
    shift 2
    for engine in cuda threads; do
        "$keyhush" experiment run "$table" --experiments "$experiments" --store "$out/$store.store" --texts "$out" --runs "$out/runs" \
            --out "$out/$table" --engine "$engine" --threads "$threads" --set local.learning_rate=0.75 "$@" || true
    done
}
run popov-table1 node
run popov-table2 trained --set local.most_tokens=4000
run popov-figure2 trained --set local.most_tokens=4000
