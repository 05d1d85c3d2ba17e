"""What every side of this benchmark does: the models, one user's tokens, the first parameters, and the passes.

One user: 8 rows of 200 tokens, read 10 at a time with carried state; after each of the 20 batches a step of SGD along
the gradient of the mean loss; then what has changed, its L2 norm, and the change scaled down to the clip.
"""

import json
import math
import sys
import time

import numpy

ROWS, STEPS, BATCHES = 8, 10, 20
TOKENS = ROWS * STEPS * BATCHES
LEARNING_RATE, CLIP = 0.5, 1.0

# The presets of crates/lm/src/model/config.rs; `dense` has a bias, `bias` is the output's.
MODELS = {
    "mcmahan2018": {
        "vocabulary": 10_000, "embedding": 96, "cell": "lstm", "hidden": 256, "projection": None, "dense": 96,
        "tied": True, "bias": False,
    },
    "gboard": {
        "vocabulary": 10_000, "embedding": 96, "cell": "cifg", "hidden": 670, "projection": 96, "dense": None,
        "tied": False, "bias": False,
    },
    "so-nwp": {
        "vocabulary": 10_004, "embedding": 96, "cell": "lstm", "hidden": 670, "projection": None, "dense": 96,
        "tied": False, "bias": True,
    },
}  # fmt: skip


def tokens(vocabulary, user):
    """[row][201] ids: inputs are the first 200, targets the last 200.

    Ids fall off as in Zipf's law, in integers only, so that any language draws the same: x is the state of a linear
    congruential generator that starts as the user's number; r = upper 31 bits of the next x chooses one of the
    ceil(log2(vocabulary)) octaves, the next r an id in it: 2^octave - 1 + r mod 2^octave. Ids beyond the vocabulary
    are drawn again, octave and all.
    """
    octaves, x = (vocabulary - 1).bit_length(), user

    def draw():
        nonlocal x
        while True:
            pair = []
            for _ in range(2):
                x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
                pair.append(x >> 33)
            octave = pair[0] % octaves
            token = 2**octave - 1 + pair[1] % 2**octave
            if token < vocabulary:
                return token

    return numpy.array([[draw() for _ in range(STEPS * BATCHES + 1)] for _ in range(ROWS)])


def shown(model):
    return model["projection"] or model["hidden"]


def shapes(model):
    """Every parameter; gates lie side by side, in the order input, (forget,) candidate, output."""
    gates = (4 if model["cell"] == "lstm" else 3) * model["hidden"]
    parts = {
        "embedding": (model["vocabulary"], model["embedding"]),
        "from_below": (model["embedding"], gates),
        "from_before": (shown(model), gates),
        "gate_bias": (gates,),
    }
    if model["projection"]:
        parts["projection"] = (model["hidden"], model["projection"])
    if model["dense"]:
        parts |= {"dense": (shown(model), model["dense"]), "dense_bias": (model["dense"],)}
    if not model["tied"]:
        parts["output"] = (model["vocabulary"], model["dense"] or shown(model))
    if model["bias"]:
        parts["output_bias"] = (model["vocabulary"],)
    return parts


def first_parameters(model):
    """Uniform in +-1 / sqrt(rows) (embeddings +-0.1), biases 0; the same for every peer."""
    random = numpy.random.default_rng(1)

    def draw(name, shape):
        if len(shape) == 1:
            return numpy.zeros(shape, numpy.float32)
        most = 0.1 if name in ("embedding", "output") else 1 / math.sqrt(shape[0])
        return random.uniform(-most, most, shape).astype(numpy.float32)

    return {name: draw(name, shape) for name, shape in shapes(model).items()}


def gflop(model):
    """Multiplications and additions of the matrix products of one user, in 10^9: each product forward and twice back."""
    weights = [shape for name, shape in shapes(model).items() if len(shape) == 2 and name not in ("embedding", "output")]
    head = model["vocabulary"] * (model["dense"] or shown(model))
    return 6 * TOKENS * (head + sum(rows * columns for rows, columns in weights)) / 1e9


def serve(train, users, about):
    """A worker: says that it is ready, then measures a pass for every line it reads.

    `train(user)` returns once all is computed: the mean loss of the first and of the last batch, and the norm.
    """
    for _ in range(2):
        outcome = train(0)
    print(json.dumps(about | {"outcome": [float(number) for number in outcome]}), flush=True)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        for user in range(users):
            train(user)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(json.dumps({"wall_ms": 1e3 * wall / users, "cpu_ms": 1e3 * cpu / users}), flush=True)
