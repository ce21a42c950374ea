"""The closed classes: names, pronouns, determiners, prepositions, modals and conjunctions."""

from __future__ import annotations

from translate.data.toy.lexicon import Determiner, Modal, Person, Phrase, Preposition, units

NAMES = (
    *("Anna", "Peter", "Maria", "Paul", "Lena", "Max", "Julia", "Thomas"),
    *("Sophie", "Felix", "Emma", "Jonas"),
)

ICH = Person(
    1, "sg", {"nom": "ich", "acc": "mich", "dat": "mir"}, "mich", {"subject": "I", "object": "me"}
)
DU = Person(
    2, "sg", {"nom": "du", "acc": "dich", "dat": "dir"}, "dich", {"subject": "you", "object": "you"}
)
ER = Person(
    3, "sg", {"nom": "er", "acc": "ihn", "dat": "ihm"}, "sich", {"subject": "he", "object": "him"}
)
SIE = Person(3, "sg", {"nom": "sie"}, "sich", {"subject": "she"})
WIR = Person(
    1, "pl", {"nom": "wir", "acc": "uns", "dat": "uns"}, "uns", {"subject": "we", "object": "us"}
)
SIE_PLURAL = Person(3, "pl", {"nom": "sie"}, "sich", {"subject": "they"})
PERSONS = (ICH, DU, ER, SIE, WIR, SIE_PLURAL)
ES = Person(3, "sg", {"nom": "es"}, "sich", {"subject": "it"})
ES_THERE = Person(3, "sg", {"nom": "es"}, "sich", {"subject": "there"})

DEFINITE = Determiner("der", {"sg": "the", "pl": "the"}, "der", "weak")
INDEFINITE = Determiner("ein", {"sg": "a"}, "ein", "mixed")
NO = Determiner("kein", {"sg": "no", "pl": "no"}, "ein", "mixed")
BARE = Determiner("", {"sg": "", "pl": ""}, "none", "strong")
THIS = Determiner("dies", {"sg": "this", "pl": "these"}, "dieser", "weak")
POSSESSIVES = tuple(
    Determiner(german, {"sg": english, "pl": english}, "ein", "mixed")
    for german, english in (("mein", "my"), ("dein", "your"), ("sein", "his"), ("unser", "our"))
)
EVERY = Determiner("jed", {"sg": "every"}, "dieser", "weak")
QUANTIFIERS = (
    Determiner("all", {"pl": "all"}, "dieser", "weak"),
    Determiner("beid", {"pl": "both"}, "dieser", "weak"),
    Determiner("viel", {"pl": "many"}, "dieser", "strong"),
    Determiner("wenig", {"pl": "few"}, "dieser", "strong"),
    Determiner("einig", {"pl": "some"}, "dieser", "strong"),
    Determiner("mehrer", {"pl": "several"}, "dieser", "strong"),
)

PLACES = (
    Preposition("in", "dat", "in"),
    Preposition("vor", "dat", "in front of"),
    Preposition("hinter", "dat", "behind"),
    Preposition("neben", "dat", "next to"),
    Preposition("bei", "dat", "near"),
)
DIRECTIONS = (
    Preposition("zu", "dat", "to"),
    Preposition("in", "acc", "into"),
    Preposition("aus", "dat", "out of"),
    Preposition("durch", "acc", "through"),
    Preposition("um", "acc", "around"),
)
COMPANIONS = (
    Preposition("mit", "dat", "with"),
    Preposition("ohne", "acc", "without"),
    Preposition("für", "acc", "for"),
)
AGENT = Preposition("von", "dat", "by")

MODALS = (
    Modal("können", "kann", "konnte", ("can",), ("could",)),
    Modal("müssen", "muss", "musste", ("have", "to"), ("have", "to")),
    Modal("wollen", "will", "wollte", ("want", "to"), ("want", "to")),
    Modal("sollen", "soll", None, ("should",), ()),
    Modal("dürfen", "darf", None, ("may",), ()),
)

TENDENCIES = tuple(entry for entry in MODALS if entry.infinitive != "wollen")  # for who has no will

COMPLEMENTIZERS = {
    "that": Phrase("complementizer", (("dass",),), (("that",),)),
    "whether": Phrase("complementizer", (("ob",),), (("whether",),)),
}
SUBORDINATORS = tuple(
    Phrase("subordinator", units(german), units(english))
    for german, english in (
        ("weil", "because"),
        ("wenn", "when"),
        ("falls", "if"),
        ("obwohl", "although"),
        ("während", "while"),
        ("bevor", "before"),
        ("nachdem", "after"),
        ("bis", "until"),
        ("da", "since"),
        ("damit", "so_that"),
        ("sobald", "as_soon_as"),
        ("solange", "as_long_as"),
    )
)
COORDINATORS = tuple(
    Phrase("coordinator", units(german), units(english))
    for german, english in (("und", "and"), ("oder", "or"))
)
CONTRASTS = tuple(  # these take a comma before them in both languages
    Phrase("coordinator", units(german), units(english))
    for german, english in (("aber", "but"), ("doch", "yet"), ("denn", "for"))
)
