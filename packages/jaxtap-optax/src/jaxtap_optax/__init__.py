"""The part of jaxtap that knows Optax.

This release has no selectors and no tripwires for Optax yet: the package holds its place in the version
lockstep with jaxtap-core, on which it depends. `jaxtap` alone already sees the loops that an Optax optimiser runs or is
run in.
"""

__version__ = "0.4.0"
