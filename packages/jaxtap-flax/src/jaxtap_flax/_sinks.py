"""Rows for other programs: TensorBoard's event files, and Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

from jaxtap.internal import Row


class TensorBoard:
    """Writes the columns of rows as scalars, over `tensorboardX`. Pass it as `on_row=`, and close it.

    Attributes:
      logdir: where the event file is.

    >>> import jax.numpy as jnp, optax
    >>> params, updates = {"dense": jnp.ones(4)}, {"dense": jnp.full(4, -0.01)}
    >>> with to_tensorboard("runs/second") as board, train_step_monitor(on_row=board):
    ...     params = optax.apply_updates(params, updates)
    >>> board.logdir
    'runs/second'
    """

    def __init__(self, writer: Any, logdir: str) -> None:
        self._writer, self.logdir = writer, logdir

    def __call__(self, row: Row) -> None:
        """Write the scalars of a row, under its step."""
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, global_step=row.step, walltime=row.time)

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._writer.close()

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def scalars(row: Row) -> dict[str, float]:
    """The columns of a row that are numbers; of one that is about a module, with the module in their names."""
    module = row.values.get("module")
    end = "" if module is None else f"/{module}"
    numbers = {name: value for name, value in row.values.items() if isinstance(value, (int, float)) and name != "order"}
    return {f"{name}{end}": value for name, value in numbers.items()}


def to_tensorboard(logdir: str | os.PathLike[str]) -> TensorBoard:
    """A sink for `on_row=` that writes each row to an event file of TensorBoard. Needs the extra `tensorboard`.

    Args:
      logdir: the directory of the run; made if it is not there.

    Raises:
      ImportError: without tensorboardX.

    >>> import jax.numpy as jnp, optax
    >>> params, updates = {"dense": jnp.ones(4)}, {"dense": jnp.full(4, -0.01)}
    >>> import pathlib
    >>> with to_tensorboard("runs/first") as board, train_step_monitor(on_row=board):
    ...     params = optax.apply_updates(params, updates)
    >>> len(list(pathlib.Path("runs/first").glob("events.*")))
    1
    """
    try:
        from tensorboardX import SummaryWriter  # noqa: PLC0415 # pyright: ignore - an extra
    except ImportError as error:
        raise ImportError("to_tensorboard() needs tensorboardX: pip install 'jaxtap-flax[tensorboard]'.") from error
    path = os.fspath(logdir)
    return TensorBoard(SummaryWriter(path), path)


class Run(Protocol):
    """What is needed of a `wandb.Run`."""

    def log(self, data: dict[str, Any], step: int | None = None) -> Any: ...


def to_wandb(run: Run) -> Callable[[Row], None]:
    """A sink for `on_row=` that logs each row to a run of Weights & Biases.

    Weights & Biases takes steps in order only: rows of modules, which count for themselves, are logged without a step.

    Args:
      run: what `wandb.init()` returns, or anything with its `log(data, step=)`.

    >>> import jax.numpy as jnp, optax
    >>> params, updates = {"dense": jnp.ones(4)}, {"dense": jnp.full(4, -0.01)}
    >>> class Run:  # as `wandb.init()` returns it
    ...     def log(self, data, step=None):
    ...         print(step, round(data["update_norm"], 3))
    >>> with train_step_monitor(on_row=to_wandb(Run())):
    ...     params = optax.apply_updates(params, updates)
    0 0.02
    """

    def log(row: Row) -> None:
        step = None if "module" in row.values else row.step
        run.log(scalars(row), step=step)

    return log
