"""German word order: the verb bracket with what stands before, inside and behind it.

    prefield   left bracket   midfield            right bracket       postfield
    gestern    hat            er die Tür nicht    aufgemacht          , weil …
               weil           er die Tür nicht    aufgemacht hat      , …

Main clauses put the finite verb second, questions first, all others last.
"""

from __future__ import annotations

from typing import Literal

from translate.data.toy import german_inflection as inflection
from translate.data.toy.function_words import COMPLEMENTIZERS
from translate.data.toy.lexicon import Case, Person, Phrase
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

Order = Literal["second", "first", "last", "infinitive"]
COMMA = Word(",")
MIDFIELD = (
    *("subject", "pronoun", "time", "frequency", "indirect", "object", "negation", "manner"),
    *("companion", "agent", "prepositional", "place", "predicate"),
)


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
        fields["pronoun"].append(word(_reflexive(tree.subject), tree, "verb"))
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
    participle = word(inflection.participle(verb), tree, "verb")
    infinitive = word(verb.particle + verb.infinitive, tree, "verb")
    if tree.passive:
        passive = inflection.auxiliary("werden", tree.tense, person, number)
        return word(passive, tree, "auxiliary"), [participle]
    if tree.modal:
        modal = inflection.modal(tree.modal, tree.tense, person, number)
        return word(modal, tree, "auxiliary"), [infinitive]
    if tree.tense in ("perfect", "pluperfect"):
        tense = "present" if tree.tense == "perfect" else "past"
        perfect = inflection.auxiliary(verb.perfect, tense, person, number)
        return word(perfect, tree, "auxiliary"), [participle]
    if tree.tense == "future":
        future = inflection.auxiliary("werden", "present", person, number)
        return word(future, tree, "auxiliary"), [infinitive]
    return word(inflection.finite(verb, tree.tense, person, number), tree, "verb", "auxiliary"), []


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
        words += [COMMA, *_complement(tree.verb.frame, tree.complement), COMMA]
    if tree.infinitive:
        words += [COMMA, *clause(tree.infinitive, "infinitive"), COMMA]
    if tree.adjunct and not tree.adjunct.fronted:
        words += [COMMA, *_adjunct(tree), COMMA]
    return words


def _complement(frame: str, tree: Clause) -> list[Word]:
    conjunction = COMPLEMENTIZERS[frame]
    return [*spell(conjunction, conjunction.german, tree), *clause(tree, "last")]


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
        word(inflection.comparative(predicate.adjective), predicate, "head"),
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
            form = inflection.pick(inflection.RELATIVE_PRONOUNS[case], noun.gender, number)
            return [word(form, tree, "head")]
        case Coordination(left, right):
            return [*nominal(left, case), word("und", tree, "and"), *nominal(right, case)]
        case NounPhrase():
            return _noun_phrase(tree, case)


def _noun_phrase(tree: NounPhrase, case: Case) -> list[Word]:
    noun, number = tree.noun, tree.number
    words: list[Word] = []
    if tree.determiner.german:
        form = inflection.determiner(tree.determiner, noun.gender, number, case)
        words.append(word(form, tree, "determiner"))
    if tree.numeral:
        words.append(word(inflection.numeral(tree.numeral), tree, "numeral"))
    for index, adjective in enumerate(tree.adjectives):
        form = inflection.adjective(adjective, tree.determiner, noun.gender, number, case)
        words.append(word(form, tree, f"adjective {index}"))
    words.append(word(inflection.noun(noun, number, case), tree, "head"))
    if tree.possessor:
        words += _noun_phrase(tree.possessor, "gen")
    if tree.relative:
        words += [COMMA, *clause(tree.relative, "last"), COMMA]
    return words


def _contract(preposition: Word, words: list[Word], tree: Nominal) -> list[Word]:
    """`zu der Schule` becomes `zur Schule`, unless a relative clause follows."""
    plain = isinstance(tree, NounPhrase) and not tree.relative
    contracted = inflection.CONTRACTIONS.get((preposition.text, words[0].text))
    if plain and contracted:
        return [Word(contracted, preposition.links | words[0].links), *words[1:]]
    return [preposition, *words]


def _reflexive(subject: Nominal) -> str:
    match subject:
        case Pronoun(Person(reflexive=form)):
            return form
        case _:
            return "sich"


def _tidy(words: list[Word]) -> list[Word]:
    """One comma with all links where several meet, none at either end."""
    kept: list[Word] = []
    for item in words:
        if item.text == "," and kept and kept[-1].text == ",":
            kept[-1] = Word(",", kept[-1].links | item.links)
        elif item.text != "," or kept:
            kept.append(item)
    return kept[:-1] if kept[-1].text == "," else kept
