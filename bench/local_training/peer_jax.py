"""Local training in JAX on one thread, as a worker of bench.py: python peer_jax.py MODEL WAY USERS.

A user's whole training is one jitted function, a scan over batches. The steps of a batch are a scan too ("scan") or
written out ("unrolled").
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import work  # noqa: E402


def recurrence(model, p, below, state, unroll):
    def step(state, now):
        cells, before = state
        total = now + before @ p["from_before"]
        if model["cell"] == "lstm":
            admit, keep, candidate, show = jnp.split(total, 4, -1)
            cells = jax.nn.sigmoid(keep) * cells + jax.nn.sigmoid(admit) * jnp.tanh(candidate)
        else:
            admit, candidate, show = jnp.split(total, 3, -1)
            admit = jax.nn.sigmoid(admit)
            cells = cells + admit * (jnp.tanh(candidate) - cells)
        before = jax.nn.sigmoid(show) * jnp.tanh(cells)
        if model["projection"]:
            before = before @ p["projection"]
        return (cells, before), before

    return jax.lax.scan(step, state, below, unroll=unroll)


def mean_loss(model, unroll, p, state, inputs, targets):
    below = p["embedding"][inputs] @ p["from_below"] + p["gate_bias"]
    state, x = recurrence(model, p, below, state, unroll)
    if model["dense"]:
        x = x @ p["dense"] + p["dense_bias"]
    logits = x @ p["embedding" if model["tied"] else "output"].T
    if model["bias"]:
        logits = logits + p["output_bias"]
    chosen = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(logits, -1) - chosen).mean(), state


def trainer(model, way):
    """A function of a user's number that trains on the user's tokens."""
    first = {name: jnp.asarray(value) for name, value in work.first_parameters(model).items()}
    unroll = model["steps"] if way == "unrolled" else 1

    @jax.jit
    def train_on(first, inputs, targets):
        def batch(carried, tokens):
            p, state = carried
            of = jax.value_and_grad(lambda p: mean_loss(model, unroll, p, state, *tokens), has_aux=True)
            (loss, state), gradient = of(p)
            p = jax.tree.map(lambda value, g: value - work.LEARNING_RATE * g, p, gradient)
            return (p, state), loss

        state = (jnp.zeros((model["rows"], model["hidden"])), jnp.zeros((model["rows"], work.shown(model))))
        (p, _), losses = jax.lax.scan(batch, (first, state), (inputs, targets))
        change = jax.tree.map(jnp.subtract, p, first)
        norm = jnp.sqrt(sum(jnp.sum(part * part) for part in jax.tree.leaves(change)))
        scale = jnp.minimum(1.0, work.CLIP / norm)
        return jax.tree.map(lambda part: scale * part, change), losses[0], losses[-1], norm

    data = {}

    def train(user):
        if user not in data:
            data[user] = [jnp.asarray(part) for part in work.tokens(model, user)]
        return jax.block_until_ready(train_on(first, *data[user]))[1:]

    return train


def main():
    name, way, users = sys.argv[1], sys.argv[2], int(sys.argv[3])
    train = trainer(work.MODELS[name], way)
    for user in range(users):
        train(user)
    work.serve(train, users, {"version": jax.__version__})


if __name__ == "__main__":
    main()
