"""German word forms: declension and conjugation by rule, irregular forms from the tables."""

from __future__ import annotations

import re
from functools import cache

from translate.data.toy.lexicon import (
    Adjective,
    Case,
    Determiner,
    Gender,
    Modal,
    Noun,
    Number,
    Verb,
)

# Endings by case: masculine, feminine, neuter, plural.
DETERMINER_ENDINGS = {
    "dieser": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "es er es er"},
    "ein": {"nom": "- e - e", "acc": "en e - e", "dat": "em er em en", "gen": "es er es er"},
    "der": {
        "nom": "der die das die",
        "acc": "den die das die",
        "dat": "dem der dem den",
        "gen": "des der des der",
    },
}
ADJECTIVE_ENDINGS = {
    "weak": {"nom": "e e e en", "acc": "en e e en", "dat": "en en en en", "gen": "en en en en"},
    "mixed": {"nom": "er e es en", "acc": "en e es en", "dat": "en en en en", "gen": "en en en en"},
    "strong": {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en", "gen": "en er en er"},
}
RELATIVE_PRONOUNS = {
    "nom": "der die das die",
    "acc": "den die das die",
    "dat": "dem der dem denen",
}
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}
UMLAUTS = {"au": "äu", "a": "ä", "o": "ö", "u": "ü"}
# First, second and third person singular, plural (the plural of `ihr` is not used).
AUXILIARIES = {
    ("sein", "present"): ("bin", "bist", "ist", "sind"),
    ("sein", "past"): ("war", "warst", "war", "waren"),
    ("werden", "present"): ("werde", "wirst", "wird", "werden"),
    ("werden", "past"): ("wurde", "wurdest", "wurde", "wurden"),
    ("haben", "present"): ("habe", "hast", "hat", "haben"),
    ("haben", "past"): ("hatte", "hattest", "hatte", "hatten"),
}
INSEPARABLE = ("be", "ge", "er", "ver", "zer", "ent", "emp")
UNITS = ("", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun")
TEENS = {10: "zehn", 11: "elf", 12: "zwölf", 16: "sechzehn", 17: "siebzehn"}
TENS = (
    "",
    "",
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
)


def pick(row: str, gender: Gender, number: Number) -> str:
    """One of four forms: masculine, feminine, neuter, plural."""
    form = row.split()[3 if number == "pl" else "mfn".index(gender)]
    return "" if form == "-" else form


@cache
def determiner(entry: Determiner, gender: Gender, number: Number, case: Case) -> str:
    """`der`, `einem`, `diese`, `unsere`; empty for a bare noun phrase."""
    if entry.declension == "none":
        return ""
    stem = "" if entry.declension == "der" else entry.german
    return stem + pick(DETERMINER_ENDINGS[entry.declension][case], gender, number)


@cache
def adjective(
    entry: Adjective, after: Determiner, gender: Gender, number: Number, case: Case
) -> str:
    """The attributive form: weak, mixed or strong by what stands before it."""
    return _stem(entry.german) + pick(ADJECTIVE_ENDINGS[after.adjective][case], gender, number)


def _stem(form: str) -> str:
    """The form endings are added to: hoch → hoh-, dunkel → dunkl-, teuer → teur-, müde → müd-."""
    if form == "hoch":
        return "hoh"
    if form.endswith("e"):
        return form[:-1]
    if form.endswith("el") or re.search("[aeo]uer$", form):
        return form[:-2] + form[-1]
    return form


def comparative(entry: Adjective) -> str:
    """`schöner`, `älter`."""
    return f"{entry.german}er" if entry.comparative == "+" else entry.comparative


@cache
def noun(entry: Noun, number: Number, case: Case) -> str:
    """`Hund`, `Hundes`, `Hunde`, `Hunden`."""
    if number == "pl":
        plural = _plural(entry)
        return plural + "n" if case == "dat" and plural[-1] not in "ns" else plural
    if entry.plural.endswith("!"):
        return entry.german if case == "nom" else entry.german + entry.plural[:-1]
    if case != "gen" or entry.gender == "f":
        return entry.german
    return entry.german + _genitive_ending(entry)


def _plural(entry: Noun) -> str:
    code = entry.plural.rstrip("!")
    if code.startswith("="):
        return code[1:]
    stem = _umlaut(entry.german) if code.startswith("¨") else entry.german
    return stem + code.lstrip("¨-")


def _umlaut(stem: str) -> str:
    """Umlaut on the last vowel that can take one: Baum → Bäum, Apfel → Äpfel."""
    at = max(stem.lower().rfind(vowel) for vowel in UMLAUTS)
    vowel = "au" if stem[at - 1 : at + 1].lower() == "au" else stem[at]
    start = at + 1 - len(vowel)
    changed = UMLAUTS[vowel.lower()]
    return stem[:start] + (changed.title() if vowel[0].isupper() else changed) + stem[at + 1 :]


def _genitive_ending(entry: Noun) -> str:
    if entry.plural == "s":
        return "s"
    syllables = len(re.findall("[aeiouyäöü]+", entry.german.lower()))
    return "es" if syllables == 1 or re.search("(s|ß|x|z|sch|zt|mann)$", entry.german) else "s"


@cache
def finite(verb: Verb, tense: str, person: int, number: Number) -> str:
    """The finite form without its particle; `tense` is `present` or `past`."""
    forms = _present(verb) if tense == "present" else _past(forms_of(verb)[1])
    return forms[3 if number == "pl" else person - 1]


def auxiliary(infinitive: str, tense: str, person: int, number: Number) -> str:
    """A form of `sein`, `haben` or `werden`."""
    return AUXILIARIES[infinitive, tense][3 if number == "pl" else person - 1]


@cache
def modal(entry: Modal, tense: str, person: int, number: Number) -> str:
    """`kann`, `kannst`, `konnten`."""
    if tense == "past":
        assert entry.past  # the grammar asks only for tenses an entry has
        forms = _past(entry.past)
    else:
        forms = (entry.present, _second_person(entry.present, ""), entry.present, entry.infinitive)
    return forms[3 if number == "pl" else person - 1]


@cache
def participle(verb: Verb) -> str:
    """The past participle: `gesehen`, `aufgemacht`, `erklärt`."""
    return verb.particle + forms_of(verb)[2]


@cache
def forms_of(verb: Verb) -> tuple[str, ...]:
    """Third person present, preterite and participle of the verb without its particle."""
    if verb.forms:
        return verb.forms
    stem = _verb_stem(verb.infinitive)
    e = "e" if re.search("([td]|[^aeiouäöürlhmn][mn]|ch[mn])$", stem) else ""
    bare = verb.infinitive.startswith(INSEPARABLE) or verb.infinitive.endswith("ieren")
    return f"{stem}{e}t", f"{stem}{e}te", f"{'' if bare else 'ge'}{stem}{e}t"


def _verb_stem(infinitive: str) -> str:
    return infinitive[:-1] if infinitive.endswith(("eln", "ern")) else infinitive.removesuffix("en")


def _present(verb: Verb) -> tuple[str, ...]:
    if (verb.infinitive, "present") in AUXILIARIES:
        return AUXILIARIES[verb.infinitive, "present"]
    stem, third = _verb_stem(verb.infinitive), forms_of(verb)[0]
    first = stem[:-2] + "le" if stem.endswith("el") else f"{stem}e"
    if not third.endswith("t"):  # weiß
        first = third
    return first, _second_person(third, stem), third, verb.infinitive


def _second_person(third: str, stem: str) -> str:
    """From the third person: macht → machst, liest → liest, lädt → lädst, kann → kannst."""
    kept = stem.endswith(("t", "d")) and not third.endswith(("et", "dt"))  # hält → hältst
    third = third if kept else third.removesuffix("t")
    return third + ("t" if third[-1] in "sßzx" else "st")


def _past(third: str) -> tuple[str, ...]:
    """From the third person preterite: machte → machten, sah → sahen, hielt → du hieltest."""
    second = third + ("est" if third[-1] in "tdsßz" else "st")
    return third, second, third, third + ("n" if third.endswith("e") else "en")


@cache
def numeral(value: int) -> str:
    """A number word from 2 to 99: `einundzwanzig`."""
    tens, units = divmod(value, 10)
    if tens == 0:
        return UNITS[units]
    if tens == 1:
        return TEENS.get(value, f"{UNITS[units]}zehn")
    return f"{UNITS[units]}und{TENS[tens]}" if units else TENS[tens]
