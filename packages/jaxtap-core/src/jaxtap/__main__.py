"""`python -m jaxtap` is the command `jaxtap`, after the time that importing jax takes."""

import sys

from jaxtap_command import main

sys.exit(main())
