"""Make exponax.npz: solutions of exponax, against which `physics` is checked.

Run in an environment of its own: pip install exponax==0.2.0, then python tests/golden/exponax_trajectories.py
"""

from pathlib import Path

import exponax
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)  # noqa: FBT003 -- as jax documents it

x = 2 * np.pi * np.arange(64) / 64
wave = np.cos(x) + 0.6 * np.sin(2 * x) - 0.4 * np.cos(3 * x + 1)
flame = exponax.stepper.KuramotoSivashinskyConservative(1, 22.0, 64, 0.01, order=4)

y = 2 * np.pi * np.arange(32) / 32
vortices = np.sin(y)[:, None] * np.cos(2 * y) + 0.5 * np.cos(2 * y[:, None] - y + 1) + 0.3 * np.sin(3 * y)[:, None]
flow = exponax.stepper.NavierStokesVorticity(2, 1.0, 32, 0.01, diffusivity=2e-3, order=4)

np.savez(
    Path(__file__).parent / "exponax.npz",
    wave=wave,
    wave_after_10=np.asarray(exponax.RepeatedStepper(flame, 1000)(jnp.asarray(wave)[None]))[0],
    vortices=vortices,
    vortices_after_2=np.asarray(exponax.RepeatedStepper(flow, 200)(jnp.asarray(vortices)[None]))[0],
)
