"""The numbers of a loop as curves in TensorBoard, with tensorboardX: `tensorboard --logdir demo/output/tensorboard`."""

from __future__ import annotations

from pathlib import Path

from fitting import fit, numbers
from tensorboardX import SummaryWriter

import jaxtap as tap

FOLDER = Path(__file__).parents[1] / "output" / "tensorboard"


class Scalars:
    """Writes each number of an event as a scalar, under the address of its loop. Pass it as `on_step=`."""

    def __init__(self, folder: Path) -> None:
        self.writer = SummaryWriter(str(folder))

    def __call__(self, event: tap.TapEvent) -> None:
        for name, value in event.value.items():
            tag = f"{event.path.replace('[', '').replace(']', '')}/{name}"
            self.writer.add_scalar(tag, float(value), global_step=event.step, walltime=event.time)

    def __enter__(self) -> Scalars:
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.close()


def main(folder: Path = FOLDER, steps: int = 2000) -> None:
    with Scalars(folder) as scalars, tap.record(select=numbers, on_step=scalars, sample_every=10):
        fit(steps)


if __name__ == "__main__":
    main()
    print(f"tensorboard --logdir {FOLDER}")
