"""translate align: which word translates which."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field, PositiveInt

from translate.cli.arguments import file_name
from translate.cli.options import DEVICE, TARGET, Device, PathOption, SplitOptions
from translate.data.pairs import in_order
from translate.data.plain_text import Gold, Link, read_links, to_line
from translate.errors import UserError
from translate.evaluation.alignment import alignment_error_rate, linkers
from translate.evaluation.report import as_lines, digest, fingerprint, name_in
from translate.evaluation.test_sets import (
    SPLITS,
    corpus_of_run,
    is_own_corpus,
    name_of,
    parallel_lines,
)
from translate.files import refuse_links, write
from translate.inference.bundle import of_run
from translate.names import on_demand
from translate.wording import counted

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from translate.models.head import AttentionHead

    class Aligner(Protocol):
        """The aligner of extras/attention_maps.py."""

        head: AttentionHead

        def __call__(
            self, sources: Sequence[str], targets: Sequence[str]
        ) -> Iterator[Float[np.ndarray, "T S"]]: ...


log = logging.getLogger(__name__)

ALIGNER = "translate.extras.attention_maps:Aligner"

OPTIONS = ("target", "layer", "head", "method", "threshold")  # that links depend on
USAGE = """\
  translate align run=runs/toy             # its test sentences, and the error rate
  translate align run=runs/demo input=src.txt reference=tgt.txt > links.txt
  translate align run=runs/demo input=src.txt reference=tgt.txt gold=gold.txt method=threshold
  translate align run=runs/es-en reverse=runs/en-es input=s.es reference=s.en method=intersection

Writes a line of links i-j for each pair (Pharaoh's format): word i of the source goes with word j
of the target, counted from 0, where words are separated by white space. An empty line gives an
empty line. The model reads the given translation; it does not make its own.

With gold links, alignment error rate, precision and recall (Och & Ney 2003) go to standard error
and to evaluation/<name>.alignment.json in the run. The name also has the target, layer, head,
method and threshold that are given. If other sentences already have that name, a different one is
chosen. A line of gold has links i-j (sure) and ipj or i?j (possible). Without input and reference,
the run's own test sentences are aligned, provided that their corpus has gold alignments, as
data=toy has; only its sure links count, and the links found are kept in evaluation/<name>.links.
The JSON has the SHA-256 of model, sentences, links and gold.
"""

BOTH_DIRECTIONS = ("intersection", "union")


class Task(NamedTuple):
    """The sentences to align, with their gold links.

    `holds_name`: whether its name is its own, and not the one of a split that others have.
    """

    name: str
    holds_name: bool
    sources: Sequence[str]
    targets: Sequence[str]
    gold: Sequence[Gold] | None


class AlignOptions(SplitOptions):
    """The options of `translate align`."""

    usage: ClassVar[str] = USAGE

    run: PathOption = Field(description="the folder of the run")
    input: PathOption | None = Field(
        None, description="source sentences, a line each (.gz too), with"
    )
    reference: PathOption | None = Field(None, description="their translations, a line each")
    gold: PathOption | None = Field(
        None, description="their gold links, a line each, to score against"
    )
    output: PathOption | None = Field(
        None, description="a file for the links; default: standard output"
    )
    target: str | None = Field(None, description=TARGET)
    layer: PositiveInt | None = Field(
        None,
        description="of the decoder, from 1; null: the one that trainer.guided_alignment trained, "
        "else the last of one or two, the second to last of three or more",
    )
    head: PositiveInt | None = Field(
        None,
        description="from 1; null: the one that was trained (in its own layer), else the mean of "
        "all",
    )
    method: Literal["argmax", "threshold", "intersection", "union"] = Field(
        "argmax",
        description="argmax: each target word with the source word it attends to most; threshold: "
        "all pairs with at least the weight `threshold`; intersection, union: of argmax in both "
        "directions, of which the second links each source word to the target word that attends to "
        "it most, unless reverse is given",
    )
    threshold: Annotated[float, Field(gt=0, le=1)] = Field(
        0.3, description="with method=threshold: the least weight that makes a link"
    )
    reverse: PathOption | None = Field(
        None, description="a run that translates the opposite way, to link in the second direction"
    )
    device: Device = DEVICE
    tokens_per_batch: PositiveInt = Field(
        4096, description="tokens of the longer side, padding included, that are aligned at once"
    )

    def contradictions(self) -> Iterator[str]:
        from translate.cli.streams import output_problems

        files = [key for key in ("input", "reference") if key in self.verbatim]
        if len(files) == 1 or (self.gold is not None and not files):
            missing = [f"{key}=FILE" for key in ("input", "reference") if key not in files]
            yield f"{' and '.join(missing)} missing: input= and reference= go together"
        if self.reverse is not None and self.method not in BOTH_DIRECTIONS:
            yield f"reverse= is for method={' or '.join(BOTH_DIRECTIONS)}"
        if "threshold" in self.typed and self.method != "threshold":
            yield "threshold= is for method=threshold"
        yield from output_problems(self.verbatim)


def run(options: AlignOptions) -> None:
    """Write the links of every pair, and score them where there is gold."""
    from translate.cli.streams import lines_out
    from translate.data.progress import progress

    forward, backward = aligners(options)
    task = own_files(options) or split_of_run(options)
    # typed options are in the names of files, so that they replace no others' files
    typed = [f"{key}={getattr(options, key)}" for key in OPTIONS if key in options.typed]
    typed += ["reverse"] if options.reverse is not None else []
    name = "-".join(filter(None, [task.name, file_name(typed)]))
    runs = {"model": options.run, "reverse": options.reverse}
    sha256 = {key: of_run(run).weights_sha256 for key, run in runs.items() if run is not None}
    sha256 |= {"sources": fingerprint(task.sources), "references": fingerprint(task.targets)}
    refuse_links(Path(options.run), "evaluation")
    folder = Path(options.run) / "evaluation"
    figures = name_in(
        folder, f"{name}.alignment", holds_name=task.holds_name,
        sources_sha256=sha256["sources"], references_sha256=sha256["references"],
    )  # fmt: skip
    out = dict(options.verbatim)
    if options.input is None:
        ending = figures.removeprefix(f"{name}.alignment")
        out.setdefault("output", str(folder / f"{name}{ending}.links"))
    if task.gold is not None:  # as a split always has: else nothing is written there
        folder.mkdir(parents=True, exist_ok=True)
    weights = forward(task.sources, task.targets)
    both: Iterable[tuple[Float[np.ndarray, "T S"], Float[np.ndarray, "S T"]]]
    if backward is None:
        both = ((matrix, matrix.T) for matrix in weights)
    else:
        both = zip(weights, backward(task.targets, task.sources), strict=True)
    linker = linkers(threshold=options.threshold)[options.method]
    links: list[frozenset[Link]] = []
    with progress("aligning", total=len(task.sources)) as advance, lines_out(out) as put:
        for directions in both:
            links.append(linker(*directions))
            put(to_line(links[-1]))
            advance(1)
    if task.gold is not None:
        settings = asdict(forward.head) | {"method": options.method, "target": options.target}
        if options.method == "threshold":
            settings["threshold"] = options.threshold
        score(links, task.gold, folder / f"{figures}.json", settings, sha256)


def aligners(options: AlignOptions) -> tuple[Aligner, Aligner | None]:
    """The aligner from source to target and, with a reverse run, the one from target to source."""
    from translate.inference.batches import choose_device
    from translate.models.head import choose_head

    device = choose_device(options.device)
    made: list[Aligner] = []
    languages = []
    for run in filter(None, [options.run, options.reverse]):
        bundle = of_run(run).into(None if made else options.target)
        layer, head = wanted_head(bundle.config.taught, options.layer, options.head)
        try:
            chosen = choose_head(bundle.model, layer=layer, head=head)
        except UserError as error:
            raise UserError(f"{run}: {error}") from error
        languages.append(bundle.config.languages)
        made.append(
            on_demand(ALIGNER)(
                bundle.model, bundle.tokenizers, chosen,
                tokens_per_batch=options.tokens_per_batch, device=device,
            )
        )  # fmt: skip
    if len(made) == 1:
        return made[0], None
    if languages[0] != languages[1][::-1]:
        raise UserError(
            f"reverse={options.reverse} translates {' to '.join(languages[1])}, but "
            f"{options.run} translates {' to '.join(languages[0])}: give a run for the "
            "opposite direction"
        )
    return made[0], made[1]


def wanted_head(
    taught: AttentionHead | None, layer: int | None, head: int | None
) -> tuple[int | None, int | None]:
    """Layer and head, each as it was taught where it is not given: the head in its own layer."""
    if taught is None or layer not in (None, taught.layer):
        return layer, head
    return taught.layer, head or taught.head


def own_files(options: AlignOptions) -> Task | None:
    """Read the files `input=`, `reference=` and `gold=`; None where none are named."""
    if options.input is None:
        return None
    assert options.reference is not None  # `contradictions` sees to it
    options.check_corpus()
    sources, (targets,) = parallel_lines(options.input, [options.reference])
    gold = None if options.gold is None else read_links(options.gold, sources, targets)
    name = name_of(options.input)
    return Task(name, name not in SPLITS, sources, targets, gold)


def split_of_run(options: AlignOptions) -> Task:
    """Read the split `data.split` of a corpus, which keeps no links but sure ones."""
    run = Path(options.run)
    _, table = corpus_of_run(run, **options.corpus)
    if "alignment" not in table.column_names:
        raise UserError(
            f"the corpus of {run} has no gold alignments: give input=FILE reference=FILE (and "
            "gold=FILE to score)"
        )
    sources, references, links = (
        list(in_order(table, name)) for name in ("source", "references", "alignment")
    )
    gold = [Gold(frozenset(map(tuple, each)), frozenset()) for each in links]
    targets = [first for first, *_ in references]
    return Task(options.split, is_own_corpus(run, options.data), sources, targets, gold)


def score(
    links: Sequence[frozenset[Link]],
    gold: Sequence[Gold],
    path: Path,
    settings: Mapping[str, Any],
    sha256: Mapping[str, str],
) -> None:
    """Log how good the links are, and write the figures with the origin of the links."""
    scores = alignment_error_rate(
        [each.sure for each in gold], [each.possible for each in gold], links
    )
    counts = {
        "pairs": len(links),
        "links": sum(map(len, links)),
        "sure": sum(len(each.sure) for each in gold),
        "possible": sum(len(each.possible) for each in gold),
    }
    digests = {
        **sha256,
        "links": digest(as_lines([to_line(each) for each in links])),
        "gold": fingerprint([[sorted(each.sure), sorted(each.possible)] for each in gold]),
    }
    command = shlex.join(["translate", *sys.argv[1:]])
    figures = {**asdict(scores), **counts, **settings, "command": command, "sha256": digests}
    # a path in the command may hold bytes that are no UTF-8; Python escapes them as JSON
    write(path, (json.dumps(figures, indent=2) + "\n").encode())
    log.info(
        "AER %.4f, precision %.4f, recall %.4f (%s, %s; gold: %s sure, %s more possible); %s",
        scores.error_rate, scores.precision, scores.recall,
        counted(counts["pairs"], "pair"), counted(counts["links"], "link"),
        f"{counts['sure']:,}", f"{counts['possible']:,}", path,
    )  # fmt: skip
