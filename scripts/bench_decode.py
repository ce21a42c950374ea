#!/usr/bin/env python
"""How fast a run translates here: one table of speed, latency, load time and memory by engine.

    scripts/bench_decode.py runs/demo test.es
    scripts/bench_decode.py runs/demo test.es --engines native direct --tokens 512 1024 --repeats 5
    scripts/bench_decode.py runs/demo test.es --reference test.en \
      --peer 'joeynmt=/path/decode_speed.sh {beam}'
    scripts/bench_decode.py runs/demo test.es --device cuda --engines bf16 --tokens 4096 65536

Engines: `native`, our search on all threads; `workers`, the same by a process a thread; `bf16` and
`bf16-workers`, both with weights of 16 bits, `int8` and `int8-workers` of 8; `served-float32`,
`served-int8` and so on, CTranslate2 through `engine=ctranslate2` with the run's weights in that
format, so that weights and tokens are the same; `direct` and `direct-int8`, CTranslate2's own call
on the same pieces, which tells what ours adds to it. CTranslate2 has a worker a thread, which is
its best, but for a sentence by itself one of all threads, loaded anew; GPUs have no workers.

A peer is any command (in which {beam} is 1 or 5) whose last line is JSON with sents_per_s_decode
and out_tok_per_s_decode, its speeds without start and loading, and where it knows them peak_rss_mb
and bleu. It must translate the same sentences, to about the same length; its tokens are its own.

Every row is a process of its own: start to loaded model, and a warm-up. Then the rows of a search,
and the peers, translate the whole file in turn, `--repeats` times, so that a machine that is slow
for a while is so for all of them. Figures are medians; tokens are those of the translations, but
for </s>. Memory is that of the first process, without workers; it must do for all rows at once. On
a GPU it is what PyTorch has allocated there. Latency (p50), measured after all that, is that of one
sentence at a time, without batching, and stands in the first row of an engine alone: the size of a
batch does not matter for it. Keep the machine idle meanwhile.
"""

from __future__ import annotations

import argparse
import atexit
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from options import begin, peak_memory, positive, whole
from peers import figures_of, named_command

from translate import machine
from translate.errors import UserError
from translate.inference import Quantization
from translate.wording import counted

LIMITS = {"max_length_ratio": 2.0, "max_length_offset": 20}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"kind": "greedy", **LIMITS},
    "beam 5": {
        "kind": "beam", "beam_size": 5, "length_penalty": "gnmt", "alpha": 0.6, "n_best": 1,
        "coverage_penalty": 0.0, **LIMITS,
    },
}  # fmt: skip
COLUMNS = [
    "engine", "search", "tokens a batch", "sentences/s", "× fastest peer", "tokens/s",
    "CPU ms a sentence", "p50 ms", "load s", "peak MB", "BLEU",
]  # fmt: skip
ENGINES = [
    "native", "workers", "bf16", "bf16-workers", "served-float32", "direct", "direct-int8"
]  # fmt: skip
SPEEDS = ["sents_per_s_decode", "out_tok_per_s_decode"]


class Translated(NamedTuple):
    """A line's translation."""

    text: str
    tokens: int


class Measured(NamedTuple):
    """A row; what a peer does not tell, and what was not asked for, is not a number."""

    sentences: float  # a second
    tokens: float  # a second
    cpu: float = math.nan  # ms a sentence
    p50: float = math.nan  # ms
    load: float = math.nan  # s
    peak: float = math.nan  # MB
    bleu: float = math.nan


Translate = Callable[[list[str]], list[Translated]]


def main() -> None:
    """Measure every combination asked for, and print a row each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("input", type=Path, help="source sentences, a line each")
    parser.add_argument("--reference", type=Path, help="their translations, a line each: for BLEU")
    parser.add_argument("--engines", nargs="*", type=known_engine, default=ENGINES)
    parser.add_argument(
        "--peer", type=named_command, action="append", default=[], metavar="NAME=COMMAND"
    )
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--tokens", nargs="+", type=positive, default=[1024, 4096], help="a batch")
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument(
        "--single", type=whole, default=50, help="sentences for the latency; 0: none"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda and an engine of ours")
    parser.add_argument("--threads", type=positive, default=machine.cores())
    parser.add_argument("--measure", help=argparse.SUPPRESS)  # one row, in a process of its own
    options = parser.parse_args()
    # of CTranslate2, a thread each; on a GPU they would only share it
    options.workers = options.threads if options.device == "cpu" else 1
    if options.measure:
        measured = measure(options, in_turns(), **json.loads(options.measure))
        print(json.dumps(measured._asdict()))
        return
    if options.device != "cpu" and "workers" in " ".join(options.engines):
        parser.error(
            f"--device {options.device}: workers are for CPUs; name --engines without them"
        )
    if len(dict(options.peer)) < len(options.peer):
        parser.error("give each --peer a name of its own")
    check(options)
    where = f"{options.threads} threads" if options.device == "cpu" else options.device
    print(f"{versions(options.device)}; {where}, medians of {options.repeats}\n")
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for search in options.searches:
            beam = str(SEARCHES[search].get("beam_size", 1))
            peers = {name: Peer(command.replace("{beam}", beam)) for name, command in options.peer}
            rows = started(options, search, Path(folder))
            for _ in range(options.repeats):
                for peer in peers.values():
                    peer.turn()
                for process in rows.values():
                    process.turn()
            fastest = math.nan
            for name, peer in peers.items():
                measured = peer.measured()
                fastest = max(measured.sentences, fastest)  # NaN, if second, is never the larger
                print(row(f"{name} | {search} | ", measured), flush=True)
            for (engine, tokens), process in rows.items():
                measured = process.measured()
                print(row(f"{engine} | {search} | {tokens}", measured, fastest), flush=True)


def known_engine(text: str) -> str:
    """One of ours, or a way to call CTranslate2, perhaps with weights in another format."""
    way, dash, weights = text.partition("-")
    formats = get_args(Quantization)
    if text not in NATIVE and (way not in EXPORTED or (dash and weights not in formats)):
        raise argparse.ArgumentTypeError(
            f"no {text}: choose from {', '.join([*NATIVE, *EXPORTED])}; the last two with -FORMAT "
            f"for other weights, such as direct-int8, of {', '.join(formats)}"
        )
    return text


def check(options: argparse.Namespace) -> None:
    """Refuse what no row could be measured with."""
    from translate.data.plain_text import count_lines
    from translate.inference import bundle
    from translate.inference.batches import choose_device

    bundle.find(options.run)
    choose_device(options.device)
    lines = count_lines(options.input)
    if not lines:
        raise UserError(f"{options.input} is empty: give sentences to translate")
    if options.reference and (count := count_lines(options.reference)) != lines:
        raise UserError(
            f"{options.reference} has {counted(count, 'line')}, {options.input} {lines:,}: "
            "give as many"
        )


def started(
    options: argparse.Namespace, search: str, folder: Path
) -> dict[tuple[str, int], Process]:
    """A process for each row, ready to translate."""
    rows = {}
    for engine in dict.fromkeys(options.engines):
        export = None if engine in NATIVE else exported(options.run, engine, folder)
        for tokens in dict.fromkeys(options.tokens):
            rows[engine, tokens] = Process(
                engine=engine, search=search, tokens=tokens, export=export,
                single=options.single if tokens == options.tokens[0] else 0,
            )  # fmt: skip
    return rows


def row(name: str, one: Measured, fastest: float = math.nan) -> str:
    """Of the table; nothing stands where nothing is known."""
    figures = [
        (one.sentences, ",.0f"), (one.sentences / fastest, ".2f"), (one.tokens, ",.0f"),
        (one.cpu, ".2f"), (one.p50, ".1f"), (one.load, ".1f"), (one.peak, ",.0f"),
        (one.bleu, ".2f"),
    ]  # fmt: skip
    shown = ("" if math.isnan(figure) else format(figure, form) for figure, form in figures)
    return f"| {name} | {' | '.join(shown)} |"


class Process:
    """A row, measured in a process that translates when it is its turn."""

    def __init__(self, **what: Any) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *sys.argv[1:], "--measure", json.dumps(what)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        atexit.register(self._process.kill)  # where another row fails
        self._answer()  # it is ready

    def turn(self) -> None:
        """Let it translate the file, and wait for it."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        self._answer()

    def measured(self) -> Measured:
        """The figures of all its turns, after the last."""
        return Measured(**json.loads(self._end()))

    def _answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._end()

    def _end(self) -> str:
        """What is left to say; one that fails has told why."""
        said, _ = self._process.communicate()
        if self._process.returncode:
            sys.exit(self._process.returncode)
        return said


def in_turns() -> Iterator[None]:
    """The other side: a turn for every line that comes in, and an answer when it is over."""
    print("ready", flush=True)
    for _ in sys.stdin:
        yield
        print("over", flush=True)


class Peer:
    """What a peer's own script prints as JSON."""

    def __init__(self, command: str) -> None:
        self.command = command
        self._turns: list[Measured] = []

    def turn(self) -> None:
        """Let it translate the file."""
        sentences, tokens, peak, bleu = figures_of(self.command, SPEEDS, ["peak_rss_mb", "bleu"])
        self._turns.append(Measured(sentences, tokens, peak=peak, bleu=bleu))

    def measured(self) -> Measured:
        """The medians of its turns."""
        return Measured(*map(statistics.median, zip(*self._turns, strict=True)))


def exported(run: Path, engine: str, folder: Path) -> str:
    """The run in CTranslate2's format, made once."""
    quantization = engine.partition("-")[2] or "float32"
    output = folder / quantization
    if not output.exists():
        command = [
            sys.executable, "-m", "translate", "export", f"run={run}", f"output={output}",
            f"quantization={quantization}", "sentences=10",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            sys.exit(done.returncode)
    return str(output)


def measure(
    options: argparse.Namespace,
    turns: Iterable[Any],
    *,
    engine: str,
    search: str,
    tokens: int,
    export: str | None,
    single: int,
) -> Measured:
    """One row, the file once a turn; latency where `single` sentences are timed by themselves."""
    from translate.data.plain_text import read_lines
    from translate.evaluation.metrics import bleu

    began = time.perf_counter()
    make = NATIVE.get(engine) or partial(EXPORTED[engine.partition("-")[0]], export)
    translate = make(options, SEARCHES[search], tokens)
    load = time.perf_counter() - began
    lines = list(read_lines(options.input))
    translate(lines[:64])
    seconds, busy = [], []
    for _ in turns:
        began, worked = time.perf_counter(), sum(os.times()[:4])  # with workers that have ended
        translated = translate(lines)
        seconds.append(time.perf_counter() - began)
        busy.append(sum(os.times()[:4]) - worked)
    memory = peak(options.device)
    p50 = math.nan
    if single:
        if engine not in NATIVE:
            del translate  # not both in memory
            translate = make(options, SEARCHES[search], tokens, workers=1)
        translate(lines[:1])  # to warm up
        alone = []
        for line in lines[:single]:
            began = time.perf_counter()
            translate([line])
            alone.append(time.perf_counter() - began)
        p50 = 1000 * statistics.median(alone)
    score = math.nan
    if options.reference is not None:
        references = [[line] for line in read_lines(options.reference)]
        score = bleu([one.text for one in translated], references)
    median = statistics.median(seconds)
    return Measured(
        sentences=len(lines) / median,
        tokens=sum(one.tokens for one in translated) / median,
        cpu=1000 * statistics.median(busy) / len(lines),
        p50=p50,
        load=load,
        peak=memory,
        bleu=score,
    )


def peak(device: str) -> float:
    """In MB; of a GPU what PyTorch has had there, for others do not tell."""
    if device == "cpu":
        return peak_memory() / 2**20
    import torch

    return torch.cuda.max_memory_allocated(device) / 1e6 or math.nan


def native(
    options: argparse.Namespace,
    search: Any,
    tokens: int,
    *,
    precision: Any = None,
    in_workers: bool = False,
) -> Translate:
    import torch

    from translate.inference import translator

    torch.set_num_threads(options.threads)
    loaded = translator.load(
        options.run, device=options.device, search=search, tokens_per_batch=tokens,
        precision=precision, workers=options.threads if in_workers else 1,
    )  # fmt: skip
    return partial(streamed, loaded)


def streamed(translator: Any, lines: list[str]) -> list[Translated]:
    return [Translated(best.text, len(best.tokens)) for best, *_ in translator.stream(lines)]


NATIVE: dict[str, Callable[..., Translate]] = {
    "native": native,
    "workers": partial(native, in_workers=True),
    "bf16": partial(native, precision="bf16"),
    "bf16-workers": partial(native, precision="bf16", in_workers=True),
    "int8": partial(native, precision="int8"),
    "int8-workers": partial(native, precision="int8", in_workers=True),
}


def served(
    export: str,
    options: argparse.Namespace,
    search: Any,
    tokens: int,
    *,
    workers: int | None = None,
) -> Translate:
    import torch

    from translate.extras.ctranslate2_engine import CTranslate2Search
    from translate.inference import bundle, translator

    loaded = bundle.load(bundle.find(options.run))
    torch.set_num_threads(options.threads)  # of which a single worker takes all
    engine = CTranslate2Search(
        Path(export), loaded.tokenizers, search, tokens_per_batch=tokens,
        workers=workers or options.workers, device=options.device,
    )  # fmt: skip
    torch.set_num_threads(1)  # as `translate text` does where each line is answered
    return partial(streamed, translator.load(loaded, device=options.device, search=engine))


def direct(
    export: str,
    options: argparse.Namespace,
    search: Any,
    tokens: int,
    *,
    workers: int | None = None,
) -> Translate:
    import ctranslate2

    from translate.data.tokenizer import Tokenizer

    source, target = (Tokenizer.load(Path(export, f"{side}.spm")) for side in ("source", "target"))
    workers = workers or options.workers
    translator = ctranslate2.Translator(
        export, device=options.device, inter_threads=workers,
        intra_threads=options.workers // workers,
    )  # fmt: skip
    ids = {piece: i for i, piece in enumerate(target.pieces(range(len(target))))}
    beam = search.get("beam_size", 1)

    def translate(lines: list[str]) -> list[Translated]:
        results = translator.translate_batch(
            [source.spelled(line) for line in lines],
            beam_size=beam, length_penalty=search.get("alpha", 0.0), max_decoding_length=200,
            max_batch_size=tokens, batch_type="tokens",
        )  # fmt: skip
        best = [result.hypotheses[0] for result in results]
        return [Translated(target.decode([ids[piece] for piece in y]), len(y)) for y in best]

    return translate


EXPORTED: dict[str, Callable[..., Translate]] = {"served": served, "direct": direct}


def versions(device: str) -> str:
    from importlib.metadata import version
    from importlib.util import find_spec

    from translate.training.records import device_name

    named = [f"Python {platform.python_version()}", f"torch {version('torch')}"]
    if find_spec("ctranslate2"):
        named.append(f"ctranslate2 {version('ctranslate2')}")
    return f"{device_name(gpu=device != 'cpu')}: {', '.join(named)}"


if __name__ == "__main__":
    begin(main)
