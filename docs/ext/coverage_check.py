"""Fail the build when a public name of a package is documented on no page, or has no example."""

import inspect
from types import ModuleType

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import jaxtap
import jaxtap.testing
import jaxtap_blackjax
import jaxtap_flax
import jaxtap_optax

logger = logging.getLogger(__name__)

PACKAGES = (jaxtap, jaxtap.testing, jaxtap_blackjax, jaxtap_flax, jaxtap_optax)

# Names whose example is not in a docstring, and where it is.
ELSEWHERE = {
    "jaxtap.original_scan": "a function of JAX: docs/howto/from-jax-tap.md",
    "jaxtap.Events": "FlightRecorder: it is what `rec.events` is",
}


def public(module: ModuleType) -> list[str]:
    """What is to be documented. All packages have the version of the core."""
    return [name for name in module.__all__ if module is jaxtap or name != "__version__"]


def undocumented(env: BuildEnvironment) -> list[str]:
    documented = {name for name, *_ in env.get_domain("py").get_objects()}
    found = (f"{module.__name__}.{name}" for module in PACKAGES for name in public(module))
    return [name for name in found if name not in documented]


def without_example() -> list[str]:
    """Functions and classes whose docstring holds none. Selectors are values: their pages hold one for all."""
    found = {f"{module.__name__}.{name}": getattr(module, name) for module in PACKAGES for name in public(module)}
    return [
        name
        for name, value in found.items()
        if callable(value)
        and not hasattr(value, "positions")
        and name not in ELSEWHERE
        and ">>>" not in (inspect.getdoc(value) or "")
    ]


def check(app: Sphinx, env: BuildEnvironment) -> None:
    if names := undocumented(env):
        logger.warning(
            f"in __all__ but on no page: {', '.join(names)}. autodoc leaves out what has no docstring; "
            "a name that cannot have one gets a directive of its own in docs/reference/."
        )
    if names := without_example():
        logger.warning(f"public, but its docstring has no example: {', '.join(names)}.")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
