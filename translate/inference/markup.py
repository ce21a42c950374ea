"""Lines that are XML or HTML: read as the characters they stand for, and written as markup again.

Between the two a text has tags, and references that are kept, as they are; all else is characters.
A `<` that is no tag stands as `&lt;`, so that nothing a model writes can become a tag.
"""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5
from typing import Literal, NamedTuple
from xml.parsers import expat

Markup = Literal["auto", "xml", "none"]

# a `>` within quotes ends no tag; every run is bounded or ends at the next `<`
TAG = (
    r"</?[^\W\d][^<>\"']*(?:(?:\"[^<\"]*\"|'[^<']*')[^<>\"']*)*>|</?[^\W\d][^<>]{0,500}>"
    r"|<!--(?:[^-]|-(?!->)){0,5000}-->|<\?[^<>]{0,500}\?>"
)
KEPT = r"&(?:#\w{1,8}|[A-Za-z][\w.-]{1,31});"  # a reference that is not read
READ = re.compile(
    rf"(?P<characters><!\[CDATA\[(?:[^\]]|\](?!\]>)){{0,5000}}\]\]>)|(?P<tag>{TAG})"
    rf"|(?P<reference>{KEPT})|(?P<stray><)"
)
LIKE_REFERENCE = re.compile(r"&(?=#?[\w.-]{1,32};)")
WRITTEN = re.compile(rf"{TAG}|{KEPT}|\]\]>|&")
NO_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2 Char
NAMED = re.compile(r"&[A-Za-z][\w.-]*;")


class Reading(NamedTuple):
    """A line as it is read.

    Attributes:
        references: every & of its translation is written as a reference.
        xml: it is XML, and so must its translation be.
    """

    text: str
    references: bool = False
    xml: bool = False


def read(line: str, markup: Markup | Literal["references"]) -> Reading:
    """Read a line with markup.

    Args:
        markup: `auto`: it is XML if it is well-formed; `references`: it is not, but references are
            read; `none`: all is characters.
    """
    if markup == "none":
        return Reading(line)
    xml = markup == "xml" or (markup == "auto" and well_formed(line))
    text = READ.sub(_as_xml if xml else _as_text, line)
    bare = "&amp;" in line and "&" not in re.sub(KEPT, "", line)
    return Reading(text, references=xml or bare, xml=xml)


def _as_xml(match: re.Match[str]) -> str:
    if match["characters"]:
        return as_characters(match[0][len("<![CDATA[") : -len("]]>")])
    return "&lt;" if match["stray"] else _as_text(match)


def _as_text(match: re.Match[str]) -> str:
    """Return what a part of a line stands for; what a reader would take for a tag stays."""
    reference = match["reference"]
    if not reference or (reference[1] != "#" and reference[1:] not in html5):
        return match[0]
    character = unescape(reference)
    if character == "<" or character == ">":
        return reference
    # &amp;lt; is no &lt;
    after = match.string[match.end() : match.end() + 34]
    return "&amp;" if LIKE_REFERENCE.match(character + after) else character


def as_characters(text: str) -> str:
    """Return characters as they stand in a text that was read, without those XML cannot hold."""
    return NO_XML.sub("", LIKE_REFERENCE.sub("&amp;", text).replace("<", "&lt;"))


def written(text: str) -> str:
    """Write a text that was read as markup: each & that is no reference becomes one."""
    return WRITTEN.sub(lambda part: ESCAPED.get(part[0], part[0]), text)


ESCAPED = {"&": "&amp;", "]]>": "]]&gt;"}


def well_formed(line: str) -> bool:
    """Tell whether a line can stand in an XML document, whatever entities that has."""
    parser = expat.ParserCreate()
    try:
        parser.Parse(f"<line>{NAMED.sub(' ', line)}</line>".encode(), True)
    except (expat.ExpatError, UnicodeEncodeError):
        return False
    return True
