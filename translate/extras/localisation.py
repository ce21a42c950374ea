"""Sources of pairs in the files of translators' programs: TMX, XLIFF and gettext's PO."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from translate.data.pairs import Pair
from translate.data.plain_text import one_line
from translate.data.sources import NonEmpty, Source, files_by_split
from translate.errors import UserError, first_line
from translate.extras.delimited import language, plain
from translate.files import file_hash
from translate.wording import install

READING = 1  # raise it when the same file would be read differently
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# elements that hold codes of a format in place of text
CODES = {"bpt", "ept", "ph", "it", "ut", "x", "bx", "ex", "sc", "ec", "cp"}

Unit = dict[str, list[str]]  # texts by language


class Localisation(Source):
    """A file of translation units a split (data=tmx, data=xliff, data=po)."""

    kind: Literal["tmx", "xliff", "po"]
    train: NonEmpty = Field(description="file")
    dev: NonEmpty | None = Field(description="file; null takes hold_out.dev sentences out of train")
    test: NonEmpty | None = Field(description="likewise")

    def fingerprint(self, cache: Path) -> str:
        hashes = " ".join(
            f"{split} {file_hash(path)}" for split, path in files_by_split(self).items()
        )
        return f"{hashes} {READING}"

    def open(self, cache: Path) -> Mapping[str, Iterable[Pair]]:
        return {split: self._pairs(path) for split, path in files_by_split(self).items()}

    def _pairs(self, path: Path) -> Iterator[Pair]:
        """Yield the pairs of a file; a unit without a translation has an empty side.

        Raises:
            UserError: it cannot be read, or no unit is in both languages.
        """
        there, both = set[str](), False
        for texts in READERS[self.kind](path):
            there |= texts.keys()
            sides = (_in(each, texts) for each in (self.source, self.target))
            for source, target in product(*sides):
                both = True
                yield Pair(_line(source), _line(target))
        if not both:
            raise UserError(
                f"{path} has no text in both {self.source} and {self.target}, but in "
                f"{', '.join(sorted(there)) or 'no language'}: set data.source and data.target"
            )


def _line(text: str) -> str:
    """Return a text on one line; how a file is laid out leaves no gaps in it."""
    return re.sub("[ \t]+", " ", one_line(text)).strip()


def _in(wanted: str, texts: Unit) -> list[str]:
    """Return the texts in a language: as it is named, else in any of its countries."""
    for form in (plain, language):
        hits = [several for name, several in texts.items() if form(name) == form(wanted)]
        if hits:
            return [*chain(*hits)]
    return []


def read_tmx(path: Path) -> Iterator[Unit]:
    """Read a translation memory (TMX 1.4b)."""
    for unit in _elements(path, "tu"):
        texts: Unit = {}
        for variant in unit.iterchildren("{*}tuv"):
            name = variant.get(XML_LANG) or variant.get("lang") or "?"
            texts.setdefault(name, []).extend(map(_text, variant.iterchildren("{*}seg")))
        yield texts


def read_xliff(path: Path) -> Iterator[Unit]:
    """Read XLIFF 1.2 and 2: units of a source and a target."""
    for unit in _elements(path, "trans-unit", "segment"):
        places = dict(unit.getroottree().getroot().attrib)
        for file in unit.iterancestors("{*}file"):
            places |= dict(file.attrib)
        names = (
            places.get("srcLang") or places.get("source-language") or "?",
            places.get("trgLang") or places.get("target-language") or "?",
        )
        sides = [[*map(_text, unit.iterchildren(f"{{*}}{side}"))] for side in ("source", "target")]
        yield {name: texts or [""] for name, texts in zip(names, sides, strict=True)}


def read_po(path: Path) -> Iterator[Unit]:
    """Read a catalogue of gettext, which is taken for one of English where it does not say so.

    Entries that are fuzzy or obsolete are left out. Of a plural the first form of the translation
    belongs to the singular, and its last to the plural.
    """
    try:
        import polib
    except ImportError:
        raise UserError(f"data=po needs the package polib: {install('po')}") from None
    try:
        catalogue = polib.pofile(str(path))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"{path} cannot be read as PO: {first_line(error)}") from None
    names = (
        catalogue.metadata.get("X-Source-Language") or "en",
        catalogue.metadata.get("Language") or "?",
    )
    for entry in catalogue:
        if entry.obsolete or "fuzzy" in entry.flags:
            continue
        forms = [form for _, form in sorted(entry.msgstr_plural.items())] or [entry.msgstr]
        pairs = [(entry.msgid, forms[0])]
        pairs += [(entry.msgid_plural, forms[-1])] if entry.msgid_plural else []
        for pair in pairs:
            yield {name: [text] for name, text in zip(names, pair, strict=True)}


READERS: Mapping[str, Callable[[Path], Iterator[Unit]]] = {
    "tmx": read_tmx, "xliff": read_xliff, "po": read_po,
}  # fmt: skip


def _elements(path: Path, *names: str) -> Iterator[Any]:
    """Yield the elements of these names, each of which is forgotten when the next one is asked for.

    No entity is looked up, no document type loaded and nothing fetched.
    """
    from lxml import etree

    try:
        for _, element in etree.iterparse(
            str(path), tag=[f"{{*}}{name}" for name in names], resolve_entities=False,
            no_network=True, load_dtd=False,
        ):  # fmt: skip
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]
    except (OSError, etree.XMLSyntaxError) as error:
        raise UserError(f"{path} cannot be read as XML: {first_line(error)}") from None


def _text(element: Any) -> str:
    """Return the text of an element without codes of a format."""
    parts = element.text or ""
    for child in element:
        codes = not isinstance(child.tag, str) or child.tag.rpartition("}")[2] in CODES
        parts += ("" if codes else _text(child)) + (child.tail or "")
    return parts
