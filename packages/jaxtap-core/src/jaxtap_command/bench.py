"""`jaxtap bench`: compile time apart from run time, each call waited for, transfers apart."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtap_command import _target
from jaxtap_command._bad import DONE, BadInput
from jaxtap_command._output import say, table, write_json
from jaxtap_command._target import copied, running


def arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the subcommand takes."""
    _target.arguments(parser)
    parser.add_argument("--repeat", type=int, default=20, metavar="N", help="how many calls are timed (20)")


def run(options: argparse.Namespace) -> int:
    """Time the stations, then the calls, then the transfers."""
    if options.repeat < 1:
        raise BadInput(f"--repeat {options.repeat}: time one call at least")
    target = _target.load(options)
    function, args, kwargs = target.jitted, target.args, target.keywords
    with running(target, "being compiled and run"):
        start = time.perf_counter()
        lowered = function.trace(*args, **kwargs).lower()
        middle = time.perf_counter()
        lowered.compile()
        end = time.perf_counter()
        # Compiled ahead of time or not, the first call through jit fills jit's own cache.
        donates = target.donates()
        kept, keywords = copied((args, kwargs)) if donates else (args, kwargs)
        result = jax.block_until_ready(function(*kept, **keywords))
        calls = [_call(function, copied((args, kwargs)) if donates else (args, kwargs)) for _ in range(options.repeat)]
        in_arrays = [x for x in jax.tree.leaves((args, kwargs)) if _is_plain(x)]
        out_arrays = [x for x in jax.tree.leaves(result) if _is_plain(x)]
        host = [np.asarray(x) for x in in_arrays]
        to_device = _times(options.repeat, lambda: jax.device_put(host))
        to_host = [_fetch(out_arrays) for _ in range(options.repeat)]
    report = {
        "function": target.name,
        "device": str(jax.devices()[0]),
        "trace_and_lower_seconds": middle - start,
        "compile_seconds": end - middle,
        "repeat": options.repeat,
        "call": _spread(calls),
        "arguments_to_device": _spread(to_device) | {"bytes": sum(x.nbytes for x in host)},
        "results_to_host": _spread(to_host) | {"bytes": sum(x.nbytes for x in out_arrays)},
    }
    if options.format == "json":
        write_json(report)
    else:
        _write(report)
    return DONE


def _is_plain(leaf: Any) -> bool:
    """Whether a leaf is an array with bytes that can be sent; typed keys are not."""
    return isinstance(leaf, jax.Array | np.ndarray) and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)


def _call(function: Any, given: tuple[tuple[Any, ...], dict[str, Any]]) -> float:
    """The seconds of one call, waited for; its arguments are there before."""
    args, kwargs = jax.block_until_ready(given)
    return _times(1, lambda: function(*args, **kwargs))[0]


def _times(repeat: int, call: Callable[[], Any]) -> list[float]:
    """The seconds of each of some calls, each waited for."""
    seconds: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return seconds


def _fetch(arrays: list[Any]) -> float:
    """The seconds of fetching some results to the host; of copies, as an array keeps what was fetched."""
    fresh = jax.block_until_ready([jnp.copy(x) for x in arrays])
    start = time.perf_counter()
    for array in fresh:
        np.asarray(array)
    return time.perf_counter() - start


def _spread(seconds: list[float]) -> dict[str, float]:
    """Median, quartiles and extremes."""
    quarters = statistics.quantiles(seconds, n=4) if len(seconds) > 1 else [seconds[0]] * 3
    return {
        "median": statistics.median(seconds),
        "lower_quartile": quarters[0],
        "upper_quartile": quarters[2],
        "min": min(seconds),
        "max": max(seconds),
    }


def _write(report: dict[str, Any]) -> None:
    say(f"{report['function']} on {report['device']}")
    say(f"trace and lower  {report['trace_and_lower_seconds']:.4f} s")
    say(f"compile          {report['compile_seconds']:.4f} s")
    rows: list[list[object]] = []
    for name, key in (
        (f"call, of {report['repeat']}", "call"),
        (f"arguments to device, {report['arguments_to_device']['bytes']} bytes", "arguments_to_device"),
        (f"results to host, {report['results_to_host']['bytes']} bytes", "results_to_host"),
    ):
        spread = report[key]
        values = [spread[k] for k in ("median", "lower_quartile", "upper_quartile", "min", "max")]
        rows.append([name, *(f"{1e3 * v:.4f}" for v in values)])
    table(["ms, each waited for", "median", "quarter", "three quarters", "least", "most"], rows)
