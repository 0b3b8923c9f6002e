"""Fail the build when a public name of jaxtap is documented on no page."""

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import ExtensionError

import jaxtap


def undocumented(env: BuildEnvironment) -> list[str]:
    documented = {name for name, *_ in env.get_domain("py").get_objects()}
    return [name for name in jaxtap.__all__ if f"jaxtap.{name}" not in documented]


def check(app: Sphinx, env: BuildEnvironment) -> None:
    if names := undocumented(env):
        raise ExtensionError(
            f"in jaxtap.__all__ but on no page: {', '.join(names)}. autodoc leaves out what has no docstring; "
            "a name that cannot have one gets a directive of its own in docs/api.md."
        )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
