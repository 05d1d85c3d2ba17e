#!/bin/sh
# Tables 1 and 2 of Popov et al. 2018 on real text: Wikipedia is standard English, blogs are the users' language.
#
# usage: wikipedia-blogs.sh WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER
#
# WIKIPEDIA has a paragraph a line, BLOGS a post a line ({"user": ..., "text": ...}, grouped by user), WORDS a public list of words, the
# most frequent first. Everything goes to FOLDER; what is there is not made again. KEYHUSH names another program than the keyhush of the
# path. Each command takes minutes on one thread.
set -eu

if [ $# -ne 5 ]; then
    echo "usage: $0 WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER" >&2
    exit 2
fi
wikipedia=$1 wikipedia_test=$2 blogs=$3 words=$4 out=$5
keyhush=${KEYHUSH:-keyhush}
here=$(dirname "$0")
mkdir -p "$out"

# One public vocabulary for all.
{ printf '%s\n' . , '!' '?' '"' "'" '(' ')' ':' ';' - '...'; cut -f1 "$words"; } > "$out/list.txt"
[ -e "$out/words.vocab" ] || "$keyhush" data vocab --from-list "$out/list.txt" --no-punctuation --size 5000 --out "$out/words.vocab" -q

# Standard English: 25,000 paragraphs to learn from and to rehearse, 600 to measure on.
[ -e "$out/general.txt" ] || zstd -dcq "$wikipedia" | grep . | head -n 25000 > "$out/general.txt"
[ -e "$out/standard.test.txt" ] || zstd -dcq "$wikipedia_test" | grep . | head -n 600 > "$out/standard.test.txt"

# Users: the posts of the last people are measured on, those of the others are trained on; by person, and as one node.
if [ ! -e "$out/users.test.txt" ]; then
    zstd -dcq "$blogs" | head -n 64000 > "$out/trained.jsonl"
    zstd -dcq "$blogs" | tail -n 1000 | sed 's/.*"text": *"//; s/"}$//; s/\\[nrt]/ /g; s/\\"/"/g' | head -n 250 > "$out/users.test.txt"
fi
[ -e "$out/node.jsonl" ] || head -n 2000 "$out/trained.jsonl" | sed 's/"user": *"[^"]*"/"user": "node"/' > "$out/node.jsonl"
for store in trained node; do
    [ -e "$out/$store.store" ] || "$keyhush" data import "$out/$store.jsonl" --vocab "$out/words.vocab" --out "$out/$store.store" -q
done

# The general model, and the n-gram that it replaces.
[ -e "$out/general" ] || "$keyhush" pretrain --data "$out/general.txt" --vocab "$out/words.vocab" --model tiny \
    --epochs 2 --batch 16 --unroll 20 --learning-rate 1 --decay-after 1 --clip-gradients 0 --out "$out/general" -q
[ -e "$out/ngram" ] || "$keyhush" ngram --text "$out/general.txt" --vocab "$out/words.vocab" --order 3 --out "$out/ngram"

fine_tune() {
    name=$1 store=$2
    shift 2
    [ ! -e "$out/$name/model" ] || return 0
    if [ -e "$out/$name/config.toml" ]; then
        "$keyhush" train --resume "$out/$name" --threads 1 -q
        return 0
    fi
    "$keyhush" train "$here/../common/popov2018.toml" --set data.kind=store --set data.dialect= \
        --set data.posts_per_user= --set "data.path=\"$out/$store.store\"" --set data.held_out_per_mille=0 --set model.preset= \
        --set "model.from=\"$out/general\"" --set 'model.public="Wikipedia"' --threads 1 --out "$out/$name" -q "$@"
}
node='--set participation.population=1 --set participation.cohort=1'
text="finetune.public_text=\"$out/general.txt\""
for lambda in 0.25 0.5 0.75; do
    fine_tune "rehearsal-$lambda" node $node --set finetune.kind=rehearsal --set finetune.lambda=$lambda --set "$text" \
        --set finetune.general_tokens=400000
    fine_tune "without-forgetting-$lambda" node $node --set finetune.kind=without-forgetting --set finetune.lambda=$lambda
done
fine_tune retraining node $node --set finetune.kind=retraining

# Both test sets, and the first 200 of each for keystrokes.
for set in standard users; do head -n 200 "$out/$set.test.txt" > "$out/$set.200.txt"; done
measure() {
    for model; do
        name=$(echo "$model" | tr / -)
        [ -s "$out/$name.json" ] || "$keyhush" eval --model "$out/$model" --text "$out/standard.test.txt" \
            --text "$out/users.test.txt" --threads 1 --json > "$out/$name.json"
        [ -s "$out/$name.200.json" ] || "$keyhush" eval --model "$out/$model" --text "$out/standard.200.txt" \
            --text "$out/users.200.txt" --threads 1 --json > "$out/$name.200.json"
        echo "== $model"
        tr ',{' '\n\n' < "$out/$name.json" | grep -E '"(perplexity_without_unk|keystroke_saving|average_perplexity_without_unk)"'
        echo "   of the first 200"
        tr ',{' '\n\n' < "$out/$name.200.json" | grep '"keystroke_saving"'
    done
}
measure ngram general rehearsal-0.25/model rehearsal-0.5/model rehearsal-0.75/model without-forgetting-0.25/model \
    without-forgetting-0.5/model without-forgetting-0.75/model retraining/model

# Table 2: ten nodes a round, each with half of general text.
queue='--set local.most_tokens=800 --set finetune.kind=rehearsal --set finetune.lambda=0.5 --set finetune.general_tokens=200000'
people=$(cut -d'"' -f4 "$out/trained.jsonl" | sort -u | wc -l)
fine_tune averaging-1 trained $queue --set "$text" --set participation.population=$people
fine_tune averaging-300 trained $queue --set "$text" --set participation.population=$people --set rounds=300
fine_tune averaging-300-retraining trained --set local.most_tokens=800 --set finetune.kind=retraining \
    --set participation.population=$people --set rounds=300
measure averaging-1/model averaging-300/model averaging-300-retraining/model
