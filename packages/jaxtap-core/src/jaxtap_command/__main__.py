"""`python -m jaxtap_command` is `jaxtap`."""

import sys

from jaxtap_command._main import main

sys.exit(main())
