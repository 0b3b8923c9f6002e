"""The distribution jax-tap installs a package of the same name over this one."""

from __future__ import annotations

from importlib import metadata

from jaxtap._guard import warn


def warn_of_clash() -> None:
    """Say so if both are installed."""
    try:
        theirs = metadata.version("jax-tap")
        ours = metadata.version("jaxtap-core")
    except metadata.PackageNotFoundError:
        return
    warn(
        f"jaxtap-core {ours} and jax-tap {theirs} are both installed, both imported as jaxtap, so that files of "
        "the one may have replaced files of the other. Uninstall jax-tap (pip uninstall jax-tap), then reinstall "
        "jaxtap-core (pip install --force-reinstall --no-deps jaxtap-core): it runs code written for jax-tap 0.3.1.",
        stacklevel=3,
    )
