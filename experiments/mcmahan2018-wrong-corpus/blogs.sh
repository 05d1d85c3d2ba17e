#!/bin/sh
# A wrong corpus against privacy, on real text: a model of Wikipedia and models of blogs, all measured on blogs.
#
# usage: blogs.sh WIKIPEDIA.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER
#
# WIKIPEDIA has a paragraph a line, BLOGS a post a line ({"user": ..., "text": ...}), WORDS a public list of words, the most
# frequent first. Everything goes to FOLDER. KEYHUSH names another program than the keyhush of the path.
set -eu

if [ $# -ne 4 ]; then
    echo "usage: $0 WIKIPEDIA.txt.zst BLOGS.jsonl.zst WORDS.tsv FOLDER" >&2
    exit 2
fi
wikipedia=$1 blogs=$2 words=$3 out=$4
keyhush=${KEYHUSH:-keyhush}
here=$(dirname "$0")
mkdir -p "$out"

# One public vocabulary for all: the list has no punctuation, and what is added is part of the experiment.
{ printf '%s\n' . , '!' '?' '"' "'" '(' ')' ':' ';' - '...'; cut -f1 "$words"; } > "$out/list.txt"
[ -e "$out/words.vocab" ] || "$keyhush" data vocab --from-list "$out/list.txt" --no-punctuation --size 2000 --out "$out/words.vocab" -q
[ -e "$out/blogs.store" ] || "$keyhush" data import "$blogs" --vocab "$out/words.vocab" --out "$out/blogs.store" -q

# The wrong corpus: 40,000 paragraphs, read twice.
zstd -dcq "$wikipedia" | grep . | head -n 40000 > "$out/wikipedia.txt"
[ -e "$out/wikipedia" ] || "$keyhush" pretrain --data "$out/wikipedia.txt" --vocab "$out/words.vocab" --model tiny \
    --epochs 2 --batch 16 --unroll 20 --learning-rate 1 --decay-after 1 --clip-gradients 0 --out "$out/wikipedia" -q

train() {
    name=$1
    shift
    [ -e "$out/$name" ] || "$keyhush" train "$here/blogs.toml" --set "data.path=\"$out/blogs.store\"" --out "$out/$name" -q "$@"
}
train private
train private-of-a-million --set privacy.delta=1e-7 --set 'stands_for={ population = 1_000_000, cohort = 2000 }'
train without-privacy --set privacy.mechanism=none --set privacy.noise_multiplier=

# The blogs that no model was trained on.
for model in wikipedia private/model private-of-a-million/model without-privacy/model; do
    echo "== $model"
    "$keyhush" eval --model "$out/$model" --store "$out/blogs.store" --split 100:0 --part validation
done
