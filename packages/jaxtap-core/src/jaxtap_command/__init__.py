"""The command `jaxtap`. It stands beside the package `jaxtap`, which imports jax, so that `jaxtap scan` need not."""

from jaxtap_command._main import main

__all__ = ["main"]
