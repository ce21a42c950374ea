"""Print how large the house is: lines and files of core, extras and tests.

python scripts/house.py            # beside the budget
python scripts/house.py --rooms    # each room of translate/, and its longest files
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = ROOT / "translate" / "extras"
BUDGET = {"core": (19_000, 80), "extras": (7_000, None), "tests": (26_000, None)}


def lines(path: Path) -> int:
    return len(path.read_bytes().splitlines())


def files() -> dict[str, list[Path]]:
    """The Python files of each part."""
    package = sorted((ROOT / "translate").rglob("*.py"))
    return {
        "core": [path for path in package if not path.is_relative_to(EXTRAS)],
        "extras": [path for path in package if path.is_relative_to(EXTRAS)],
        "tests": sorted((ROOT / "tests").rglob("*.py")),
    }


def row(name: str, paths: list[Path]) -> str:
    return f"{name:<14}{sum(map(lines, paths)):>8,} lines {len(paths):>5} files"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rooms", action="store_true", help="each room, and its longest files")
    options = parser.parse_args()
    parts, over = files(), False
    for name, paths in parts.items():
        most_lines, most_files = BUDGET[name]
        budget = f"{most_lines:,} lines" + (f", {most_files} files" if most_files else "")
        print(f"{row(name, paths)}   (at most {budget})")
        over |= sum(map(lines, paths)) > most_lines or len(paths) > (most_files or len(paths))
    if options.rooms:
        rooms = defaultdict(list)
        for path in [*parts["core"], *parts["extras"]]:
            rooms[path.relative_to(ROOT / "translate").parts[0]].append(path)
        for room, paths in sorted(rooms.items(), key=lambda item: -sum(map(lines, item[1]))):
            longest = sorted(paths, key=lines, reverse=True)[:5]
            print(f"\n{row(room, paths)}")
            print("  " + ", ".join(f"{path.name} {lines(path)}" for path in longest))
    sys.exit(over)


if __name__ == "__main__":
    main()
