"""`python -m translate`."""

from __future__ import annotations

import sys

from translate.cli.main import main

sys.exit(main())
