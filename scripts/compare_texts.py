"""Compare the translations and the speed of two checkouts, on bundles that both can read.

    python scripts/compare_texts.py BEFORE AFTER --input FILE RUN [RUN …] [--search greedy beam]
        [--repeat 3] [--lines 200]

Translates the file with the code of each checkout in turn (A B, B A, …: a busy machine slows both
alike), each time in a process of its own, in float32 on one thread of the CPU, and tells whether
the texts are equal to the byte, and the ratio of seconds: of the whole command by `seconds`, of
translating alone, without starting and loading, by `translating`. The status is 1 where a text
differs. The first difference is shown.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

# Run by either checkout: the public API alone, which is the same in both.
WORK = """
import json, sys, time
import torch
import translate
run, search, source, target = sys.argv[1:]
torch.set_num_threads(1)
lines = open(source, encoding="utf-8").read().split("\\n")[:-1]
options = {"kind": "greedy", "max_length_ratio": 2.0, "max_length_offset": 20}
if search.startswith("beam"):
    options = {"kind": "beam", "beam_size": int(search[4:] or 5)}
translator = translate.load(run, device="cpu", search=options, guard=None)
translator.translate(lines[:8])
begun = time.perf_counter()
texts = translator.translate(lines)
seconds = time.perf_counter() - begun
open(target, "w", encoding="utf-8").write("".join(f"{text}\\n" for text in texts))
print(json.dumps({"file": translate.__file__, "seconds": seconds}))
"""


@dataclass
class Side:
    """One checkout's translations of one run by one search."""

    checkout: Path
    texts: list[bytes] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    translating: list[float] = field(default_factory=list)

    def translate(self, run: Path, search: str, source: Path) -> None:
        """Translate once more, in a process that imports this checkout."""
        environment = os.environ | {
            "PYTHONPATH": str(self.checkout), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1",
        }  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "target"
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", WORK, str(run), search, str(source), str(target)],
                env=environment, cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.seconds.append(time.perf_counter() - begun)
            if done.returncode:
                sys.exit(f"{self.checkout} on {run}:\n{done.stderr}")
            answer = json.loads(done.stdout.splitlines()[-1])
            if not Path(answer["file"]).is_relative_to(self.checkout):
                sys.exit(f"{answer['file']} was imported, and not {self.checkout}")
            self.translating.append(answer["seconds"])
            self.texts.append(target.read_bytes())


def compared(before: Side, after: Side, run: Path, search: str) -> bool:
    """Print one line of the table; whether all texts are equal."""
    equal = len({*before.texts, *after.texts}) == 1
    seconds, translating = (
        median(b / a for a, b in zip(getattr(before, name), getattr(after, name), strict=True))
        for name in ("seconds", "translating")
    )
    print(
        f"{run.name:<22}{search:<8}{'equal' if equal else 'DIFFERENT':<11}"
        f"{median(before.translating):>8.1f} s → {median(after.translating):>6.1f} s"
        f"   translating × {translating:.3f}   seconds × {seconds:.3f}",
        flush=True,
    )
    if not equal:
        pairs = zip(before.texts[0].splitlines(), after.texts[0].splitlines(), strict=False)
        for number, (one, other) in enumerate(pairs, start=1):
            if one != other:
                print(f"  line {number}:\n  - {one.decode()}\n  + {other.decode()}")
                break
    return equal


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path, help="a checkout")
    parser.add_argument("after", type=Path, help="another")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs or bundles")
    parser.add_argument("--input", type=Path, required=True, help="sentences, one a line")
    parser.add_argument("--search", nargs="+", default=["greedy", "beam5"], help="greedy, beamN")
    parser.add_argument("--repeat", type=int, default=1, help="translations by each checkout")
    parser.add_argument("--lines", type=int, help="the first lines alone")
    options = parser.parse_intermixed_args()
    all_equal = True
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        lines = options.input.read_text(encoding="utf-8").split("\n")[:-1][: options.lines]
        source.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        for run in options.runs:
            for search in options.search:
                sides = [Side(options.before.resolve()), Side(options.after.resolve())]
                for turn in range(options.repeat):
                    for side in sides if turn % 2 == 0 else reversed(sides):
                        side.translate(run.resolve(), search, source)
                all_equal &= compared(*sides, run, search)
    sys.exit(not all_equal)


if __name__ == "__main__":
    main()
