"""``python -m openmps`` is the command ``openmps``."""

import sys

from openmps.cli import main

sys.exit(main())
