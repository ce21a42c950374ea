"""English word order: subject, verb, objects, manner, place, time; `do` where it is needed."""

from __future__ import annotations

from translate.data.toy import english_inflection as inflection
from translate.data.toy.function_words import COMPLEMENTIZERS, ES_THERE
from translate.data.toy.lexicon import Number, Phrase, Role
from translate.data.toy.syntax import (
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

# The simple tense of each tense: a German perfect is told in the English past.
SIMPLE_TENSE = {"present": "present", "past": "past", "perfect": "past"}


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
    """What follows the verb."""
    words: list[Word] = []
    if tree.object and not isinstance(tree.object, Trace):
        words += nominal(tree.object, "object")
    if tree.indirect:
        words += [_dative(tree.indirect), *nominal(tree.indirect, "object")]
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
    person, number = _agreement(tree)
    base = [word(verb.english, tree, "verb"), *_tail(tree)]
    participle = [word(inflection.participle(verb), tree, "verb"), *_tail(tree)]

    def auxiliary(text: str) -> list[Word]:
        return [word(text, tree, "auxiliary")]

    def conjugated(stem: str, tense: str) -> list[Word]:
        return auxiliary(inflection.auxiliary(stem, tense, person, number))

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
    finite = word(inflection.finite(verb, tense, person, number), tree, "verb", "auxiliary")
    if verb.english == "be":
        return [finite], []
    if do_support:
        return conjugated("do", tense), base
    return [], [finite, *_tail(tree)]


def _agreement(tree: Clause) -> tuple[int, Number]:
    """With `there`, the verb agrees with what there is."""
    there = isinstance(tree.subject, Pronoun) and tree.subject.person is ES_THERE
    return agreement(tree.object if there and tree.object else tree.subject)


def _tail(tree: Clause) -> list[Word]:
    """What belongs behind the verb (`look for`, `wait for`)."""
    return [word(text, tree, tree.verb.preposition_role) for text in tree.verb.tail]


def _to_infinitive(tree: Clause) -> list[Word]:
    return [
        word("to", tree, "to"),
        word(tree.verb.english, tree, "verb"),
        *_tail(tree),
        *_rest(tree),
    ]


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
        *(word(text, predicate, "head") for text in inflection.comparative(predicate.adjective)),
        word("than", predicate, "than"),
        *nominal(predicate.standard),
    ]


def _prepositional(tree: Prepositional) -> list[Word]:
    return [
        *(word(text, tree, "preposition") for text in tree.preposition.english.split(" ")),
        *nominal(tree.nominal, "object"),
    ]


def _dative(tree: Nominal) -> Word:
    """`to`, linked to the word that shows the German dative."""
    if isinstance(tree, Coordination):
        tree = tree.left
    role = tree.case_role if isinstance(tree, NounPhrase) else "head"
    return word("to", tree, role)


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
        for text in inflection.noun(tree.noun, tree.number, possessive=possessive)
    ]
    for index, adjective in reversed(list(enumerate(tree.adjectives))):
        words.insert(0, word(adjective.english, tree, f"adjective {index}"))
    if tree.numeral:
        words.insert(0, word(inflection.numeral(tree.numeral), tree, "numeral"))
    if tree.possessor:
        words = [*_noun_phrase(tree.possessor, possessive=True), *words]
    elif tree.determiner.english[tree.number]:
        determiner = tree.determiner.english[tree.number]
        if determiner == "a":
            determiner = inflection.indefinite(words[0].text)
        words.insert(0, word(determiner, tree, "determiner"))
    if tree.relative:
        words += clause(tree.relative)
    return words
