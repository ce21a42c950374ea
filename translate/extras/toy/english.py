"""English word order: subject, verb, objects, manner, place, time; `do` where it is needed."""

from __future__ import annotations

import re
from functools import cache

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
    COMPLEMENTIZERS,
    ES_THERE,
    Adjective,
    Noun,
    Number,
    Phrase,
    Role,
    Verb,
)

# The simple tense of each tense: a German perfect is told in the English past.
SIMPLE_TENSE = {"present": "present", "past": "past", "perfect": "past"}
# First, second and third person singular, plural.
AUXILIARIES = {
    "do": {"present": "do do does do", "past": "did did did did"},
    "have": {"present": "have have has have", "past": "had had had had"},
    "want": {"present": "want want wants want", "past": "wanted wanted wanted wanted"},
    "be": {"present": "am are is are", "past": "was were was were"},
}
NUMBERS = (
    "", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def sentence(tree: Sentence) -> list[Word]:
    """The English words with their links."""
    words: list[Word] = []
    conjunctions: list[Phrase | None] = [None, *tree.conjunctions]
    for main, conjunction in zip(tree.clauses, conjunctions, strict=True):
        if conjunction:
            if conjunction.english[0][0] in {"but", "yet", "for"}:
                words.append(word(",", main, "comma"))
            words += spell(conjunction, conjunction.english, main)
        words += clause(main)
    return [*words, word(tree.mark, tree, "mark")]


def clause(tree: Clause) -> list[Word]:
    """A finite clause with everything before and behind it."""
    words: list[Word] = []
    if tree.adjunct and tree.adjunct.fronted:
        words += [*_adjunct(tree), word(",", tree.adjunct, "comma")]
    if tree.opener:
        words += spell(tree.opener, tree.opener.english, tree)
    return [*words, *_core(tree), *_rest(tree)]


def _core(tree: Clause) -> list[Word]:
    """Subject and verb; an auxiliary comes first in a question, and an object that is a trace."""
    auxiliary, verb = _verb_group(tree)
    subject = nominal(tree.subject)
    middle: list[Word] = []
    if tree.negated:
        middle.append(word("not", tree, "negation"))
    if tree.frequency:
        middle += spell(tree.frequency, tree.frequency.english, tree)
    if tree.question:
        return [*auxiliary, *subject, *middle, *verb]
    relative = nominal(tree.object, "object") if isinstance(tree.object, Trace) else []
    if tree.negated and auxiliary[0].text == "can":  # one word: cannot
        auxiliary = [Word("cannot", auxiliary[0].links | middle[0].links)]
        middle = middle[1:]
    return [*relative, *subject, *auxiliary, *middle, *verb]


def _rest(tree: Clause) -> list[Word]:
    """Return the words behind the verb."""
    words: list[Word] = []
    if tree.object and not isinstance(tree.object, Trace):
        words += nominal(tree.object, "object")
    if indirect := tree.indirect:
        # `to` is linked to the word that shows the German dative
        shown = indirect.left if isinstance(indirect, Coordination) else indirect
        article = isinstance(shown, NounPhrase) and shown.determiner.german
        to = word("to", shown, "determiner" if article else "head")
        words += [to, *nominal(indirect, "object")]
    if tree.predicate:
        words += _predicate(tree)
    if tree.manner:
        words += spell(tree.manner, tree.manner.english, tree)
    for part in (tree.agent, tree.place, tree.companion):
        if part:
            words += _prepositional(part)
    if tree.time:
        words += spell(tree.time, tree.time.english, tree)
    if tree.complement:
        conjunction = COMPLEMENTIZERS[tree.verb.frame]
        words += spell(conjunction, conjunction.english, tree.complement) + clause(tree.complement)
    if tree.infinitive:
        words += _to_infinitive(tree.infinitive)
    if tree.adjunct and not tree.adjunct.fronted:
        words += _adjunct(tree)
    return words


def _verb_group(tree: Clause) -> tuple[list[Word], list[Word]]:
    """The auxiliary (empty for a plain simple tense) and the rest of the verb.

    A simple tense links to both parts of a German compound tense, while with `do` they are apart:
    `hat gesehen` is `saw`, `hat nicht gesehen` is `did not see`.
    """
    verb = tree.verb
    there = isinstance(tree.subject, Pronoun) and tree.subject.person is ES_THERE
    person, number = agreement(tree.object if there and tree.object else tree.subject)
    base = [word(verb.english, tree, "verb"), *_tail(tree)]
    participle = [word(participle_form(verb), tree, "verb"), *_tail(tree)]

    def auxiliary(text: str) -> list[Word]:
        return [word(text, tree, "auxiliary")]

    def conjugated(stem: str, tense: str) -> list[Word]:
        return auxiliary(auxiliary_form(stem, tense, person, number))

    if tree.tense == "future":
        return auxiliary("will"), base
    if tree.tense == "pluperfect":
        return auxiliary("had"), participle
    tense = SIMPLE_TENSE[tree.tense]
    if tree.passive:
        return conjugated("be", tense), participle
    do_support = tree.question or tree.negated
    if tree.modal:
        first, *to = tree.modal.english if tense == "present" else tree.modal.english_past
        if not to:
            return auxiliary(first), base
        modal_tail = [word(text, tree, "auxiliary") for text in to]
        if do_support:
            return conjugated("do", tense), [*auxiliary(first), *modal_tail, *base]
        return [], [*conjugated(first, tense), *modal_tail, *base]
    finite = word(finite_form(verb, tense, person, number), tree, "verb", "auxiliary")
    if verb.english == "be":
        return [finite], []
    if do_support:
        return conjugated("do", tense), base
    return [], [finite, *_tail(tree)]


def _tail(tree: Clause) -> list[Word]:
    """Return the particle of a verb (`look for`, `wait for`)."""
    return [word(text, tree, tree.verb.preposition_role) for text in tree.verb.tail]


def _to_infinitive(tree: Clause) -> list[Word]:
    verb = word(tree.verb.english, tree, "verb")
    return [word("to", tree, "to"), verb, *_tail(tree), *_rest(tree)]


def _adjunct(tree: Clause) -> list[Word]:
    assert tree.adjunct
    conjunction = tree.adjunct.conjunction
    return [*spell(conjunction, conjunction.english, tree.adjunct), *clause(tree.adjunct.clause)]


def _predicate(tree: Clause) -> list[Word]:
    predicate = tree.predicate
    assert predicate
    if not predicate.standard:
        return [word(predicate.adjective.english, predicate, "head")]
    return [
        *(word(text, predicate, "head") for text in comparative_form(predicate.adjective)),
        word("than", predicate, "than"),
        *nominal(predicate.standard),
    ]


def _prepositional(tree: Prepositional) -> list[Word]:
    return [
        *(word(text, tree, "preposition") for text in tree.preposition.english.split(" ")),
        *nominal(tree.nominal, "object"),
    ]


def nominal(tree: Nominal, role: Role = "subject") -> list[Word]:
    """A subject or object."""
    match tree:
        case Pronoun(person):
            return [word(person.english[role], tree, "head")]
        case Name(text):
            return [word(text, tree, "head")]
        case Trace(noun):
            who = "who" if role == "subject" else "whom"
            return [word(who if "p" in noun.classes else "that", tree, "head")]
        case Coordination(left, right):
            return [*nominal(left, role), word("and", tree, "and"), *nominal(right, role)]
        case NounPhrase():
            return _noun_phrase(tree)


def _noun_phrase(tree: NounPhrase, *, possessive: bool = False) -> list[Word]:
    """A possessor takes the place of the determiner: `das Haus der Frau`, `the woman's house`."""
    words = [
        word(text, tree, "head")
        for text in noun_form(tree.noun, tree.number, possessive=possessive)
    ]
    for index, adjective in reversed(list(enumerate(tree.adjectives))):
        words.insert(0, word(adjective.english, tree, f"adjective {index}"))
    if tree.numeral:
        words.insert(0, word(numeral_form(tree.numeral), tree, "numeral"))
    if tree.possessor:
        words = [*_noun_phrase(tree.possessor, possessive=True), *words]
    elif tree.determiner.english[tree.number]:
        determiner = tree.determiner.english[tree.number]
        if determiner == "a":
            determiner = indefinite(words[0].text)
        words.insert(0, word(determiner, tree, "determiner"))
    if tree.relative:
        words += clause(tree.relative)
    return words


# Word forms: regular by rule, irregular from the tables.


def auxiliary_form(verb: str, tense: str, person: int, number: Number) -> str:
    """A form of `be`, `do`, `have` or `want`; `tense` is `present` or `past`."""
    return AUXILIARIES[verb][tense].split()[3 if number == "pl" else person - 1]


@cache
def finite_form(verb: Verb, tense: str, person: int, number: Number) -> str:
    """`sees`, `see`, `saw`, `were`."""
    if verb.english == "be":
        return auxiliary_form("be", tense, person, number)
    if tense == "past":
        return verb.english_forms[0] if verb.english_forms else _regular_past(verb.english)
    if (person, number) != (3, "sg"):
        return verb.english
    return "has" if verb.english == "have" else _with_s(verb.english)


@cache
def participle_form(verb: Verb) -> str:
    """The past participle."""
    return verb.english_forms[1] if verb.english_forms else _regular_past(verb.english)


def _regular_past(verb: str) -> str:
    if verb.endswith("e"):
        return f"{verb}d"
    return f"{verb[:-1]}ied" if re.search("[^aeiou]y$", verb) else f"{verb}ed"


def _with_s(stem: str) -> str:
    """The ending of a plural and of the third person: `-s`, `-es`, `-ies`."""
    if re.search("[^aeiou]y$", stem):
        return f"{stem[:-1]}ies"
    return f"{stem}es" if re.search("(s|x|z|ch|sh|^go|^do)$", stem) else f"{stem}s"


@cache
def noun_form(entry: Noun, number: Number, *, possessive: bool = False) -> tuple[str, ...]:
    """The words of a noun, the last one inflected: `kitchen tables`, `women's`, `teachers'`."""
    *before, head = entry.english.split(" ")
    if number == "pl":
        head = entry.english_plural or _with_s(head)
    if possessive:
        head += "'" if number == "pl" and head.endswith("s") else "'s"
    return *before, head


def comparative_form(entry: Adjective) -> tuple[str, ...]:
    """`older`, `more beautiful`."""
    return (entry.english_comparative,) if entry.english_comparative else ("more", entry.english)


def indefinite(following: str) -> str:
    """`a` or `an`, by the sound of the next word."""
    vowel = following[0].lower() in "aeiou" and not following.startswith(("uni", "use"))
    silent_h = following.startswith(("honest", "hour"))
    return "an" if vowel or silent_h else "a"


@cache
def numeral_form(value: int) -> str:
    """A number word from 2 to 99: `twenty-one`."""
    if value < 20:
        return NUMBERS[value]
    tens, units = divmod(value, 10)
    return f"{TENS[tens]}-{NUMBERS[units]}" if units else TENS[tens]
