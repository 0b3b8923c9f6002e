"""Fail the build when a public function or class of a package is documented on no page."""

from types import ModuleType

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

import jaxtap
import jaxtap.testing
import jaxtap_blackjax
import jaxtap_flax
import jaxtap_optax

PACKAGES = (jaxtap, jaxtap.testing, jaxtap_blackjax, jaxtap_flax, jaxtap_optax)


def public(module: ModuleType) -> list[str]:
    """What is to be documented: of the adapters' selectors, which are values, their pages speak."""
    names = [name for name in module.__all__ if not (module is not jaxtap and name == "__version__")]
    return [name for name in names if callable(getattr(module, name)) or module is jaxtap]


def undocumented(env: BuildEnvironment) -> list[str]:
    documented = {name for name, *_ in env.get_domain("py").get_objects()}
    found = [(module, name) for module in PACKAGES for name in public(module)]
    return [
        f"{module.__name__}.{name}"
        for module, name in found
        if f"{module.__name__}.{name}" not in documented and not is_selector(getattr(module, name))
    ]


def is_selector(value: object) -> bool:
    return hasattr(value, "positions")


def check(app: Sphinx, env: BuildEnvironment) -> None:
    if names := undocumented(env):
        raise ExtensionError(
            f"in __all__ but on no page: {', '.join(names)}. autodoc leaves out what has no docstring; "
            "a name that cannot have one gets a directive of its own in docs/api.md."
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
