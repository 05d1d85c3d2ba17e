"""Writes the Penn Treebank so that Keyhush's tokenizer reads each of its words as one token: prepare.py FROM TO.

The treebank as language models use it is already cut into words (`n't`, `u.s.`, `short-term`), which the tokenizer would
cut again. Signs inside words become their codes (`ux2esx2e`), and `N`, which stands for any number, becomes `<num>`. No two
words become the same, so perplexities are those of the treebank itself.
"""

import pathlib
import re
import sys


def written(word):
    if word in ("<unk>", "N"):
        return {"<unk>": "<unk>", "N": "<num>"}[word]
    return re.sub("[^a-z0-9]", lambda sign: f"x{ord(sign[0]):x}", word)


def main():
    source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    became = {}
    for part in ("train", "valid", "test"):
        lines = []
        for line in (source / f"ptb.{part}.txt").read_text().splitlines():
            words = line.split()
            for word in words:
                assert became.setdefault(written(word), word) == word, f"{word} and another word become the same"
            lines.append(" ".join(map(written, words)))
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
