"""What every side of this benchmark does: the models, one user's tokens, the first parameters, and the passes.

One user: 8 rows of 200 tokens, read 10 at a time with carried state (other cases say otherwise); after each of the 20
batches a step of SGD along the gradient of the mean loss; then what has changed, its L2 norm, and the change scaled down to the clip.
"""

import json
import math
import sys
import time

import numpy

LEARNING_RATE, CLIP = 0.5, 1.0

SHAPE = {"rows": 8, "steps": 10, "batches": 20}

# The presets of crates/lm/src/model/config.rs; `dense` has a bias, `bias` is the output's.
PRESETS = {
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

# What is measured: the presets, and one of them with other vocabularies, batches and unrolls.
MODELS = {name: {"preset": name} | SHAPE | preset for name, preset in PRESETS.items()} | {
    name: {"preset": "mcmahan2018"} | SHAPE | PRESETS["mcmahan2018"] | change
    for name, change in {
        "4,003 words, 5 x 7": {"vocabulary": 4_003, "rows": 5, "steps": 7},
        "10,000 words, 16 x 20": {"rows": 16, "steps": 20, "batches": 5},
        "30,011 words, 8 x 10": {"vocabulary": 30_011, "batches": 7},
        "10,000 words, 1 x 20": {"rows": 1, "steps": 20},
    }.items()
}


def token_count(model):
    return model["rows"] * model["steps"] * model["batches"]


def tokens(model, user):
    """Inputs and targets of a user, each [batch][step][row].

    The tokens are those of `keyhush bench local-training`: token i is V^u - 1 for a u in [0, 1) that is a hash of i and
    the user, which is Zipf's law. Rows are consecutive parts of them; a target is the token that follows.
    """
    vocabulary, count = model["vocabulary"], token_count(model)

    def token(i):
        x = ((i ^ user * 0x9E3779B9) * 0x85EBCA6B) % 2**32
        x = ((x ^ x >> 15) * 0xC2B2AE35) % 2**32
        return min(int(vocabulary ** ((x >> 8) / 2**24)) - 1, vocabulary - 1)

    read = numpy.array([token(i) for i in range(count + 1)])

    def batches(part):
        shape = model["rows"], model["batches"], model["steps"]
        return numpy.ascontiguousarray(part.reshape(shape).transpose(1, 2, 0))

    return batches(read[:-1]), batches(read[1:])


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
    """10^9 multiplications and additions of one user's matrix products: each product forward and twice back."""
    matrices = {name: math.prod(shape) for name, shape in shapes(model).items() if len(shape) == 2}
    tables = matrices.pop("embedding"), matrices.pop("output", 0)
    return 6 * token_count(model) * (sum(matrices.values()) + (tables[0] if model["tied"] else tables[1])) / 1e9


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
