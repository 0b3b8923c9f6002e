import random
import time

import jax
import numpy as np


@jax.jit
def noisy(x):
    start = time.time()  # found
    return x + np.random.normal() + random.random() + start  # found
