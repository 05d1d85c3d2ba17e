"""The masks of `keyhush pretrain`, so that a peer leaves out the same units: crates/lm/src/model/dropout.rs in PyTorch."""

import torch

BLOCK, PLACE = 16, 1024  # words of a block of the cipher; words to a multiple of which a place is filled up
ROUND = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))  # fmt: skip


def words(content):
    """Bytes as 32-bit words, little endian, in the range of int32."""
    unsigned = (int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content), 4))
    return [word - 2**32 if word >= 2**31 else word for word in unsigned]


def keystream(key, nonce, blocks, device):
    """So many blocks of ChaCha20 (RFC 8439) as int32, whose sums wrap."""
    constant = words(b"expand 32-byte k") + words(key)
    start = [torch.full((blocks,), word, dtype=torch.int32, device=device) for word in constant]
    start.append(torch.arange(blocks, dtype=torch.int32, device=device))
    start += [torch.full((blocks,), word, dtype=torch.int32, device=device) for word in words(nonce)]
    x = list(start)

    def turned(value, by):
        return (value << by) | ((value >> (32 - by)) & ((1 << by) - 1))

    for _ in range(10):
        for a, b, c, d in ROUND:
            x[a] = x[a] + x[b]
            x[d] = turned(x[d] ^ x[a], 16)
            x[c] = x[c] + x[d]
            x[b] = turned(x[b] ^ x[c], 12)
            x[a] = x[a] + x[b]
            x[d] = turned(x[d] ^ x[a], 8)
            x[c] = x[c] + x[d]
            x[b] = turned(x[b] ^ x[c], 7)
    return torch.stack([now + before for now, before in zip(x, start)], 1).flatten()


class Masks:
    """Draws what each layer's input and the last one's output are multiplied with, a step after the other."""

    def __init__(self, seed, rate, widths, device):
        self.key = (seed.to_bytes(8, "little") + b"keyhush dropout v1").ljust(32, b"\0")
        self.rate, self.widths, self.device, self.step = rate, widths, device, 0

    def draw(self, steps, rows):
        """A tensor [step][row][unit] for every place."""
        sizes = [steps * rows * width for width in self.widths]
        places = [-(-size // PLACE) * PLACE for size in sizes]
        nonce = self.step.to_bytes(8, "little").ljust(12, b"\0")
        self.step += 1
        stream = keystream(self.key, nonce, sum(places) // BLOCK, self.device)
        drawn = ((stream >> 8) & 0xFFFFFF) >= int(self.rate * 2**24)
        factors = drawn.float() / (1 - self.rate)
        parts = zip(factors.split(places), sizes, self.widths)
        return [part[:size].view(steps, rows, width) for part, size, width in parts]
