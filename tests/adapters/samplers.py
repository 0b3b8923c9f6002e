"""BlackJAX programs, each with what BlackJAX itself says of every step: the adapters' conformance table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from blackjax.adaptation.base import AdaptationInfo

KEY = jax.random.key(3)
STEPS = 24
CHAINS = 4
# A tiny loop is seen in a copy of the whole loop, which may drift from it by last bits: these are not tiny.
DIMENSIONS = 20
START = jnp.linspace(-0.5, 0.5, DIMENSIONS)
STARTS = jax.random.normal(jax.random.key(7), (CHAINS, DIMENSIONS))


def density(x: Any) -> Any:
    """A Gaussian, one direction three times as wide as another."""
    return -0.5 * jnp.sum((x * jnp.linspace(1.0, 3.0, DIMENSIONS)) ** 2)


class Said(NamedTuple):
    """What a program returns, what BlackJAX says of each step (and chain) by column, and what it ends with."""

    result: Any
    by_column: dict[str, Any]
    last: dict[str, Any] = {}  # noqa: RUF012 - never changed


_INFO = {
    "acceptance_rate": "acceptance_rate",
    "is_divergent": "is_divergent",
    "tree_depth": "num_trajectory_expansions",
    "num_integration_steps": "num_integration_steps",
    "energy": "energy",
    "energy_change": "energy_change",
    "is_accepted": "is_accepted",
    "num_shrink": "num_shrink",
}


def of_info(info: Any) -> dict[str, Any]:
    """Columns that an info has."""
    found = {column: getattr(info, field) for column, field in _INFO.items() if hasattr(info, field)}
    return found | ({"is_divergent": ~info.nonans} if hasattr(info, "nonans") else {})


def of_warmup(out: Any) -> Said:
    """What an adaptation that returns an `AdaptationInfo` says."""
    info: AdaptationInfo = out[1]
    said = of_info(info.info) | {"logdensity": info.state.logdensity}
    adaptation = info.adaptation_state
    for column, field in (("step_size", "step_size"), ("trajectory_length", "trajectory_length")):
        if hasattr(adaptation, field):
            said[column] = getattr(adaptation, field)
    if hasattr(adaptation, "ss_state"):
        said["step_size_avg"] = np.exp(adaptation.ss_state.log_step_size_avg)
    if "step_size" in said and said["step_size"].shape != info.state.logdensity.shape:
        # What chains share is said once for all, of folds once for each.
        chains = info.state.logdensity.shape[1]
        shared = [name for name in ("step_size", "step_size_avg", "trajectory_length") if name in said]
        said |= {
            name: np.repeat(said[name].reshape(len(said[name]), -1), chains // said[name][0].size, 1) for name in shared
        }
    matrix = getattr(adaptation, "inverse_mass_matrix", None)
    if hasattr(matrix, "ndim") and matrix.ndim == 2:
        said["mass_matrix_min"], said["mass_matrix_max"] = matrix.min(1), matrix.max(1)
    return Said(jax.tree.leaves(out[0].state), said)


def _hmc(**options: Any) -> Any:
    return blackjax.window_adaptation(blackjax.hmc, density, num_integration_steps=3, **options)


def low_rank() -> Said:
    return of_warmup(
        blackjax.window_adaptation_low_rank(blackjax.hmc, density, num_integration_steps=3, max_rank=1).run(
            KEY, START, STEPS
        )
    )


def staged(metric: str) -> Said:
    made = blackjax.staged_adaptation(blackjax.hmc, density, metric=metric, num_integration_steps=3)
    return of_warmup(made.run(KEY, START, STEPS))


def staged_chains() -> Said:
    made = blackjax.staged_adaptation(
        blackjax.hmc, density, metric="auto", max_grad_budget=2000, n_chains=CHAINS, num_integration_steps=3
    )
    return of_warmup(made.run(KEY, STARTS, STEPS))


def pathfinder() -> Said:
    made = blackjax.pathfinder_adaptation(blackjax.hmc, density, num_integration_steps=3)
    return of_warmup(made.run(KEY, START, STEPS))


def pathfinder_chains() -> Said:
    made = blackjax.pathfinder_adaptation(blackjax.hmc, density, num_chains=CHAINS, num_integration_steps=3)
    return _by_step(of_warmup(made.run(KEY, START, STEPS)))


def meads() -> Said:
    return of_warmup(blackjax.meads_adaptation(density, CHAINS * 2, num_folds=2).run(KEY, jnp.tile(STARTS, (2, 1)), 8))


def chees() -> Said:
    return of_warmup(blackjax.chees_adaptation(density, CHAINS).run(KEY, STARTS, 0.1, optax.adam(0.01), 8))


def _by_step(said: Said) -> Said:
    """What is said of each chain, for each step."""
    return said._replace(by_column={name: np.swapaxes(value, 0, 1) for name, value in said.by_column.items()})


def vmapped() -> Said:
    made = _hmc()
    return _by_step(of_warmup(jax.vmap(lambda key, x: made.run(key, x, STEPS))(jax.random.split(KEY, CHAINS), STARTS)))


def mclmc() -> Said:
    kernel = blackjax.mcmc.mclmc.build_kernel()
    state = blackjax.mcmc.mclmc.init(START, density, jax.random.key(1))
    out = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=kernel,
        num_steps=100,
        state=state,
        rng_key=KEY,
        logdensity_fn=density,
        diagonal_preconditioning=True,
    )
    return Said(jax.tree.leaves(out), {}, {"step_size": out[1].step_size})


def adjusted_mclmc() -> Said:
    kernel = blackjax.adjusted_mclmc_dynamic.build_kernel(
        integration_steps_fn=lambda key, avg: jnp.ceil(jax.random.uniform(key) * (2 * avg - 1)).astype(jnp.int32)
    )
    state = blackjax.adjusted_mclmc_dynamic.init(START, density, jax.random.key(1))
    out = blackjax.adjusted_mclmc_find_L_and_step_size(
        kernel, num_steps=100, state=state, rng_key=KEY, logdensity_fn=density, target=0.8, frac_tune3=0.0
    )
    adaptation = [each for each in jax.tree.leaves(out[1])]
    return Said([out[0].position, *adaptation], {})


WARMUPS: dict[str, Callable[[], Said]] = {
    "window, diagonal": lambda: of_warmup(_hmc().run(KEY, START, STEPS)),
    "window, dense": lambda: of_warmup(_hmc(is_mass_matrix_diagonal=False).run(KEY, START, STEPS)),
    "window, nuts": lambda: of_warmup(
        blackjax.window_adaptation(blackjax.nuts, density, max_num_doublings=3).run(KEY, START, STEPS)
    ),
    "window, low rank": low_rank,
    "staged, fisher": lambda: staged("fisher_diag"),
    "staged, chains": staged_chains,
    "pathfinder": pathfinder,
    "pathfinder, chains": pathfinder_chains,
    "meads": meads,
    "chees": chees,
    "vmap of window": vmapped,
    "mclmc": mclmc,
    "adjusted mclmc": adjusted_mclmc,
}

# --- Sampling ------------------------------------------------------------------------------------------------

ALGORITHMS: dict[str, Callable[[], Any]] = {
    "nuts": lambda: blackjax.nuts(density, 0.3, jnp.ones(DIMENSIONS), max_num_doublings=3),
    "hmc": lambda: blackjax.hmc(density, 0.3, jnp.ones(DIMENSIONS), 3),
    "dynamic hmc": lambda: blackjax.dynamic_hmc(density, 0.3, jnp.ones(DIMENSIONS)),
    "ghmc": lambda: blackjax.ghmc(density, 0.3, jnp.ones(DIMENSIONS), 0.8, 0.5),
    "mclmc": lambda: blackjax.mclmc(density, 1.0, 0.3),
    "adjusted mclmc": lambda: blackjax.adjusted_mclmc(density, 0.3, num_integration_steps=3),
    "mala": lambda: blackjax.mala(density, 0.1),
    "barker": lambda: blackjax.barker(density, 0.3),
    "random walk": lambda: blackjax.additive_step_random_walk(
        density, blackjax.mcmc.random_walk.normal(jnp.ones(DIMENSIONS))
    ),
    "slice": lambda: blackjax.slice_sampling(density),
    "slices along coordinates": lambda: blackjax.coordinate_slice(density),
    "latent Gaussian": lambda: blackjax.mgrad_gaussian(density, jnp.eye(DIMENSIONS), step_size=0.3),
    "GIST": lambda: blackjax.gist_step_size(density, jnp.ones(DIMENSIONS), 0.3, num_integration_steps=3),
    "elliptical slice": lambda: blackjax.elliptical_slice(
        density, mean=jnp.zeros(DIMENSIONS), cov=jnp.ones(DIMENSIONS)
    ),
}
# Those whose state is not to be had where their info is.
WITHOUT_STATE = ("GIST",)


def started(algorithm: Any, position: Any = START) -> Any:
    """A chain's first state."""
    return algorithm.init(position, jax.random.key(2))


def sampled(name: str) -> Said:
    """A user's own scan over the step."""
    algorithm = ALGORITHMS[name]()

    def one_step(state: Any, key: Any) -> Any:
        state, info = algorithm.step(key, state)
        return state, (state, info)

    _, (states, infos) = jax.lax.scan(one_step, started(algorithm), jax.random.split(KEY, STEPS))
    said = of_info(infos)
    if name not in WITHOUT_STATE:
        said |= {"logdensity": states.logdensity, "position_norm": jnp.linalg.norm(states.position, axis=-1)}
    return Said(jax.tree.leaves(states.position), said)
