"""The part of jaxtap that knows Flax: see inside a training step, and what modules return."""

from jaxtap_flax._monitor import train_step_monitor, watch_activations
from jaxtap_flax._seen import Activations, Monitor
from jaxtap_flax._selectors import (
    activation_rms,
    batch_stats_var,
    dead_fraction,
    grad_norm,
    loss,
    nonfinite,
    param_norm,
    step,
    update_norm,
    update_ratio,
)
from jaxtap_flax._sinks import TensorBoard, to_tensorboard, to_wandb
from jaxtap_flax._summary import Summary
from jaxtap_flax._tripwires import (
    batch_stats_collapse,
    dead_units,
    gradient_spike,
    layer_apart,
    layer_gradient_spike,
    loss_constant,
    loss_not_finite,
    loss_spike,
    nonfinite_activation,
    nonfinite_gradient,
    tripwires,
    update_ratio_outside,
    vanishing_gradient,
)

__version__ = "0.4.0"

__all__ = [
    "Activations",
    "Monitor",
    "Summary",
    "TensorBoard",
    "__version__",
    "activation_rms",
    "batch_stats_collapse",
    "batch_stats_var",
    "dead_fraction",
    "dead_units",
    "grad_norm",
    "gradient_spike",
    "layer_apart",
    "layer_gradient_spike",
    "loss",
    "loss_constant",
    "loss_not_finite",
    "loss_spike",
    "nonfinite",
    "nonfinite_activation",
    "nonfinite_gradient",
    "param_norm",
    "step",
    "to_tensorboard",
    "to_wandb",
    "train_step_monitor",
    "tripwires",
    "update_norm",
    "update_ratio",
    "update_ratio_outside",
    "vanishing_gradient",
    "watch_activations",
]
