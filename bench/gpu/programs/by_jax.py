"""A program of JAX."""

from __future__ import annotations

from itertools import pairwise

import jax
import numpy as np
from jax import Array, numpy, random

from bench.gpu.programs import SEED, Made

WIDTHS = (256, 1024, 1024, 64)
BATCH = 512
RATE = 0.01
UPDATES = 10  # per iteration


def train(device: str) -> Made:
    """Training of a small network, compiled by XLA."""
    del device  # JAX uses the GPU if there is one
    keys = random.split(random.PRNGKey(SEED), len(WIDTHS))
    shapes = list(pairwise(WIDTHS))
    weights = [
        random.normal(key, shape) * shape[0] ** -0.5
        for key, shape in zip(keys, shapes, strict=False)
    ]
    x = random.normal(keys[-1], (BATCH, WIDTHS[0]))
    update = jax.jit(_update)
    losses: list[float] = []

    def step() -> None:
        nonlocal weights
        for _ in range(UPDATES):
            weights, loss = update(weights, x)
        losses.append(float(loss))

    return Made(
        step=step,
        state=lambda: [np.array(losses).tobytes(), *(np.asarray(w).tobytes() for w in weights)],
    )


def _update(weights: list[Array], x: Array) -> tuple[list[Array], Array]:
    loss, slopes = jax.value_and_grad(_loss)(weights, x)
    return [w - RATE * slope for w, slope in zip(weights, slopes, strict=True)], loss


def _loss(weights: list[Array], x: Array) -> Array:
    for w in weights[:-1]:
        x = numpy.tanh(x @ w)
    return numpy.square(x @ weights[-1]).mean()
