#!/bin/sh
# Tables 1 and 2 and Figure 2 of Popov et al. 2018 on real text: Wikipedia is standard English, blogs are the users' language.
#
# usage: wikipedia-blogs.sh WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER
#
# WIKIPEDIA has a paragraph a line and an empty line between articles, BLOGS a post a line ({"user": ..., "text": ...}, grouped by user),
# WORDS a public list of words, the most frequent first. Everything goes to FOLDER; what is there is not made again. KEYHUSH names another
# program than the keyhush of the path. On one thread the general model takes about 15 minutes, and each experiment about 10.
set -eu

if [ $# -ne 5 ]; then
    echo "usage: $0 WIKIPEDIA.train.txt.zst WIKIPEDIA.test.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER" >&2
    exit 2
fi
wikipedia=$1 wikipedia_test=$2 blogs=$3 words=$4 out=$5
keyhush=${KEYHUSH:-keyhush}
experiments=$(dirname "$0")/..
mkdir -p "$out"

# One public vocabulary for all.
{ printf '%s\n' . , '!' '?' '"' "'" '(' ')' ':' ';' - '...'; cut -f1 "$words"; } > "$out/list.txt"
[ -e "$out/words.vocab" ] || "$keyhush" data vocab --from-list "$out/list.txt" --no-punctuation --size 5000 --out "$out/words.vocab" -q

# Standard English: 25,000 paragraphs to learn from and to rehearse, 600 to measure on.
[ -e "$out/general.txt" ] || zstd -dcq "$wikipedia" | grep . | head -n 25000 > "$out/general.txt"
[ -e "$out/standard.test.txt" ] || zstd -dcq "$wikipedia_test" | awk 'NF { n++ } n > 600 { exit } { print }' > "$out/standard.test.txt"

# Users: some of the last people are measured on, the first are trained on; by person, and as one node.
[ -e "$out/users.test.jsonl" ] || zstd -dcq "$blogs" | tail -n 1000 | head -n 250 > "$out/users.test.jsonl"
[ -e "$out/trained.jsonl" ] || zstd -dcq "$blogs" | head -n 64000 > "$out/trained.jsonl"
[ -e "$out/node.jsonl" ] || head -n 2000 "$out/trained.jsonl" | sed 's/"user": *"[^"]*"/"user": "node"/' > "$out/node.jsonl"
for store in trained node; do
    [ -e "$out/$store.store" ] || "$keyhush" data import "$out/$store.jsonl" --vocab "$out/words.vocab" --out "$out/$store.store" -q
done

# The general model: 720,000 parameters.
[ -e "$out/general/model.safetensors" ] || "$keyhush" pretrain --data "$out/general.txt" --vocab "$out/words.vocab" --model tiny \
    --hidden 192 --embedding 96 --epochs 5 --batch 16 --unroll 20 --learning-rate 1 --decay-after 3 --clip-gradients 5 --out "$out/general" -q

# The tables, with one run of each row; an expectation that does not hold ends none of them early.
for table in "popov-table1 node" "popov-table2 trained" "popov-figure2 trained"; do
    "$keyhush" experiment run "${table% *}" --experiments "$experiments" --store "$out/${table#* }.store" --texts "$out" \
        --runs "$out/runs" --threads 1 --seeds 1 || true
done
