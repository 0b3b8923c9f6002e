"""Each demo finds its bug where it is, and nothing once it is mended."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

Found = dict[str, Any]

# What a demo must have found, exactly.
EXPECTED: dict[str, Found] = {
    "cholesky_float32": {
        "path": "scan[0]/jit[0]/cholesky[0]",
        "step": 17,
        "events": 1,
        "worst before": 1,
        "worst after": 17,
        "events after": 0,
    },
    "mass_matrix": {
        "path": "scan[0]",
        "step": 14,
        "calls": list(range(20)),
        "stages": ["fast"],
        "matrices": [1.0],
        "windows after": [99, 149, 249],
        "trips after": 0,
    },
    "line_search_limit": {"path": "scan[0]", "step": 2, "at limit": list(range(2, 12)), "after": []},
    "tree_depth": {"path": "scan[0]", "told at": 32, "since": 23, "after": None, "trips after": []},
    "stuck_chain": {
        "path": "scan[0]",
        "step": 0,
        "lane": (52,),
        "tripwires": ["logdensity_not_finite", "gradient_not_finite", "frozen"],
        "frozen": [((52,), 49)],
        "after": 0,
    },
    "gradient_nan": {
        "path": "scan[0]/scan[2]",
        "step": 59,
        "outer": (0,),
        "leaves": ["stone['velocity']"],
        "forward": 0,
        "at rest from": 19,
        "after": 0,
    },
    "first_call": {"function": "train_step", "compiled": 1, "station": "compile", "after": 1},
    "last_batch": {
        "function": "train_step",
        "causes": ["first"] + 6 * ["shape"],
        "numbers": [1, 2, 3, 4, 5, 6, 7],
        "arguments": ["batch['weight']", "batch['x']", "batch['y']"],
        "sizes": [64, 36, 31, 28, 24, 48, 29],
        "after": 1,
    },
    "exploding_layer": {"path": "scan[0]", "tripwire": "layer_gradient_spike", "layer": "wide", "after": 0},
    "skipped_updates": {
        "path": "scan[0]",
        "tripwire": "update_skipped",
        "steps": [3, 8, 13, 18],
        "share": 0.2,
        "batches": [3],
        "after": 0,
    },
    "tempered_smc": {"path": "while[0]", "total": None, "steps": list(range(8)), "complete": True},
    "two_processes": {
        "path": "scan[0]",
        "events": 160,
        "processes": {0: [0, 1], 1: [2, 3]},
        "alike": [(0, 2), (1, 3)],
        "alike after": [],
    },
    "eight_schools": {"paths": ["scan[0]", "scan[1]"], "steps": {"scan[0]": 1000, "scan[1]": 1000}, "differing": []},
}

# What differs a little between versions and machines.
ABOUT: dict[str, Callable[[Found], bool]] = {
    "first_call": lambda found: found["equations"][0] > 5 * found["equations"][1] == 5 * found["equations"][2],
    "last_batch": lambda found: found["apart"] < 1e-5,
    "exploding_layer": lambda found: 25 <= found["lead"] <= 35 and 360 < found["step"] < 400,
    "tempered_smc": lambda found: found["times longer"] > 20,
    "two_processes": lambda found: abs(found["slopes"][0] - 2.0) < 0.01 and abs(found["slopes"][1] - 2.5) < 0.01,
    "eight_schools": lambda found: found["divergent"] > 0 and found["divergent in the neck"] > found["divergent"] / 2,
}
ARGUMENTS: dict[str, tuple[Any, ...]] = {"first_call": (12,), "eight_schools": (["--no-plot"],)}


@pytest.fixture(autouse=True)
def promotion() -> Iterator[None]:
    """The demos' programs rely on implicit promotion, as programs do."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("name", EXPECTED)
def test_demo(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = importlib.import_module(name).main
    draws = "folder" in inspect.signature(main).parameters
    found = main(*ARGUMENTS.get(name, ()), **({"folder": tmp_path} if draws else {}))
    assert {key: found[key] for key in EXPECTED[name]} == EXPECTED[name]
    assert ABOUT.get(name, lambda _: True)(found)
    assert [path.name for path in tmp_path.iterdir()] == ([f"{name}.png"] if draws else [])
    assert capsys.readouterr().out.count("\n---") >= 3


def test_every_demo_is_tested() -> None:
    folder = Path(importlib.import_module("telling").__file__ or "").parent
    assert {path.stem for path in folder.glob("*.py")} == {"telling", *EXPECTED}
