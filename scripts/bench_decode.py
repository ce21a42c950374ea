#!/usr/bin/env python
"""How fast a run translates here: one table of speed, latency, load time and memory by engine.

    scripts/bench_decode.py runs/demo test.es
    scripts/bench_decode.py runs/demo test.es --engines native direct --tokens 512 1024 --repeats 5

Engines: `native`, our search on all threads; `workers`, the same by a process a thread; `bf16` and
`bf16-workers`, both with weights of 16 bits; `served-float32`, `served-int8` and so on, CTranslate2
through `engine=ctranslate2` with the run's weights in that format, so that weights and tokens are
the same; `direct` and `direct-int8`, CTranslate2's own call on the same pieces, which tells what
ours adds to it. CTranslate2 has a worker a thread, which is its best.

Every row is a process of its own: start to loaded model, a warm-up, then the whole file `--repeats`
times. Figures are medians; tokens are those of the translations, without </s>. Latency (p50) is
that of one sentence at a time, without batching, and stands in the first row of a search alone: the
size of a batch does not matter for it. Memory is that of the first process, without workers. Keep
the machine idle meanwhile; where that cannot be, processor time (of all threads together, workers
too) still tells engines apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

LIMITS = {"max_length_ratio": 2.0, "max_length_offset": 20}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"kind": "greedy", **LIMITS},
    "beam 5": {
        "kind": "beam", "beam_size": 5, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 1,
        "coverage_penalty": 0.0, **LIMITS,
    },
}  # fmt: skip
COLUMNS = [
    "engine", "search", "tokens a batch", "sentences/s", "tokens/s", "CPU ms a sentence", "p50 ms",
    "load s", "peak MB",
]  # fmt: skip
ENGINES = [
    "native", "workers", "bf16", "bf16-workers", "served-float32", "direct", "direct-int8"
]  # fmt: skip
Translate = Callable[[list[str]], list[int]]  # lines → how many tokens each translation has


def main() -> None:
    """Measure every combination asked for, and print a row each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("input", type=Path, help="source sentences, a line each")
    parser.add_argument("--engines", nargs="+", default=ENGINES)
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[1024, 4096], help="a batch")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--single", type=int, default=50, help="sentences for the latency")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # one row, in a process of its own
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options, **json.loads(options.measure))))
        return
    print(f"{versions()}; {options.threads} threads, medians of {options.repeats}\n")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for engine in options.engines:
            export = None if engine in NATIVE else exported(options.run, engine, Path(folder))
            for search in options.searches:
                for tokens in options.tokens:
                    row = in_a_process(
                        engine=engine, search=search, tokens=tokens, export=export,
                        single=options.single if tokens == options.tokens[0] else 0,
                    )  # fmt: skip
                    print(f"| {engine} | {search} | {tokens} | {row} |", flush=True)


def in_a_process(**what: Any) -> str:
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", json.dumps(what)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = json.loads(done.stdout)
    return (
        f"{found['sentences']:,.0f} | {found['tokens']:,.0f} | {found['cpu']:.2f} | "
        f"{found['p50'] or '':.4} | {found['load']:.1f} | {found['peak']:,.0f}"
    )


def exported(run: Path, engine: str, folder: Path) -> str:
    """The run in CTranslate2's format, made once."""
    quantization = engine.partition("-")[2] or "float32"
    output = folder / quantization
    if output.exists():
        return str(output)
    command = [
        sys.executable, "-m", "translate", "export", f"run={run}", f"output={output}",
        f"quantization={quantization}", "sentences=10",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return str(output)


def measure(
    options: argparse.Namespace,
    *,
    engine: str,
    search: str,
    tokens: int,
    export: str | None,
    single: int,
) -> dict[str, float | None]:
    """One row; latency is told where `single` sentences are timed by themselves."""
    from translate.data.text import read_lines

    started = time.perf_counter()
    kind = engine.partition("-")[0]
    make = NATIVE.get(engine) or {"direct": direct, "served": served}[kind]
    translate = make(options, SEARCHES[search], tokens, export)
    load = time.perf_counter() - started
    lines = list(read_lines(options.input))
    translate(lines[:64])
    seconds, busy = [], []
    for _ in range(options.repeats):
        started, worked = time.perf_counter(), processor_time()
        lengths = translate(lines)
        seconds.append(time.perf_counter() - started)
        busy.append(processor_time() - worked)
    alone = []
    for line in lines[:single]:
        started = time.perf_counter()
        translate([line])
        alone.append(time.perf_counter() - started)
    median = statistics.median(seconds)
    return {
        "sentences": len(lines) / median,
        "tokens": sum(lengths) / median,
        "cpu": 1000 * statistics.median(busy) / len(lines),
        "p50": 1000 * statistics.median(alone) if alone else None,
        "load": load,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,  # KB on Linux
    }


def processor_time() -> float:
    """Of this process and of its workers that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def native(
    options: argparse.Namespace,
    search: Any,
    tokens: int,
    export: str | None,
    *,
    precision: Any = None,
    in_workers: bool = False,
) -> Translate:
    import torch

    from translate.inference import loading

    torch.set_num_threads(options.threads)
    loaded = loading.load(
        options.run, device="cpu", search=search, tokens_per_batch=tokens, precision=precision,
        workers=options.threads if in_workers else 1,
    )  # fmt: skip
    return lambda lines: [len(best.tokens) for best, *_ in loaded.stream(lines)]


NATIVE: dict[str, Callable[..., Translate]] = {
    "native": native,
    "workers": partial(native, in_workers=True),
    "bf16": partial(native, precision="bf16"),
    "bf16-workers": partial(native, precision="bf16", in_workers=True),
}


def served(options: argparse.Namespace, search: Any, tokens: int, export: str | None) -> Translate:
    from translate.inference import bundle, loading
    from translate.inference.ctranslate2_engine import CTranslate2Search

    assert export is not None
    loaded = bundle.load(bundle.find(options.run))
    engine = CTranslate2Search(
        Path(export), loaded.tokenizers, search,
        tokens_per_batch=tokens, workers=options.threads, device="cpu",
    )  # fmt: skip
    translator = loading.load(loaded, device="cpu", search=engine, whole_windows=True)
    return lambda lines: [len(best.tokens) for best, *_ in translator.stream(lines)]


def direct(options: argparse.Namespace, search: Any, tokens: int, export: str | None) -> Translate:
    import ctranslate2

    from translate.data.tokenizer import Tokenizer

    assert export is not None
    source, target = (Tokenizer.load(Path(export, f"{side}.spm")) for side in ("source", "target"))
    translator = ctranslate2.Translator(export, inter_threads=options.threads, intra_threads=1)
    ids = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}
    beam = search.get("beam_size", 1)

    def translate(lines: list[str]) -> list[int]:
        found = translator.translate_batch(
            [source.spelled(line) for line in lines],
            beam_size=beam, length_penalty=search.get("alpha", 0.0), max_decoding_length=200,
            max_batch_size=tokens, batch_type="tokens",
        )  # fmt: skip
        for result in found:
            target.decode([ids[piece] for piece in result.hypotheses[0]])
        return [len(result.hypotheses[0]) for result in found]

    return translate


def versions() -> str:
    from importlib.metadata import PackageNotFoundError, version

    named = [f"Python {platform.python_version()}"]
    for package in ("torch", "ctranslate2"):
        try:
            named.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            named.append(f"no {package}")
    return f"{processor()}: {', '.join(named)}"


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "CPU")


if __name__ == "__main__":
    main()
