"""The four stations of a compiled call: wrapper, traced, lowered, compiled."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax

from jaxtap_command._output import say
from jaxtap_command._signature import describe, parameter_names
from jaxtap_command._target import Target, is_jitted, running

NOT_SAID = "backend does not say"
_COSTS = {"flops": "flops", "bytes accessed": "bytes accessed", "transcendentals": "transcendentals"}
_MEMORY = {
    "arguments": "argument_size_in_bytes",
    "outputs": "output_size_in_bytes",
    "temporary": "temp_size_in_bytes",
    "aliased": "alias_size_in_bytes",
    "code": "generated_code_size_in_bytes",
}


def stages(target: Target) -> dict[str, Any]:
    """What each station says of a call.

    Raises:
      Failed: the function raised while it was traced, or could not be lowered or compiled.
    """
    function = target.jitted
    seconds: dict[str, float] = {}

    def timed(station: str, make: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        with running(target, f"being {station}"):
            made = make()
        seconds[station] = time.perf_counter() - start
        return made

    traced = timed("traced", lambda: function.trace(*target.args, **target.keywords))
    lowered = timed("lowered", traced.lower)
    compiled = timed("compiled", lowered.compile)
    jaxpr = traced.jaxpr
    arguments = jax.tree.leaves(traced.args_info, is_leaf=lambda x: hasattr(x, "donated"))
    return {
        "function": target.name,
        "wrapper": {
            "jitted": is_jitted(target.function),
            "arguments": describe(target.args, target.keywords, parameter_names(target.function)),
        },
        "traced": {
            "seconds": seconds["traced"],
            "equations": len(jaxpr.jaxpr.eqns),
            "inputs": [aval.str_short() for aval in jaxpr.in_avals],
            "outputs": [aval.str_short() for aval in jaxpr.out_avals],
            "effects": sorted(map(str, jaxpr.effects)),
            "donated": [i for i, info in enumerate(arguments) if info.donated],
            "jaxpr": str(jaxpr),
        },
        "lowered": {
            "seconds": seconds["lowered"],
            "cost_before_optimisation": _cost(lowered),
            "stablehlo": _ask(lowered.as_text),
        },
        "compiled": {
            "seconds": seconds["compiled"],
            "cost": _cost(compiled),
            "memory": _memory(compiled),
            "input_shardings": _shardings(compiled, "input_shardings"),
            "output_shardings": _shardings(compiled, "output_shardings"),
            "hlo": _ask(compiled.as_text),
        },
    }


def _ask(question: Callable[[], Any]) -> Any:
    """An answer, or None where the backend has none."""
    try:
        return question()
    except Exception:  # noqa: BLE001 - each backend refuses in a way of its own
        return None


def _cost(stage: Any) -> dict[str, float | None]:
    answer = _ask(stage.cost_analysis)
    if isinstance(answer, list | tuple):
        answer = answer[0] if answer else None
    return {name: (answer or {}).get(key) for name, key in _COSTS.items()}


def _memory(compiled: Any) -> dict[str, int | None]:
    answer = _ask(compiled.memory_analysis)
    return {name: getattr(answer, attribute, None) for name, attribute in _MEMORY.items()}


def _shardings(compiled: Any, which: str) -> list[str] | None:
    answer = _ask(lambda: getattr(compiled, which))
    return None if answer is None else [str(leaf) for leaf in jax.tree.leaves(answer)]


def write(report: dict[str, Any]) -> None:
    """Write the four stations on one page."""
    wrapper, traced, lowered, compiled = (report[key] for key in ("wrapper", "traced", "lowered", "compiled"))
    say(f"{report['function']}: {'compiled already' if wrapper['jitted'] else 'compiled here, with jax.jit'}")
    for name, what in wrapper["arguments"].items():
        say(f"    {name}: {what}")
    say(f"traced    {traced['seconds']:.4f} s, {traced['equations']} equations")
    say(f"    in  {', '.join(traced['inputs']) or 'nothing'}")
    say(f"    out {', '.join(traced['outputs']) or 'nothing'}")
    say(f"    effects {', '.join(traced['effects']) or 'none'}; donated {_list(traced['donated'])}")
    say(f"lowered   {lowered['seconds']:.4f} s; before optimisation: {_said(lowered['cost_before_optimisation'])}")
    say(f"compiled  {compiled['seconds']:.4f} s; {_said(compiled['cost'])}")
    say(f"    bytes: {_said(compiled['memory'])}")
    say(f"    in  {_places(compiled['input_shardings'])}")
    say(f"    out {_places(compiled['output_shardings'])}")
    say("jaxpr")
    for line in traced["jaxpr"].splitlines():
        say(f"    {line}")


def _list(values: list[int]) -> str:
    return ", ".join(map(str, values)) or "none"


def _said(answers: dict[str, Any]) -> str:
    if all(value is None for value in answers.values()):
        return NOT_SAID
    return ", ".join(f"{name} {NOT_SAID if value is None else f'{value:g}'}" for name, value in answers.items())


def _places(shardings: list[str] | None) -> str:
    if shardings is None:
        return NOT_SAID
    return "; ".join(dict.fromkeys(shardings)) or "nothing"
