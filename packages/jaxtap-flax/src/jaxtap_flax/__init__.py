"""The part of jaxtap that knows Flax.

This release has no selectors and no tripwires for Flax yet: the package holds its place in the version
lockstep with jaxtap-core, on which it depends. `jaxtap` alone already sees the loops that Flax runs, such as those of
`nnx.scan` and `nn.scan`.
"""

__version__ = "0.4.0"
