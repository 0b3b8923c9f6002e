"""What is told of a sampler that goes wrong: on rows made by hand, and on planted faults."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtap_blackjax as jtb
from jaxtap.internal import Row

TOTAL = 1000


@pytest.fixture(autouse=True)
def blackjax_defaults() -> Iterator[None]:
    """BlackJAX is not written for the strict settings of the other tests."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def told(wires: Any, steps: Any, lanes: int = 0) -> list[tuple[int, str]]:
    """Step and message of what is told of rows, each a dictionary of columns (or one for each chain)."""
    looks = [wire.start() for wire in (wires if isinstance(wires, tuple) else (wires,))]
    found: list[tuple[int, str]] = []
    for i, values in enumerate(steps):
        each = values if isinstance(values, list) else [values]
        for lane, own in enumerate(each):
            row = Row("scan[0]", i, TOTAL, (lane,) if len(each) > 1 else (), (), 0, 0.0, own)
            found += [(trip.row.step, trip.message) for look in looks for trip in look(row)]
    return found


def column(name: str, values: Any) -> list[dict[str, Any]]:
    return [{name: value} for value in values]


def depth(values: Any) -> list[dict[str, Any]]:
    return [{"tree_depth": v, "tree_depth_limit": 6, "tree_depth_saturated": v >= 6} for v in values]


def chains(name: str, odd: float, steps: int) -> list[list[dict[str, float]]]:
    return [[{name: value} for value in (1.0, 1.5, odd, 0.8)] for _ in range(steps)]


NOISE = np.random.default_rng(0).normal(size=400)
CASES = {
    "divergence, once": (jtb.divergence(), column("is_divergent", [False, True, False, True]), [1]),
    "divergence rate": (jtb.divergence_rate(window=10, rate=0.2), column("is_divergent", [0, 1, 0] * 5), [9]),
    "no divergence": (jtb.divergence_rate(), column("is_divergent", [False] * 300), []),
    "depth in a row": (jtb.tree_depth_saturated()[0], depth([6] * 9 + [5] + [6] * 10), [19]),
    "depth often": (jtb.tree_depth_saturated()[1], depth([6 if i % 20 == 0 else 3 for i in range(120)]), [99]),
    "depth below its limit": (jtb.tree_depth_saturated(), depth([5] * 300), []),
    "step size collapsed": (jtb.step_size_collapsed(), column("step_size", [0.1, 1.2e-9, 1e-10, 0.1]), [1]),
    "step size exploded": (jtb.step_size_collapsed(), column("step_size", [0.1, 1e4, 0.1, float("nan")]), [1, 3]),
    "acceptance": (jtb.acceptance_off_target(window=5), column("acceptance_rate", [0.8] * 5 + [0.1] * 5), [6]),
    "acceptance on target": (jtb.acceptance_off_target(0.5), column("acceptance_rate", [0.6] * 300), []),
    "logdensity": (jtb.non_finite(), column("logdensity", [-1.0, float("nan"), float("-inf"), -1.0]), [1]),
    "gradient": (jtb.non_finite(), column("gradient_norm", [1.0, float("inf")]), [1]),
    "frozen": (jtb.frozen(), column("position_norm", [1.0, 2.0] + [3.0] * 60), [51]),
    "moving": (jtb.frozen(), column("position_norm", NOISE), []),
    "mass matrix": (jtb.mass_matrix_degenerate(), column("mass_matrix_condition", [1.0, 1e12, -3.0]), [1]),
    "mass matrix unmoved": (
        jtb.mass_matrix_unmoved(),
        [{"mass_matrix_max": 1.0, "stage": "window end" if i == 5 else "slow"} for i in range(9)],
        [5],
    ),
    "mass matrix moved": (
        jtb.mass_matrix_unmoved(),
        [{"mass_matrix_max": 1.0 + (i > 4), "stage": "window end" if i == 5 else "slow"} for i in range(9)],
        [],
    ),
    "step size apart": (jtb.chain_apart(steps=3), chains("step_size", 1e-6, 9), [2]),
    "logdensity apart": (jtb.chain_apart(steps=3), chains("logdensity", -500.0, 9), [2]),
    "together": (jtb.chain_apart(steps=3), chains("logdensity", 0.5, 9), []),
    "slow energy": (jtb.energy_fraction(), column("energy", np.cumsum(NOISE) * 0.1), [199]),
    "quick energy": (jtb.energy_fraction(), column("energy", NOISE), []),
    "degenerate": (jtb.smc_degenerate(), column("ess_share", [0.5, 0.05]), [1]),
    "stalled": (jtb.tempering_stalled(), column("tempering_advance", [0.2, 1e-6]), [1]),
    "rejecting": (jtb.smc_rejecting(), column("acceptance_rate", [0.5, 0.01]), [1]),
    "elbo": (jtb.elbo_not_finite(), column("elbo", [1.0, float("nan")]), [1]),
    "line search": (jtb.line_search_failed(), column("decrease_error", [0.0, 0.2]), [1]),
    "shrinks": (jtb.shrinks_exhausted(), column("num_shrink_max", [5, 100]), [1]),
}


@pytest.mark.parametrize("name", CASES)
def test_told(name: str) -> None:
    wires, steps, expected = CASES[name]
    assert [step for step, _ in told(wires, steps)] == expected


def test_the_limit_of_the_tree_is_the_programs_own() -> None:
    (found,) = told(jtb.tree_depth_saturated(in_a_row=2)[0], depth([6, 6]))
    assert found == (1, "tree depth 6 is at its limit 6, 2 times in a row")


def test_default_tripwires_have_names_of_their_own() -> None:
    for make in (jtb.warmup_tripwires, jtb.sampling_tripwires, jtb.smc_tripwires):
        names = [wire.name for wire in make()]
        assert len(names) == len(set(names))
    with pytest.raises(TypeError, match="tripwires must be True, False or a list of tripwires"):
        jtb.watch_sampling(tripwires=["frozen"])  # pyright: ignore[reportArgumentType]


# --- Planted faults ------------------------------------------------------------------------------------------


def steep(x: Any) -> Any:
    """A density so steep that no step is small enough."""
    return -jnp.sum(jnp.square(x * 1e12))


def cliff(x: Any) -> Any:
    """A density that is nowhere finite but where the chain begins."""
    return jnp.where(jnp.all(x == 1.0), -1.0, jnp.nan) - 0.0 * jnp.sum(x)


def test_a_step_size_that_collapses(capfd: Any) -> None:
    adaptation = blackjax.window_adaptation(blackjax.hmc, steep, num_integration_steps=1)
    with jtb.watch_warmup(tripwires=list(jtb.step_size_collapsed())) as seen:
        adaptation.run(jax.random.key(0), jnp.ones(30), 60)
    line = capfd.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"\[tap\] FAIL scan\[0\] \d+/60: step size \d\.\de-\d+ collapsed \(< 1e-08\)", line)
    assert float(seen.rows[seen.trips[0].row.step]["step_size"]) < 1e-8


def test_a_chain_that_cannot_move(capfd: Any) -> None:
    hmc = blackjax.hmc(cliff, 0.1, jnp.ones(30), 2)
    with jtb.watch_sampling(tripwires=[jtb.frozen(window=10), jtb.divergence()]) as seen:
        jax.lax.scan(
            lambda state, key: (hmc.step(key, state)[0], None),
            hmc.init(jnp.ones(30)),
            jax.random.split(jax.random.key(0), 20),
        )
    assert [(trip.tripwire, trip.row.step) for trip in seen.trips] == [("divergence", 0), ("frozen", 9)]
    assert "[tap] FAIL scan[0] 9/20: position has not moved for 10 steps" in capfd.readouterr().err
    summary = seen.summary()
    assert summary["divergences"] == 20 and summary["first_trip"]["tripwire"] == "divergence"
    assert summary["per_chain"][0]["divergences"] == 20 and "frozen: scan[0] step 9" in str(summary)


def bowl(x: Any) -> Any:
    return -0.5 * jnp.sum(jnp.square(x))


def test_an_energy_that_hardly_moves() -> None:
    """A chain that begins far out comes in by small steps: its energy drifts, and that is told by BlackJAX's own."""
    hmc = blackjax.hmc(bowl, 0.02, jnp.ones(30), 2)
    keys = jax.random.split(jax.random.key(0), 60)
    with jtb.watch_sampling(tripwires=[jtb.energy_fraction(window=50)]) as seen:
        _, infos = jax.lax.scan(lambda state, key: hmc.step(key, state), hmc.init(jnp.full(30, 100.0)), keys)
    energies = np.asarray(infos.energy, np.float64)
    fractions = [np.mean(np.diff(energies[i - 50 : i]) ** 2) / np.var(energies[i - 50 : i]) for i in range(50, 61)]
    assert max(fractions) < 0.3
    assert [(trip.tripwire, trip.row.step) for trip in seen.trips] == [("energy_fraction", 49)]


def test_one_chain_that_stays_apart() -> None:
    """Of five chains one begins so far out that it is not in before the end."""
    hmc = blackjax.hmc(bowl, 0.02, jnp.ones(30), 2)
    starts = jnp.zeros((5, 30)).at[3].set(1e3)

    def one(states: Any, key: Any) -> Any:
        return jax.vmap(hmc.step)(jax.random.split(key, 5), states)[0], None

    with jtb.watch_sampling(tripwires=[jtb.chain_apart(steps=8)]) as seen:
        jax.lax.scan(one, jax.vmap(hmc.init)(starts), jax.random.split(jax.random.key(0), 12))
    (trip,) = seen.trips
    assert (trip.tripwire, trip.row.lane, trip.row.step, trip.column) == ("chain_apart", (3,), 7, "logdensity")
    assert "apart from the other chains'" in trip.message and trip.message.endswith("8 steps in a row")


# --- Read-outs -----------------------------------------------------------------------------------------------


class Rows(jtb.Seen):
    """A context that has seen rows made by hand."""

    def __init__(self, name: str, rows: list[Row]) -> None:
        self.name, self.own, self.trips = name, rows, []

    @property
    def rows(self) -> list[Row]:
        return self.own


def by_hand(name: str = "watch_warmup", chains: int = 3, steps: int = 40) -> Rows:
    values = np.random.default_rng(1).uniform(0.1, 1.0, (steps, chains))
    return Rows(
        name,
        [
            Row(
                "scan[0]",
                i,
                steps,
                (lane,),
                (),
                0,
                0.0,
                {
                    "step_size": values[i, lane],
                    "acceptance_rate": values[i, lane],
                    "tree_depth": 1 + i % 4,
                    "is_divergent": i % 9 == 0,
                    "mass_matrix_condition": 1.0 + i,
                    "logdensity": -values[i, lane],
                },
            )
            for i, lane in itertools.product(range(steps), range(chains))
        ],
    )


def test_plot() -> None:
    figure = by_hand().plot(window=5)
    shown = [axis for axis in figure.axes if axis.get_visible()]
    assert [axis.get_title().split(",")[0] for axis in shown] == [
        "step size",
        "acceptance rate",
        "transitions by tree depth",
        "condition number of the mass matrix",
        "divergences so far",
        "logdensity",
    ]
    assert all(len(axis.lines) >= 3 for i, axis in enumerate(shown) if i != 2)
    assert figure.get_size_inches()[0] * figure.dpi == 800
    assert shown[4].lines[0].get_ydata()[-1] == 5
    with pytest.raises(ValueError, match="nothing to plot: watch_warmup has seen nothing"):
        Rows("watch_warmup", []).plot()


@pytest.mark.filterwarnings("ignore")
def test_to_arviz() -> None:
    arviz = pytest.importorskip("arviz")
    del arviz
    found = by_hand().to_arviz()["warmup_sample_stats"]
    assert found["diverging"].shape == (3, 40) and int(found["diverging"].sum()) == 15
    np.testing.assert_array_equal(found["lp"][1], [r["logdensity"] for r in by_hand().rows if r.lane == (1,)])
    assert "sample_stats" in str(by_hand("watch_sampling").to_arviz())


def test_progress(capsys: Any) -> None:
    pytest.importorskip("tqdm")
    hmc = blackjax.hmc(lambda x: -x @ x, 0.1, jnp.ones(3), 2)
    keys = jax.random.split(jax.random.key(0), 12)
    with jtb.progress(jtb.watch_sampling(), mininterval=0.0) as seen:
        jax.lax.scan(lambda state, key: (hmc.step(key, state)[0], None), hmc.init(jnp.ones(3)), keys)
    text = capsys.readouterr().err
    assert "12/12" in text and "divergences=0" in text and len(seen.rows) == 12
