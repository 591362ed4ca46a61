"""``python -m pyqfw`` is the command `pyqfw`."""

import sys

from .cli import main

sys.exit(main())
