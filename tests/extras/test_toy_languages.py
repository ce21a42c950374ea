"""The toy grammar: hand-written sentences and paradigms in its two languages."""

from __future__ import annotations

import pytest

from translate.extras.toy import english, german, realise, words
from translate.extras.toy.syntax import (
    Adjunct,
    Clause,
    Name,
    NounPhrase,
    Predicate,
    Prepositional,
    Pronoun,
    Sentence,
    Trace,
)
from translate.extras.toy.words import (
    Adjective,
    Case,
    Determiner,
    Gender,
    Noun,
    Number,
    Phrase,
    Verb,
    lexicon,
)


def noun(german_lemma: str) -> Noun:
    return next(entry for entry in lexicon().nouns if entry.german == german_lemma)


def verb(lemma: str) -> Verb:
    return next(entry for entry in lexicon().verbs if entry.lemma == lemma)


def adjective(german_lemma: str) -> Adjective:
    return next(entry for entry in lexicon().adjectives if entry.german == german_lemma)


def the(german_lemma: str, *adjectives: str, number: str = "sg") -> NounPhrase:
    return NounPhrase(
        noun(german_lemma),
        "pl" if number == "pl" else "sg",
        words.DEFINITE,
        adjectives=tuple(map(adjective, adjectives)),
    )


def a(german_lemma: str, *adjectives: str) -> NounPhrase:
    fitting = tuple(map(adjective, adjectives))
    return NounPhrase(noun(german_lemma), "sg", words.INDEFINITE, adjectives=fitting)


def time(german_text: str) -> Phrase:
    return next(entry for entry in lexicon().phrases if entry.german == ((german_text,),))


ICH, SIE, SIE_PLURAL = words.ICH, words.SIE, words.SIE_PLURAL
SEHEN, OPEN = verb("accusative:sehen"), verb("accusative:auf machen")
SLEEP, WAIT = verb("intransitive:schlafen"), verb("prepositional:warten auf:acc")
GIVE, SAY = verb("ditransitive:geben"), verb("that:sagen")
TRY, BE = verb("infinitive:versuchen"), verb("copula:sein")
WEIL = words.SUBORDINATORS[0]


def whom(head: NounPhrase, verb_entry: Verb, subject: NounPhrase) -> NounPhrase:
    trace = Trace(head.noun, head.number)
    head.relative = Clause(verb_entry, subject, trace, tense="perfect", front="object")
    return head


SENTENCES: dict[str, tuple[Clause, str]] = {
    "der alte Mann sieht einen kleinen Hund .": (
        Clause(SEHEN, the("Mann", "alt"), a("Hund", "klein")),
        "the old man sees a small dog .",
    ),
    "einem alten Mann gibt die junge Frau ein neues Buch .": (
        Clause(GIVE, the("Frau", "jung"), a("Buch", "neu"), a("Mann", "alt"), front="indirect"),
        "the young woman gives a new book to an old man .",
    ),
    "gestern machte sie die Haustür nicht auf .": (
        Clause(
            OPEN,
            Pronoun(SIE),
            the("Haustür"),
            tense="past",
            negated=True,
            front="time",
            time=time("gestern"),
        ),
        "she did not open the front door yesterday .",
    ),
    "sie haben die Häuser der alten Frauen gesehen .": (
        Clause(
            SEHEN,
            Pronoun(SIE_PLURAL),
            NounPhrase(
                noun("Haus"), "pl", words.DEFINITE, possessor=the("Frau", "alt", number="pl")
            ),
            tense="perfect",
        ),
        "they saw the old women's houses .",
    ),
    "wird der Koch der Königin den Kühlschrank geben ?": (
        Clause(
            GIVE, the("Koch"), the("Kühlschrank"), the("Königin"), tense="future", question=True
        ),
        "will the chef give the refrigerator to the queen ?",
    ),
    "weil der Junge die Tür aufmacht , schläft der Hund nicht .": (
        Clause(
            SLEEP,
            the("Hund"),
            negated=True,
            adjunct=Adjunct(WEIL, Clause(OPEN, the("Junge"), the("Tür")), fronted=True),
            front="adjunct",
        ),
        "because the boy opens the door , the dog does not sleep .",
    ),
    "der Mann , auf den die Frau gewartet hat , sagt , dass er den Jungen kannte .": (
        Clause(
            SAY,
            whom(the("Mann"), WAIT, the("Frau")),
            complement=Clause(
                verb("accusative:kennen"), Pronoun(words.ER), the("Junge"), tense="past"
            ),
        ),
        "the man whom the woman waited for says that he knew the boy .",
    ),
    "ich versuche , die drei Koffer aufzumachen .": (
        Clause(
            TRY,
            Pronoun(ICH),
            infinitive=Clause(
                OPEN, Pronoun(ICH), NounPhrase(noun("Koffer"), "pl", words.DEFINITE, numeral=3)
            ),
        ),
        "I try to open the three suitcases .",
    ),
    "ich bin nicht älter als meine Brüder .": (
        Clause(
            BE,
            Pronoun(ICH),
            predicate=Predicate(
                adjective("alt"), NounPhrase(noun("Bruder"), "pl", words.POSSESSIVES[0])
            ),
            negated=True,
        ),
        "I am not older than my brothers .",
    ),
    "die teuren Kameras wurden vom Dieb gestohlen .": (
        Clause(
            verb("accusative:stehlen"),
            the("Kamera", "teuer", number="pl"),
            tense="past",
            passive=True,
            agent=Prepositional(words.AGENT, the("Dieb")),
        ),
        "the expensive cameras were stolen by the thief .",
    ),
    "Anna kann nicht zur Schule gehen .": (
        Clause(
            verb("motion:gehen"),
            Name("Anna"),
            modal=words.MODALS[0],
            negated=True,
            place=Prepositional(words.DIRECTIONS[0], the("Schule")),
        ),
        "Anna cannot go to the school .",
    ),
    "müssen die Kinder sich an keinen Hund erinnern ?": (
        Clause(
            verb("prepositional:sich erinnern an:acc"),
            the("Kind", number="pl"),
            NounPhrase(noun("Hund"), "sg", words.NO),
            modal=words.MODALS[1],
            question=True,
        ),
        "do the children have to remember no dog ?",
    ),
}


@pytest.mark.parametrize("source", SENTENCES)
def test_sentences_are_spelled_out_as_a_speaker_would(source: str) -> None:
    clause, target = SENTENCES[source]
    pair = realise(Sentence([clause]))
    assert pair.source == source
    assert pair.target == target


@pytest.mark.parametrize(
    ("source", "links"),
    [
        (
            "gestern machte sie die Haustür nicht auf .",
            "gestern-yesterday machte-did machte-open sie-she die-the Haustür-front Haustür-door "
            "nicht-not auf-open .-.",
        ),
        (
            "Anna kann nicht zur Schule gehen .",
            "Anna-Anna kann-cannot nicht-cannot zur-to zur-the Schule-school gehen-go .-.",
        ),
        (
            "sie haben die Häuser der alten Frauen gesehen .",
            "sie-they haben-saw Häuser-houses der-the alten-old Frauen-women's gesehen-saw .-.",
        ),
        (
            "müssen die Kinder sich an keinen Hund erinnern ?",
            "müssen-do müssen-have müssen-to die-the Kinder-children sich-remember an-remember "
            "keinen-no Hund-dog erinnern-remember ?-?",
        ),
    ],
)
def test_alignments_are_those_of_a_reader(source: str, links: str) -> None:
    pair = realise(Sentence([SENTENCES[source][0]]))
    left, right = pair.source.split(" "), pair.target.split(" ")
    assert sorted(f"{left[i]}-{right[j]}" for i, j in pair.alignment) == sorted(links.split(" "))


@pytest.mark.parametrize(
    ("lemma", "forms"),
    [
        ("Mann", "Mann Mann Mann Mannes Männer Männern"),
        ("Junge", "Junge Jungen Jungen Jungen Jungen Jungen"),
        ("Königin", "Königin Königin Königin Königin Königinnen Königinnen"),
        ("Apfelbaum", "Apfelbaum Apfelbaum Apfelbaum Apfelbaums Apfelbäume Apfelbäumen"),
        ("Museum", "Museum Museum Museum Museums Museen Museen"),
        ("Auto", "Auto Auto Auto Autos Autos Autos"),
    ],
)
def test_german_nouns_decline(lemma: str, forms: str) -> None:
    cases = ["sg nom", "sg acc", "sg dat", "sg gen", "pl nom", "pl dat"]
    declined = [german.noun_form(noun(lemma), *case.split()) for case in cases]  # type: ignore[arg-type]
    assert declined == forms.split()


CONJUGATED = """
accusative:lesen: lese liest liest lesen, las lasest lasen, gelesen
accusative:halten: halte hältst hält halten, hielt hieltest hielten, gehalten
accusative:sammeln: sammle sammelst sammelt sammeln, sammelte sammeltest sammelten, gesammelt
accusative:ein laden: lade lädst lädt laden, lud ludest luden, eingeladen
accusative:besuchen: besuche besuchst besucht besuchen, besuchte besuchtest besuchten, besucht
intransitive:beten: bete betest betet beten, betete betetest beteten, gebetet
that:wissen: weiß weißt weiß wissen, wusste wusstest wussten, gewusst
copula:sein: bin bist ist sind, war warst waren, gewesen
"""  # I, you, she, they; in the past, she as I


@pytest.mark.parametrize("line", CONJUGATED.strip().split("\n"))
def test_german_verbs_conjugate(line: str) -> None:
    lemma, _, forms = line.rpartition(": ")
    present, past, participle = forms.split(", ")
    for tense, row, singular in (("present", present, (1, 2, 3)), ("past", past, (1, 2))):
        persons = [*((person, "sg") for person in singular), (3, "pl")]
        conjugated = [german.finite_form(verb(lemma), tense, *person) for person in persons]
        assert conjugated == row.split()
    assert german.participle_form(verb(lemma)) == participle


@pytest.mark.parametrize(
    ("determiner", "gender", "number", "case", "expected"),
    [
        (words.DEFINITE, "m", "sg", "nom", "der alte"),
        (words.DEFINITE, "f", "sg", "dat", "der alten"),
        (words.DEFINITE, "m", "pl", "acc", "die alten"),
        (words.INDEFINITE, "n", "sg", "acc", "ein altes"),
        (words.INDEFINITE, "m", "sg", "nom", "ein alter"),
        (words.NO, "n", "pl", "nom", "keine alten"),
        (words.THIS, "n", "sg", "dat", "diesem alten"),
        (words.BARE, "m", "pl", "nom", " alte"),
        (words.BARE, "n", "sg", "nom", " altes"),
        (words.QUANTIFIERS[0], "m", "pl", "nom", "alle alten"),
        (words.QUANTIFIERS[2], "m", "pl", "dat", "vielen alten"),
    ],
)
def test_german_determiners_and_adjectives_agree(
    determiner: Determiner, gender: Gender, number: Number, case: Case, expected: str
) -> None:
    article = german.determiner_form(determiner, gender, number, case)
    attribute = german.adjective_form(adjective("alt"), determiner, gender, number, case)
    assert f"{article} {attribute}" == expected


def test_numbers_turn_around() -> None:
    numbers = (2, 12, 17, 30, 54)
    german_words, english_words = (
        " ".join(map(language.numeral_form, numbers)) for language in (german, english)
    )
    assert german_words == "zwei zwölf siebzehn dreißig vierundfünfzig"
    assert english_words == "two twelve seventeen thirty fifty-four"
