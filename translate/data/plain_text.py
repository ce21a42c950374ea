r"""Text files as lines: bytes in, one string a line out, and nothing but `\n` ends a line.

`str.splitlines`, text-mode files and most loaders also break at U+2028, U+0085 or `\x0b`, which
stand inside real sentences; two parallel files read that way fall out of step without a word.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import lzma
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

from translate.errors import UserError
from translate.files import file_hash
from translate.names import on_demand
from translate.wording import counted

log = logging.getLogger(__name__)

LONGEST = 1 << 26  # bytes of a line: what never ends is no text
# the first bytes of packed text, and what unpacks a stream of it
UNPACKERS = {
    "gzip": (re.compile(rb"\x1f\x8b"), "translate.data.plain_text:_ungzipped"),
    "xz": (re.compile(rb"\xfd7zXZ\0"), "lzma:LZMAFile"),
    "bzip2": (re.compile(rb"BZh[1-9]1AY&SY"), "bz2:BZ2File"),
    "zstd": (re.compile(rb"\x28\xb5\x2f\xfd"), "translate.extras.zstd:unpacked"),
}
PACKED = (".gz", ".xz", ".bz2", ".zst")  # endings of their names
# of no width, within words too: controls, marks of direction, joiners and non-joiners
INVISIBLE = re.compile(
    "[\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\ufeff]"
)
# what one reader takes for a space and another for nothing; ▁ is SentencePiece's own space
BETWEEN = re.compile(rf"{INVISIBLE.pattern}|[\s\u2581\ufffd]")
BLANK = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}  # controls, formats, surrogates, separators
OTHER_FORMAT = re.compile(rb"\xff\xfe|\xfe\xff|PK\x03\x04")  # how UTF-16 and zip begin
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
FEW = 5  # lines that are not UTF-8: slips in any file
# whatever any reader takes for a line's end
LINE_BREAK = "\r\n|[\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029]"
LINE_BREAKS = re.compile(f"(?:{LINE_BREAK})+")
# Scripts that put no spaces between words, and their punctuation: Thai, Lao, Tibetan, Burmese;
# Khmer; Chinese, Japanese, Yi. Full-width Latin letters are words between other signs.
UNSPACED = (
    "["
    "\u0e00-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\u1780-\u17ff\u19e0-\u19ff"
    "\u2e80-\u2fff\u3001-\u312f\u3190-\u9fff\ua000-\ua4cf\uf900-\ufaff\ufe30-\ufe4f"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f\U0001aff0-\U0001b16f"
    "\U00020000-\U0003ffff"
    "]"
)
_UNSPACED = re.compile(UNSPACED)
LETTER = re.compile(rf"(?=\w){UNSPACED}")
# a word behind another, so that a capital is not that of a sentence
LATER_WORD = re.compile(r"(?:(?<=\w )|(?<=\w, ))[^\W\d_][\w'’-]*[^\W_]")
END, JOIN = "\1", "\2"  # of a letter that stands alone, and before what belongs to it
WITH_MARKS = re.compile(rf"{LETTER.pattern}[^\w\s]*")  # and the punctuation that follows
SURROGATES = re.compile("[\ud800-\udfff]")
Link = tuple[int, int]  # (source word, target word)
LINK = re.compile(r"([0-9]+)([-p?])([0-9]+)")


def read_lines(
    file: str | Path | BinaryIO, *, strict: bool = False, tolerated: float = 1.0
) -> Iterator[str]:
    r"""Yield the lines of a file or a binary stream, plain or packed (known by its first bytes).

    One `\r` before the line's end and a byte-order mark at the start are dropped. Bytes that are
    not UTF-8 become U+FFFD with a warning that names the line; with `strict` they raise UserError
    instead, as UTF-16 and text packed otherwise always do. At the end so does a file with more of
    them than `FEW` and the share `tolerated`: it has another encoding.
    """
    with ExitStack() as stack:
        if isinstance(file, str | Path):
            name, stream = str(file), stack.enter_context(_open(Path(file)))
        else:
            name, stream = str(getattr(file, "name", "input")), file
        yield from _decode(_raw_lines(stream, name), name, strict, tolerated)


def count_lines(path: str | Path) -> int:
    """Count the lines that `read_lines` yields, without decoding them."""
    with _open(Path(path)) as stream:
        return sum(1 for _ in _raw_lines(stream, str(path)))


def text_hash(path: Path) -> str:
    """SHA-256 of a file's text, however it is packed: gzip notes the time."""
    if not path.is_file():
        return file_hash(path)  # which says what it is
    digest = hashlib.sha256()
    with _open(path) as stream:
        for line in _raw_lines(stream, str(path)):
            digest.update(line)
    return digest.hexdigest()


def unpacked_name(name: str) -> str:
    """A file's name without the ending that says how it is packed."""
    return name.removesuffix(Path(name).suffix) if Path(name).suffix in PACKED else name


def json_line(record: Mapping[str, object]) -> str:
    """JSON as one line for every kind of reader."""
    text = json.dumps(record, ensure_ascii=False)
    return LINE_BREAKS.sub(lambda match: "".join(f"\\u{ord(x):04x}" for x in match[0]), text)


def one_line(text: str) -> str:
    """`text` without the end of its line, and every run of line breaks within as one space."""
    return LINE_BREAKS.sub(" ", text.removesuffix("\n").removesuffix("\r"))


def without_surrogates(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 can hold, as U+FFFD."""
    return SURROGATES.sub("\ufffd", text)


@lru_cache(1 << 14)  # a name takes long to look up
def unspaced(character: str) -> bool:
    """Tell whether a letter or sign is of a script that puts no spaces between words."""
    return _UNSPACED.match(character) is not None


def spaced(text: str) -> str:
    """`text` with spaces around each character of a script without."""
    return text if text.isascii() else _UNSPACED.sub(r" \g<0> ", text)


def stands_alone(character: str) -> bool:
    """Tell whether a character is a letter of a script without spaces; an empty text is not."""
    return character.isalpha() and unspaced(character)


def mostly_unspaced(text: str) -> bool:
    """Tell whether more than half of the letters are of scripts without spaces."""
    letters = [unspaced(character) for character in text if character.isalpha()]
    return 2 * sum(letters) > len(letters)


def words(text: str) -> list[str]:
    """Words between white space, each letter of a script without spaces by itself."""
    return WITH_MARKS.sub(r" \g<0> ", text).split()


def bare_words(text: str) -> list[str]:
    """The same without punctuation and signs: letters, their marks, and digits."""
    bare = text.translate(BARE)
    if not text.isascii():
        bare = bare.replace(END + JOIN, "").replace(END, " ").replace(JOIN, "")
    return bare.split()


class _Bare(dict[int, str]):
    """Character → its replacement in `bare_words`, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        kind = unicodedata.category(character)[0]
        if not unspaced(character):
            shown = character if kind in "LMN" else " "
        elif kind == "M":  # vowels and tones, and the voice of か: no letters by themselves
            shown = f"{JOIN}{character}{END}"
        else:
            shown = f" {character}{END}" if kind in "LN" else " "
        return self.setdefault(code, shown)


BARE = _Bare()


def spells_a_word(character: str) -> bool:
    """Tell whether it is a letter, mark or digit of a word that ends where such characters end.

    Not so in scripts without spaces, nor in Korean, where particles follow a word without one.
    """
    wide = unicodedata.east_asian_width(character) in "FW"
    return unicodedata.category(character)[0] in "LMN" and not wide and not unspaced(character)


def has_text(line: str) -> bool:
    """Tell whether there is anything to see in a line."""
    return any(unicodedata.category(character) not in BLANK for character in line)


def normalise(text: str) -> str:
    """The form in which two words count as the same.

    Neither case nor invisible characters tell them apart, nor the ways to write a character that a
    tokenizer reads alike: é or e and an accent, ﬁ or fi, … or three dots, １ or 1.
    """
    if text.isascii() and text.isprintable():
        return fold(text)
    composed = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    return unicodedata.normalize("NFKC", fold(composed))  # of some letters other cases are not


def sameness(text: str) -> str:
    """The form in which two sentences count as the same: that of their words, without spaces.

    Signs of no width are spaces to one tokenizer and nothing to another: a sentence with a
    non-joiner is the same as with a space there and as with neither.
    """
    if text.isascii() and text.isprintable():
        return text.casefold().replace(" ", "")
    composed = unicodedata.normalize("NFKC", text)  # some signs are spaces with an accent
    return unicodedata.normalize("NFKC", BETWEEN.sub("", composed.casefold()))


def fold(text: str) -> str:
    """`text` without differences of case and spaces."""
    return " ".join(text.casefold().split())


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the path") from None


def _raw_lines(stream: BinaryIO, name: str) -> Iterator[bytes]:
    head = stream.readline(LONGEST)
    if OTHER_FORMAT.match(head):
        raise UserError(
            f"{name} is no plain text, judging by its first bytes: unpack it (only gzip, xz, bzip2 "
            "and zstd are read), or convert UTF-16: iconv -f UTF-16 -t UTF-8"
        )
    kind = next((kind for kind, (magic, _) in UNPACKERS.items() if magic.match(head)), None)
    if kind is None:
        yield from _bounded(stream, name, head)
        return
    try:
        with on_demand(UNPACKERS[kind][1])(_WoundBack(head, stream)) as plain:
            yield from _bounded(plain, name)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{name} is a damaged {kind} file ({error}); fetch it again") from None


def _ungzipped(stream: BinaryIO) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=stream)


def _bounded(stream: BinaryIO, name: str, head: bytes = b"") -> Iterator[bytes]:
    """Yield the lines of a stream after what was read of it before."""
    rest = iter(partial(stream.readline, LONGEST), b"")
    for number, line in enumerate(chain([head] if head else [], rest), start=1):
        if len(line) == LONGEST:
            raise UserError(
                f"{name}, line {number} has {LONGEST:,} bytes or more: is this a file of text?"
            )
        yield line


class _WoundBack:
    """A stream with what was read of it before; one such as stdin cannot seek."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        self.head, self.stream = head, stream

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes, and at least one before the end."""
        read, self.head = self.head[:size], self.head[size:]
        return read or self.stream.read(size)


def _decode(lines: Iterable[bytes], name: str, strict: bool, tolerated: float) -> Iterator[str]:
    number = invalid = 0
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{name}, line {number}: byte {line[error.start]:#04x} is not UTF-8"
            if strict:
                raise UserError(f"{place}; convert the file, for instance with iconv") from None
            if not invalid:
                log.warning("%s and was replaced", place)
            invalid += 1
            yield line.decode("utf-8", "replace")
    if (
        number == 1
        and tolerated < 1
        and (ends := LINE_BREAKS.findall(line.decode("utf-8", "replace")))
    ):
        raise UserError(_one_long_line(name, ends[0], len(ends)))
    if invalid > max(FEW, tolerated * number):
        raise UserError(
            f"{name}: {invalid:,} of {number:,} lines contain bytes that are not UTF-8; convert "
            "it, for instance by iconv -f LATIN1 -t UTF-8"
        )
    if invalid > 1:
        log.warning("%s: %d lines in total contained bytes that are not UTF-8", name, invalid)


def _one_long_line(name: str, end: str, count: int) -> str:
    code = "".join(f"\\x{byte:02x}" for byte in end[0].encode())
    return (
        f"{name} has no line feed, but {count:,} other line ends ({end[0]!a}), so that it is one "
        f"line: write it again with sed 's/{code}/\\n/g' {name} > FILE"
    )


# Word alignments as text, a line a pair: `0-0 1-2 2p3`, source and target positions from 0. `i-j`
# is a sure link; `ipj` and `i?j` are possible ones, which annotators could not agree on.


class Gold(NamedTuple):
    """The links of one pair."""

    sure: frozenset[Link]
    possible: frozenset[Link]  # without the sure ones


def to_line(links: Iterable[Sequence[int]]) -> str:
    """Links in order of source, then target: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in sorted((i, j) for i, j in links))


def from_line(line: str, place: str = "links") -> Gold:
    """Links of one line; `place` is where it stands.

    Raises:
        UserError: something that is no link.
    """
    links: dict[str, set[Link]] = {"-": set(), "p": set(), "?": set()}
    for word in line.split():
        match = LINK.fullmatch(word)
        if match is None:
            raise UserError(
                f"{place}: {word!r} is not a link: write i-j (sure), ipj or i?j (possible), with "
                "the positions of a source and a target word, counted from 0"
            )
        links[match[2]].add((int(match[1]), int(match[3])))
    return Gold(frozenset(links["-"]), frozenset((links["p"] | links["?"]) - links["-"]))


def read_links(path: str | Path, sources: Sequence[str], targets: Sequence[str]) -> list[Gold]:
    """The links of the pairs of `sources` and `targets`, line by line.

    Raises:
        UserError: another number of lines than pairs, something that is no link, or a link to a
            word that the pair does not have.
    """
    lines = list(read_lines(path))
    if len(lines) != len(sources):
        raise UserError(
            f"{path} has {counted(len(lines), 'line')} for {counted(len(sources), 'pair')} of "
            "sentences: line n must hold the links of pair n"
        )
    pairs = zip(lines, sources, targets, strict=True)
    return [_checked(*pair, f"{path}, line {n}") for n, pair in enumerate(pairs, start=1)]


def _checked(line: str, source: str, target: str, place: str) -> Gold:
    gold = from_line(line, place)
    sizes = len(source.split()), len(target.split())
    for link in sorted(gold.sure | gold.possible):
        for side, position, size in zip(("source", "target"), link, sizes, strict=True):
            if position >= size:
                there = f"words 0 to {size - 1}" if size else "no words"
                raise UserError(
                    f"{place}: {link[0]}-{link[1]} links a {side} word {position}, but that "
                    f"sentence has {there}: positions count from 0, and words are separated by "
                    "spaces"
                )
    return gold
