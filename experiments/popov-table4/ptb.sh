#!/bin/sh
# The Penn Treebank as a store: four nodes with a quarter of the training text each, and the test text, which is held out.
#
# usage: ptb.sh TRAIN.txt TEST.txt STORE
#
# Both have a sentence a line. The words are those of the training text, which is public. KEYHUSH names another program than the keyhush of
# the path. Then: keyhush experiment run popov-table4 --store STORE
set -eu

if [ $# -ne 3 ]; then
    echo "usage: $0 TRAIN.txt TEST.txt STORE" >&2
    exit 2
fi
train=$1 test=$2 store=$3
keyhush=${KEYHUSH:-keyhush}
lines=$(wc -l < "$train")

# Who is held out follows from the names: "test 4" is, at 100 of a thousand, and the nodes are not.
posts() {
    sed 's/\\/\\\\/g; s/"/\\"/g; s/^ *//; s/ *$//' "$1" | awk -v lines="$2" -v user="$3" 'length {
        name = lines ? "node " (int((NR - 1) * 4 / lines) + 1) : user
        printf "{\"user\": \"%s\", \"text\": \"%s\"}\n", name, $0
    }'
}
{ posts "$train" "$lines" ""; posts "$test" 0 "test 4"; } > "$store.jsonl"
tr -s ' ' '\n' < "$train" | grep . | sort | uniq -c | sort -k1,1nr -k2 | awk '{ print $2 }' > "$store.words"
"$keyhush" data vocab --from-list "$store.words" --no-punctuation --size 2000 --out "$store.vocab" -q
"$keyhush" data import "$store.jsonl" --vocab "$store.vocab" --out "$store" -q
