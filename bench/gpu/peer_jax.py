"""JAX as a simulator such as FedJAX would use it: vmap over users, scan over local steps, one jit for the round.

Prints one JSON line: milliseconds of a round of the users, the median of the rounds, in float32 or TF32. The models are the presets
of Keyhush, but for the unit norms of mcmahan2018's embeddings, which JAX is spared.
"""
import argparse, json, os, time

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
import jax.numpy as jnp
from jax import lax

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=["mcmahan2018", "gboard", "so-nwp"], required=True)
parser.add_argument("--precision", choices=["float32", "tensorfloat32"], required=True)
parser.add_argument("--users", type=int, default=100)
parser.add_argument("--rounds", type=int, default=5)
args = parser.parse_args()
B, T, S = 8, 10, 20
V, E, H, D = {"mcmahan2018": (10_000, 96, 256, 96), "gboard": (10_000, 96, 670, 96), "so-nwp": (10_004, 96, 670, 96)}[args.model]
GATES = 3 if args.model == "gboard" else 4
SHOWN = 96 if args.model == "gboard" else H


def parameters():
    key = iter(jax.random.split(jax.random.PRNGKey(0), 8))
    normal = lambda scale, *shape: jax.random.normal(next(key), shape) * scale
    p = dict(emb=normal(0.1, V, E), wx=normal(0.06, E, GATES * H), wh=normal(0.06, SHOWN, GATES * H), b=jnp.zeros(GATES * H))
    if args.model == "gboard":
        return p | dict(proj=normal(0.06, H, SHOWN), out=normal(0.1, V, SHOWN))
    p |= dict(dense=normal(0.06, H, D), dense_bias=jnp.zeros(D))
    return p if args.model == "mcmahan2018" else p | dict(out=normal(0.1, V, D), out_bias=jnp.zeros(V))


def loss(p, state, x, y):
    entered = jnp.swapaxes(p["emb"][x] @ p["wx"] + p["b"], 0, 1)

    def cell(carried, now):
        h, c = carried
        gates = jnp.split(now + h @ p["wh"], GATES, -1)
        if GATES == 3:
            i, g, o = jax.nn.sigmoid(gates[0]), jnp.tanh(gates[1]), jax.nn.sigmoid(gates[2])
            f = 1 - i
        else:
            i, f, g, o = jax.nn.sigmoid(gates[0]), jax.nn.sigmoid(gates[1]), jnp.tanh(gates[2]), jax.nn.sigmoid(gates[3])
        c = f * c + i * g
        h = o * jnp.tanh(c)
        if "proj" in p:
            h = h @ p["proj"]
        return (h, c), h

    state, shown = lax.scan(cell, state, entered)
    out = shown @ p["dense"] + p["dense_bias"] if "dense" in p else shown
    logits = out @ p.get("out", p["emb"]).T
    if "out_bias" in p:
        logits = logits + p["out_bias"]
    log = jax.nn.log_softmax(logits)
    return -jnp.take_along_axis(log, jnp.swapaxes(y, 0, 1)[..., None], -1).mean(), state


def user(p, tokens):
    state = (jnp.zeros((B, SHOWN)), jnp.zeros((B, H)))
    xs = tokens[:, :-1].reshape(B, S, T).swapaxes(0, 1)
    ys = tokens[:, 1:].reshape(B, S, T).swapaxes(0, 1)

    def step(carried, xy):
        q, state = carried
        (l, state), gradient = jax.value_and_grad(loss, has_aux=True)(q, state, *xy)
        return (jax.tree.map(lambda a, g: a - 0.5 * g, q, gradient), state), l

    (q, _), _ = lax.scan(step, (p, state), (xs, ys))
    d = jax.tree.map(lambda a, b: a - b, q, p)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(d)))
    return jax.tree.map(lambda x: x * jnp.minimum(1.0, 1.0 / norm), d)


@jax.jit
def a_round(p, tokens):
    return jax.tree.map(lambda x: x.sum(0), jax.vmap(user, in_axes=(None, 0))(p, tokens))


with jax.default_matmul_precision(args.precision):
    p = parameters()
    # Zipf's law, as Keyhush's bench has it.
    u = jax.random.uniform(jax.random.PRNGKey(1), (args.users, B, T * S + 1))
    tokens = jnp.minimum((V**u - 1).astype(jnp.int32), V - 1)
    jax.block_until_ready(a_round(p, tokens))
    times = []
    for _ in range(args.rounds):
        began = time.perf_counter()
        jax.block_until_ready(a_round(p, tokens))
        times.append(time.perf_counter() - began)
print(json.dumps({"peer": f"jax {jax.__version__}", "model": args.model, "precision": args.precision, "users": args.users,
                  "ms_per_round": sorted(times)[len(times) // 2] * 1e3}))
