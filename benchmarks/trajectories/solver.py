"""The program that makes `ks.npz`: 160 trajectories of the Kuramoto-Sivashinsky equation by exponax, L = 22.

It runs in exponax's environment: `python -m benchmarks.trajectories.solver FILE`. The solver takes 20 steps per frame;
every trajectory begins 200 units of time after five random waves.
"""

from __future__ import annotations

import sys

import exponax
import jax
import numpy as np

LENGTH, POINTS = 22.0, 128
TRAJECTORIES, FRAMES, INTERVAL, STEPS = 160, 40, 2.0, 20
TRANSIENT = 100  # frames
WAVES = 5


def main(path: str) -> None:
    """Write `u` [trajectory, 1 + frame, point] to a file."""
    jax.config.update("jax_enable_x64", val=True)  # type: ignore[no-untyped-call] # jax has no annotation there
    step = exponax.stepper.KuramotoSivashinskyConservative(1, LENGTH, POINTS, INTERVAL / STEPS)
    frame = exponax.repeat(step, STEPS)
    waves = exponax.ic.RandomTruncatedFourierSeries(1, cutoff=WAVES)
    start = jax.vmap(lambda key: waves(POINTS, key=key))(jax.random.split(jax.random.PRNGKey(0), TRAJECTORIES))
    settled = jax.jit(jax.vmap(exponax.repeat(frame, TRANSIENT)))(start)
    found = jax.jit(jax.vmap(exponax.rollout(frame, FRAMES, include_init=True)))(settled)
    np.savez(path, u=np.asarray(found)[:, :, 0].astype(np.float32))


if __name__ == "__main__":
    main(sys.argv[1])
