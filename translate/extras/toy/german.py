"""German word order: the verb bracket with what stands before, inside and behind it.

    prefield   left bracket   midfield            right bracket       postfield
    gestern    hat            er die Tür nicht    aufgemacht          , weil …
               weil           er die Tür nicht    aufgemacht hat      , …

Main clauses put the finite verb second, questions first, all others last.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

from translate.extras.toy.syntax import (
    Clause,
    Coordination,
    Name,
    Nominal,
    NounPhrase,
    Prepositional,
    Pronoun,
    Sentence,
    Trace,
    Word,
    agreement,
    spell,
    word,
)
from translate.extras.toy.words import (
    CASES,
    COMPLEMENTIZERS,
    Adjective,
    Case,
    Determiner,
    Gender,
    Modal,
    Noun,
    Number,
    Phrase,
    Verb,
)

Order = Literal["second", "first", "last", "infinitive"]
COMMA = Word(",")
MIDFIELD = (
    "subject", "pronoun", "time", "frequency", "indirect", "object", "negation", "manner",
    "companion", "agent", "prepositional", "place", "predicate",
)  # fmt: skip
# Endings, and whole forms of der: masculine, feminine, neuter and plural, case by case.
ENDINGS = {
    "der": "der die das die, den die das die, dem der dem den, des der des der",
    "dieser": "er e es e, en e es e, em er em en, es er es er",
    "ein": "- e - e, en e - e, em er em en, es er es er",
    "weak": "e e e en, en e e en, en en en en, en en en en",  # of adjectives, from here on
    "mixed": "er e es en, en e es en, en en en en, en en en en",
    "strong": "er e es e, en e es e, em er em en, en er en er",
    "relative": "der die das die, den die das die, dem der dem denen",
}
CONTRACTIONS = {
    "in dem": "im", "in das": "ins", "an dem": "am", "zu dem": "zum", "zu der": "zur",
    "von dem": "vom", "bei dem": "beim",
}  # fmt: skip
UMLAUTS = {"au": "äu", "a": "ä", "o": "ö", "u": "ü"}
# First, second and third person singular, plural (the plural of `ihr` is not used).
AUXILIARIES = {
    "sein": {"present": "bin bist ist sind", "past": "war warst war waren"},
    "werden": {"present": "werde wirst wird werden", "past": "wurde wurdest wurde wurden"},
    "haben": {"present": "habe hast hat haben", "past": "hatte hattest hatte hatten"},
}
INSEPARABLE = ("be", "ge", "er", "ver", "zer", "ent", "emp")
UNITS = ("", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun")
TEENS = {10: "zehn", 11: "elf", 12: "zwölf", 16: "sechzehn", 17: "siebzehn"}
TENS = (
    "", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig",
)  # fmt: skip


def sentence(tree: Sentence) -> list[Word]:
    """The German words with their links."""
    words: list[Word] = []
    conjunctions: list[Phrase | None] = [None, *tree.conjunctions]
    for main, conjunction in zip(tree.clauses, conjunctions, strict=True):
        if conjunction:
            if conjunction.german[0][0] in {"aber", "doch", "denn"}:
                words.append(word(",", main, "comma"))
            words += spell(conjunction, conjunction.german, main)
        words += clause(main, "first" if main.question and not main.opener else "second")
    return [*_tidy(words), word(tree.mark, tree, "mark")]


def clause(tree: Clause, order: Order) -> list[Word]:
    """One clause with everything inside and behind its verb bracket."""
    fields = _fields(tree)
    prefield = fields.pop(tree.front, []) if order == "second" or _is_relative(tree) else []
    if order == "infinitive":
        fields.pop("subject")
    middle = [word for name in MIDFIELD for word in fields.get(name, [])]
    return [*prefield, *_bracket(tree, middle, order), *_postfield(tree)]


def _is_relative(tree: Clause) -> bool:
    return isinstance(getattr(tree, tree.front, None), Trace)


def _fields(tree: Clause) -> dict[str, list[Word]]:
    """The words of every constituent that can stand before or inside the bracket."""
    verb = tree.verb
    fields: dict[str, list[Word]] = {"subject": nominal(tree.subject, "nom"), "pronoun": []}
    if verb.reflexive:
        person = tree.subject.person if isinstance(tree.subject, Pronoun) else None
        reflexive = person.german["acc"] if person and person.person < 3 else "sich"
        fields["pronoun"].append(word(reflexive, tree, "verb"))
    if tree.indirect:
        fields["indirect"] = nominal(tree.indirect, "dat")
    if tree.object:
        words = nominal(tree.object, verb.case)
        if verb.preposition:
            words = _contract(
                word(verb.preposition, tree, verb.preposition_role), words, tree.object
            )
        fields["prepositional" if verb.preposition else "object"] = words
    for name in ("object", "indirect"):  # pronouns come before all other objects
        if isinstance(getattr(tree, name), Pronoun) and name in fields and tree.front != name:
            fields["pronoun"] += fields.pop(name)
    if tree.front == "object" and "prepositional" in fields:
        fields["object"] = fields.pop("prepositional")
    if tree.negated:
        fields["negation"] = [word("nicht", tree, "negation")]
    for name in ("time", "frequency", "manner", "opener"):
        phrase: Phrase | None = getattr(tree, name)
        if phrase:
            fields[name] = spell(phrase, phrase.german, tree)
    for name in ("companion", "agent", "place"):
        part: Prepositional | None = getattr(tree, name)
        if part:
            preposition = word(part.preposition.german, part, "preposition")
            words = nominal(part.nominal, part.preposition.case)
            fields[name] = _contract(preposition, words, part.nominal)
    if tree.predicate:
        fields["predicate"] = _predicate(tree)
    if tree.adjunct and tree.adjunct.fronted:
        fields["adjunct"] = [*_adjunct(tree), word(",", tree.adjunct, "comma")]
    return fields


def _bracket(tree: Clause, middle: list[Word], order: Order) -> list[Word]:
    """The midfield within the parts of the verb."""
    verb = tree.verb
    if order == "infinitive":
        return [*middle, *_to_infinitive(tree)]
    finite, right = _verb_complex(tree)
    if order == "last":
        if not right and verb.particle:  # the particle joins its verb: aufmacht
            finite = Word(verb.particle + finite.text, finite.links)
        return [*middle, *right, finite]
    if not right and verb.particle:
        right = [word(verb.particle, tree, "verb")]
    return [finite, *middle, *right]


def _verb_complex(tree: Clause) -> tuple[Word, list[Word]]:
    """The finite verb and the non-finite rest. A simple form carries both tense and meaning."""
    verb = tree.verb
    person, number = agreement(tree.subject)
    participle = word(participle_form(verb), tree, "verb")
    infinitive = word(verb.particle + verb.infinitive, tree, "verb")
    if tree.passive:
        passive = auxiliary_form("werden", tree.tense, person, number)
        return word(passive, tree, "auxiliary"), [participle]
    if tree.modal:
        modal = modal_form(tree.modal, tree.tense, person, number)
        return word(modal, tree, "auxiliary"), [infinitive]
    if tree.tense in ("perfect", "pluperfect"):
        tense = "present" if tree.tense == "perfect" else "past"
        perfect = auxiliary_form(verb.perfect, tense, person, number)
        return word(perfect, tree, "auxiliary"), [participle]
    if tree.tense == "future":
        future = auxiliary_form("werden", "present", person, number)
        return word(future, tree, "auxiliary"), [infinitive]
    return word(finite_form(verb, tree.tense, person, number), tree, "verb", "auxiliary"), []


def _to_infinitive(tree: Clause) -> list[Word]:
    """`zu lesen`, and in one word with a particle: `aufzumachen`."""
    verb = tree.verb
    if verb.particle:
        return [word(f"{verb.particle}zu{verb.infinitive}", tree, "to", "verb")]
    return [word("zu", tree, "to"), word(verb.infinitive, tree, "verb")]


def _postfield(tree: Clause) -> list[Word]:
    """The clauses behind the bracket, each between commas."""
    words: list[Word] = []
    if tree.complement:
        conjunction = COMPLEMENTIZERS[tree.verb.frame]
        words += [COMMA, *spell(conjunction, conjunction.german, tree.complement)]
        words += [*clause(tree.complement, "last"), COMMA]
    if tree.infinitive:
        words += [COMMA, *clause(tree.infinitive, "infinitive"), COMMA]
    if tree.adjunct and not tree.adjunct.fronted:
        words += [COMMA, *_adjunct(tree), COMMA]
    return words


def _adjunct(tree: Clause) -> list[Word]:
    assert tree.adjunct
    conjunction = tree.adjunct.conjunction
    return [
        *spell(conjunction, conjunction.german, tree.adjunct),
        *clause(tree.adjunct.clause, "last"),
    ]


def _predicate(tree: Clause) -> list[Word]:
    predicate = tree.predicate
    assert predicate
    if not predicate.standard:
        return [word(predicate.adjective.german, predicate, "head")]
    return [
        word(comparative_form(predicate.adjective), predicate, "head"),
        word("als", predicate, "than"),
        *nominal(predicate.standard, "nom"),
    ]


def nominal(tree: Nominal, case: Case) -> list[Word]:
    """A subject, object or what follows a preposition, in its case."""
    match tree:
        case Pronoun(person):
            return [word(person.german[case], tree, "head")]
        case Name(text):
            return [word(text, tree, "head")]
        case Trace(noun, number):
            return [word(_ending("relative", noun.gender, number, case), tree, "head")]
        case Coordination(left, right):
            return [*nominal(left, case), word("und", tree, "and"), *nominal(right, case)]
        case NounPhrase():
            return _noun_phrase(tree, case)


def _noun_phrase(tree: NounPhrase, case: Case) -> list[Word]:
    noun, number = tree.noun, tree.number
    words: list[Word] = []
    if tree.determiner.german:
        form = determiner_form(tree.determiner, noun.gender, number, case)
        words.append(word(form, tree, "determiner"))
    if tree.numeral:
        words.append(word(numeral_form(tree.numeral), tree, "numeral"))
    for index, adjective in enumerate(tree.adjectives):
        form = adjective_form(adjective, tree.determiner, noun.gender, number, case)
        words.append(word(form, tree, f"adjective {index}"))
    words.append(word(noun_form(noun, number, case), tree, "head"))
    if tree.possessor:
        words += _noun_phrase(tree.possessor, "gen")
    if tree.relative:
        words += [COMMA, *clause(tree.relative, "last"), COMMA]
    return words


def _contract(preposition: Word, words: list[Word], tree: Nominal) -> list[Word]:
    """`zu der Schule` becomes `zur Schule`, unless a relative clause follows."""
    plain = isinstance(tree, NounPhrase) and not tree.relative
    contracted = CONTRACTIONS.get(f"{preposition.text} {words[0].text}")
    if plain and contracted:
        return [Word(contracted, preposition.links | words[0].links), *words[1:]]
    return [preposition, *words]


def _tidy(words: list[Word]) -> list[Word]:
    """One comma with all links where several meet, none at either end."""
    kept: list[Word] = []
    for item in words:
        if item.text == "," and kept and kept[-1].text == ",":
            kept[-1] = Word(",", kept[-1].links | item.links)
        elif item.text != "," or kept:
            kept.append(item)
    return kept[:-1] if kept[-1].text == "," else kept


# Word forms: declension and conjugation by rule, irregular forms from the tables.


def _ending(declension: str, gender: Gender, number: Number, case: Case) -> str:
    row = ENDINGS[declension].split(", ")[(*CASES, "gen").index(case)]
    form = row.split()[3 if number == "pl" else "mfn".index(gender)]
    return "" if form == "-" else form


@cache
def determiner_form(entry: Determiner, gender: Gender, number: Number, case: Case) -> str:
    """`der`, `einem`, `diese`, `unsere`; empty for a bare noun phrase."""
    if entry.declension == "none":
        return ""
    stem = "" if entry.declension == "der" else entry.german
    return stem + _ending(entry.declension, gender, number, case)


@cache
def adjective_form(
    entry: Adjective, after: Determiner, gender: Gender, number: Number, case: Case
) -> str:
    """The attributive form: weak, mixed or strong by what stands before it."""
    return _stem(entry.german) + _ending(after.adjective, gender, number, case)


def _stem(form: str) -> str:
    """The form endings are added to: hoch → hoh-, dunkel → dunkl-, teuer → teur-, müde → müd-."""
    if form == "hoch":
        return "hoh"
    if form.endswith("e"):
        return form[:-1]
    if form.endswith("el") or re.search("[aeo]uer$", form):
        return form[:-2] + form[-1]
    return form


def comparative_form(entry: Adjective) -> str:
    """`schöner`, `älter`."""
    return f"{entry.german}er" if entry.comparative == "+" else entry.comparative


@cache
def noun_form(entry: Noun, number: Number, case: Case) -> str:
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
def finite_form(verb: Verb, tense: str, person: int, number: Number) -> str:
    """The finite form without its particle; `tense` is `present` or `past`."""
    forms = _present(verb) if tense == "present" else _past(forms_of(verb)[1])
    return forms[3 if number == "pl" else person - 1]


def auxiliary_form(infinitive: str, tense: str, person: int, number: Number) -> str:
    """A form of `sein`, `haben` or `werden`."""
    return AUXILIARIES[infinitive][tense].split()[3 if number == "pl" else person - 1]


@cache
def modal_form(entry: Modal, tense: str, person: int, number: Number) -> str:
    """`kann`, `kannst`, `konnten`."""
    if tense == "past":
        assert entry.past  # the grammar asks only for tenses an entry has
        forms = _past(entry.past)
    else:
        forms = (entry.present, _second_person(entry.present, ""), entry.present, entry.infinitive)
    return forms[3 if number == "pl" else person - 1]


@cache
def participle_form(verb: Verb) -> str:
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
    if verb.infinitive in AUXILIARIES:
        return tuple(AUXILIARIES[verb.infinitive]["present"].split())
    stem, third = _verb_stem(verb.infinitive), forms_of(verb)[0]
    first = stem[:-2] + "le" if stem.endswith("el") else f"{stem}e"
    if not third.endswith("t"):  # weiß
        first = third
    return first, _second_person(third, stem), third, verb.infinitive


def _second_person(third: str, stem: str) -> str:
    """Return the second person of a third: macht → machst, liest → liest, lädt → lädst."""
    kept = stem.endswith(("t", "d")) and not third.endswith(("et", "dt"))  # hält → hältst
    third = third if kept else third.removesuffix("t")
    return third + ("t" if third[-1] in "sßzx" else "st")


def _past(third: str) -> tuple[str, ...]:
    """Return all forms of a third person preterite: machte → machten, hielt → du hieltest."""
    second = third + ("est" if third[-1] in "tdsßz" else "st")
    return third, second, third, third + ("n" if third.endswith("e") else "en")


@cache
def numeral_form(value: int) -> str:
    """A number word from 2 to 99: `einundzwanzig`."""
    tens, units = divmod(value, 10)
    if tens == 0:
        return UNITS[units]
    if tens == 1:
        return TEENS.get(value, f"{UNITS[units]}zehn")
    return f"{UNITS[units]}und{TENS[tens]}" if units else TENS[tens]
