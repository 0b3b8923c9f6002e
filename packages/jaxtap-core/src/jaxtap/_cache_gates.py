"""What became of a program in JAX's persistent compilation cache, and why it was not kept there."""

from __future__ import annotations

from typing import Any

import jax

from jaxtap._jaxprs import inner, subjaxprs

_ASKED, _HIT, _WRITTEN = (
    f"/jax/compilation_cache/{name}" for name in ("compile_requests_use_cache", "cache_hits", "cache_misses")
)


def outcome(events: set[str], seconds: float, calls_host: bool | None) -> tuple[str, str]:
    """What became of a program, and why it was not kept.

    JAX says on its event bus when a program was found or written. Where it says neither, one of its gates was
    closed; they are tried here one after the other. Whether the cache is off JAX asks once in a process.

    Args:
      events: names of the events of this compilation.
      seconds: how long it took.
      calls_host: whether the program calls Python; None where that is not known.
    """
    if _HIT in events:
        return "hit", ""
    if _WRITTEN in events:
        return "written", ""
    return "not written", _gate(events, seconds, calls_host)


def _gate(events: set[str], seconds: float, calls_host: bool | None) -> str:
    if not _option("jax_compilation_cache_dir", None):
        return "no directory set: jax_compilation_cache_dir is None"
    if _ASKED not in events and not _option("jax_enable_compilation_cache", True):
        return "the cache is off: jax_enable_compilation_cache is False"
    if _ASKED not in events:
        return "JAX did not ask: the cache was off when the first program was compiled, or the backend has none"
    if jax.process_index() != 0:
        return f"only process 0 writes: this is process {jax.process_index()}"
    least_seconds = _option("jax_persistent_cache_min_compile_time_secs", 0.0)
    least_bytes = _option("jax_persistent_cache_min_entry_size_bytes", 0)
    if calls_host and least_bytes <= 0 and seconds >= least_seconds:
        return "the program calls Python, and such a program is not kept"
    if seconds < least_seconds:
        # Not how fast it was: that differs from program to program, and a report counts those of one reason.
        return f"faster than the minimum: jax_persistent_cache_min_compile_time_secs is {least_seconds:g}"
    if least_bytes > 0:
        or_calls = ", or the program calls Python" if calls_host else ""
        return f"smaller than the minimum: jax_persistent_cache_min_entry_size_bytes is {least_bytes}{or_calls}"
    return "JAX did not write it and did not say why"


def _option(name: str, default: Any) -> Any:
    return getattr(jax.config, name, default)


def calls_host(jaxpr: Any) -> bool:
    """Whether a program calls Python while it runs."""
    return any("callback" in eqn.primitive.name or any(map(calls_host, subjaxprs(eqn))) for eqn in inner(jaxpr).eqns)
