"""Translate with encoder.onnx and step.onnx alone: a line in, a line out, greedily.

    python decoder.py < sentences

It knows nothing of the program that wrote them, and needs numpy, onnxruntime and sentencepiece: the
copy beside the graphs is an example for decoders in any language. graphs.json tells inputs and
outputs by name, ids and limits.
"""

from __future__ import annotations

import io
import json
import math
import os
import signal
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

BLANK = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}  # kinds of characters that nobody sees
Arrays = dict[str, Any]  # NumPy's, by the names of inputs or outputs
Run = Callable[[Arrays], Arrays]


def session(file: Path) -> Run:
    """A graph as a function of its inputs."""
    # else importing it numbers this machine in the user's home, and tells its makers what it runs
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime

    loaded = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in loaded.get_outputs()]
    return lambda inputs: dict(zip(names, loaded.run(names, inputs), strict=True))


def walk(
    encoder: Run,
    step: Run,
    sources: Sequence[Sequence[int]],
    choose: Callable[[int, Any], Any],
    *,
    ids: Mapping[str, int],
) -> list[list[tuple[int, float]]]:
    """Step from <s> to </s>: each row's tokens and their log-probabilities, </s> the last.

    `sources` end with </s>; `choose` says which tokens come next, from how many there are and the
    log-probabilities (rows, vocabulary).
    """
    mask = np.arange(max(map(len, sources))) < np.array([[len(source)] for source in sources])
    source = np.full(mask.shape, ids["pad"], dtype=np.int64)
    source[mask] = np.concatenate(sources)
    state = encoder({"source": source, "source_mask": mask})
    tokens = np.full(len(sources), ids["bos"], dtype=np.int64)
    going = np.ones(len(sources), dtype=bool)
    rows: list[list[tuple[int, float]]] = [[] for _ in sources]
    length = 0
    while going.any():
        inputs = {"tokens": tokens, "length": np.array(length, dtype=np.int64)}
        result = step(inputs | state)
        log_probs = result.pop("log_probs")
        # what has no `next` stays as it is
        state |= {name.removeprefix("next."): value for name, value in result.items()}
        tokens = choose(length, log_probs)
        for row in going.nonzero()[0]:
            rows[row].append((int(tokens[row]), float(log_probs[row, tokens[row]])))
        going &= tokens != ids["eos"]
        length += 1
    return rows


def greedy(limits: Sequence[int], *, eos: int) -> Callable[[int, Any], Any]:
    """The likeliest token; </s> after as many as a row may have."""
    return lambda length, log_probs: np.where(
        np.array(limits) <= length, eos, log_probs.argmax(axis=1)
    )


def main() -> None:
    """Translate standard input, a line at a time."""
    import sentencepiece

    folder = Path(__file__).parent
    about = json.loads((folder / "graphs.json").read_bytes())
    ids = about["ids"]
    encoder, step = (session(folder / about[name]["file"]) for name in ("encoder", "step"))
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        for side in ("source", "target")
    )
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", errors="replace", newline="\n")
    for number, line in enumerate(lines, start=1):
        text = " ".join(line.split())  # line breaks within are spaces too, as the program reads it
        if not any(unicodedata.category(character)[0] in "LMN" for character in text):
            sys.stdout.write((text if set(map(unicodedata.category, text)) - BLANK else "") + "\n")
            continue  # without a letter or a digit there is nothing to translate
        pieces = source.encode(text)
        tokens: list[int] = []
        if pieces:
            pieces = [*about["source_prefix"], *pieces]
            longest = (about["max_length"] or math.inf) - 1  # </s> is read too
            if len(pieces) > longest:
                raise SystemExit(
                    f"line {number} has {len(pieces)} pieces, but at most {longest} can be read: "
                    "split it"
                )
            most = about["max_length_ratio"] * len(pieces) + about["max_length_offset"]
            limit = int(min(most, longest))
            choose = greedy([limit], eos=ids["eos"])
            (rows,) = walk(encoder, step, [[*pieces, ids["eos"]]], choose, ids=ids)
            tokens = [token for token, _ in rows[:-1]]
        # a piece of bytes may spell a line break
        sys.stdout.write(" ".join(target.decode(tokens).splitlines()) + "\n")


if __name__ == "__main__":
    if hasattr(signal, "SIGPIPE"):  # not on Windows
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads may have seen enough
    try:
        main()
        sys.stdout.flush()  # here, where a full disk can still be told
    except OSError as error:
        sys.exit(f"{error.filename or 'standard output'}: {error.strerror}")
