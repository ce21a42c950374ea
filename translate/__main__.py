"""The program: `translate`, or `python -m translate`."""

from __future__ import annotations

import sys


def main() -> int:
    """Run it; quiet about Ctrl-C as long as it is not there to say something itself."""
    try:
        from translate.cli.main import main as program

        return program()
    except KeyboardInterrupt:
        return 130  # 128 + SIGINT, as shells count


if __name__ == "__main__":
    sys.exit(main())
