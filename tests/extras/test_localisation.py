"""Pairs from the files of translators' programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from conf_nodes import node

from translate.data.corpus import read_nodes
from translate.data.pairs import Pair
from translate.errors import UserError

TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "http://nowhere.invalid/tmx14.dtd" [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>a <bpt i="1">&lt;b&gt;</bpt>red<ept i="1">&lt;/b&gt;</ept>
 house</seg></tuv>
<tuv xml:lang="DE"><seg>ein <hi>rotes</hi>
Haus</seg></tuv><tuv xml:lang="fr"><seg>une maison</seg></tuv></tu>
<tu><tuv lang="EN-GB"><seg>&x;yes</seg></tuv><tuv lang="de-AT"><seg>ja</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
</body></tmx>"""
XLIFF_1 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file source-language="en" target-language="de"><body>
<trans-unit id="1"><source>a <g id="1">red</g> house<x id="2"/></source>
<target>ein rotes Haus</target></trans-unit>
<group><trans-unit id="2"><source>yes</source></trans-unit></group>
</body></file></xliff>"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en" trgLang="de">
<file id="f"><unit id="1"><segment><source>a <pc id="1">red</pc> house</source>
<target>ein rotes Haus</target></segment>
<segment><source>yes</source><target/></segment></unit></file></xliff>"""
PO = """msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "a red house"
msgstr "ein rotes Haus"

#, fuzzy
msgid "no"
msgstr "ja"

msgid "%d day"
msgid_plural "%d days"
msgstr[0] "%d Tag"
msgstr[1] "%d Tage"

msgid "yes"
msgstr ""
"""
FIRST = Pair("a red house", "ein rotes Haus")
FILES = {
    "tmx": (TMX, [FIRST, Pair("yes", "ja")]),
    "xliff 1.2": (XLIFF_1, [FIRST, Pair("yes", "")]),
    "xliff 2.0": (XLIFF_2, [FIRST, Pair("yes", "")]),
    "po": (PO, [FIRST, Pair("%d day", "%d Tag"), Pair("%d days", "%d Tage"), Pair("yes", "")]),
}


def read(kind: str, path: Path, source: str, target: str) -> list[Pair]:
    data = node("data", kind, source=source, target=target, train=str(path))
    return list(read_nodes(data, node("tokenizer", "bpe"))[0].read(path.parent / "c")["train"])


@pytest.mark.parametrize("name", FILES)
def test_units_are_pairs_in_either_direction(tmp_path: Path, name: str) -> None:
    kind, (content, pairs) = name.partition(" ")[0], FILES[name]
    path = tmp_path / "file"
    path.write_text(content, encoding="utf-8")
    assert read(kind, path, "en", "de") == pairs
    assert read(kind, path, "de", "en") == [Pair(pair.target, pair.source) for pair in pairs]
    with pytest.raises(UserError, match=r"no text in both en and it, but in .*de.*: set data."):
        read(kind, path, "en", "it")
    path.write_bytes(b"<tmx><tu>\xff" if kind != "po" else b"no catalogue")
    with pytest.raises(UserError, match=f"{path} cannot be read as"):
        read(kind, path, "en", "de")


def test_utf_16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "memory.tmx"
    path.write_bytes(TMX.replace('<?xml version="1.0"?>', "").encode("utf-16"))
    assert read("tmx", path, "en", "de")[0] == FIRST
