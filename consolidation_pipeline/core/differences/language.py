"""Languages of texts: their word lists from ``languages/*.toml``, and the language of a text.

Keys of ``<code>_synonyms.toml``:

forms: A word and those of its forms that the stemmer does not know, a word a line: "write, wrote, written".
groups: Words that may stand for each other in one of their meanings, a meaning a line. A word may be in several: what
    stands for it in one meaning does not stand for what stands for it in another.

Keys of ``<code>.toml``. An entry of several words is a phrase.

stemmer: Name of a Snowball stemmer; without one, words are equal as written.
spellings: Endings that are spelled in two ways = the ending that is read: "ised" = "ized".
labels: Openings that say nothing, such as "Note:".
openings: Words that say nothing if they open a sentence: "always".
addressees: Pronouns behind which a demand may open a sentence, and one of ``openings`` follow: "you should always".
remarks: Words of openings and sentences about the note itself: "Note to self:", "Seen again today."
questions: What is asked for = words that ask for it.
inversions: Two words that ask if they open a sentence: "is there", "did you".
requests: Words near the opening of a sentence that asks: "tell me".
light: Words without a meaning of their own.
light_verbs: Light verbs, and auxiliaries that are verbs too, for which synonyms may stand: has, owns.
prepositions, genitives, determiners: Those of them that open a phrase, join two nouns, or stand before a noun.
perfects: Auxiliaries that tell of the past before a participle: "has moved".
approximations: Words that make a number inexact, and are prepositions before anything else: "about".
comparisons: Verbs behind which "against" is "with": "tested against real data".
copula_clitic: Clitic and the form of "be" that it stands for before one of ``after_copula``: "the light's on".
copulas: Forms of "be" between two names of one thing, which may change sides: "our vet is Ann", "Ann is our vet".
participle_prepositions: Participles that are prepositions, unless an auxiliary is before them: "built using make".
has_late_focus: True if "only" and particles stand behind their word: 資料だけ, 資料を.
spans: Prepositions before a time that tell how long: "for an hour".
attributes: Prepositions that tell of the noun before them: "the man with the key".
cases: Articles of nouns, or particles = subject or object: der = "subject", den = "object".
opposed_prepositions: Pairs of prepositions that tell other things of the same word: for, with.
amounts: Prepositions before a number = what it is: um = "change", auf = "result".
sequence_words: Words by which clauses tell steps in their order: then.
copula_kinds: Forms of "be" = which of two verbs they are, of a language that has two: ser, estar.
owners: Possessives = the owner: "his", "her".
subjects, objects: Pronouns = the person: we, us. The speaker is one person, alone or not. Those in both have no case.
adverbial_negations: Negations beside a verb, which deny what stands behind them: not, but not "no backups".
possessives: Genitives behind the owner: "Ann's dog".
articles, relatives: Those of them that are "a" and may stand for 1, and those that open a relative clause.
genders: Pronouns of a person = he or she.
distributives, singles: Words for each of several, and for one thing that each or all of them have: each, one.
counts: Words before a noun = how many or which of a kind: both = "two", an = "a", one, any, same.
causatives: Verbs by which others do what the verb beside them tells: let.
circumstances: Prepositions before a place or time where something holds.
generic_articles: Articles before nouns that may stand for all of their kind: "les clients".
has_gendered_relatives: True if relative pronouns, behind a comma, have the gender of their noun.
list_references: Words that refer to the order of a list: the former, respectively.
complementizers: Words that open what a clause before them tells of: "we were told that".
closing_complementizers: Words that end what the verb behind them tells of: 満員だと聞いた.
closings: Ends of sentences that say nothing: ことがわかった.
tools: Verbs before a tool, "use pip to install it" = the preposition of "install it using pip".
alternations: Words that are two between "every" and a time: "every other week".
particles: Words that belong to a verb further ahead in the clause: "switch the lamp off", "schaltet die Lampe aus".
has_prefixes: True if a particle and its verb are one word in other places: ausschalten.
verb_first: Verbs that may open a condition = the conjunction that they stand for: "wird er krank, ..." is "wenn".
passive_auxiliaries, agents, participles, participle_endings: Signs of a passive clause.
has_ordinal_dots: True if a number with a full stop is an ordinal: "am 3. März".
degrees: Quantities = the adverb that they are before a comparative or a participle: "etwas höher".
graded_endings: Endings of comparatives, and of participles that tell how much: "höher", "gestiegen".
gerund_verbs, gerund_endings: Verbs that demand what the gerund after them tells, "needs cleaning", and its endings.
has_late_participles: True if words may stand between an auxiliary and its participle.
past_forms: Verbs that tell what was done and are no present form, also those that are participles too: sent, took.
past_endings: Endings of such verbs, beside those of participles.
future_endings: Endings of verbs that tell what will be done: "borrará".
imperfect_endings: Endings of verbs that tell what held or was usual: "revisaba".
conditional_endings: Endings of verbs that tell what would be done: "enviaría".
infinitive_endings, infinitive_marks: Endings of infinitives, and words before them: "to".
preterite_endings: Endings of verbs that tell what was done and are no participles alone: "moved".
finite_endings: Endings of present forms in a language where others may be nouns or adjectives: "fixes".
plural_endings: Endings of nouns before which a form without such an ending is a present one: "nurses use".
ambiguous_endings: Endings of forms that may be present or past: "llegamos".
futures, perfect_auxiliaries: Auxiliaries of what will be done, and of what has been: will, has.
faults: Verbs of what goes wrong or was observed, which a note tells in the present or the past: "it fails".
lasting: Endings of verbs that tell what lasts = True if they tell of the past: していた.
final_verbs: Last signs of sentences = True if they tell of the past, in a language with the verb at the end.
possession: Forms of "have" or of what stands for it = True if they tell of the past.
past_modals: Words of modality, and first words of such phrases, that tell of the past: durfte, had to.
done: Words beside such a verb, or beside any in a script without blanks, by which it tells so: hat, a été, 已.
hyphened: Words with a hyphen that mean another thing without it: re-sign.
split_negations: First word of a negation in two parts = the second one = a word of the lists that means both.
times, time_adverbs: Nouns of time, which may stand anywhere in a clause after a word such as "every", and adverbs.
demonstratives: Words before nouns of time that tell when: "this morning".
date_articles: Articles before days and dates that tell when: "el viernes".
order_adverbs: Ordinals that are adverbs where they open or end a clause: "first run it".
compound_links: What may join the two nouns of a compound: Größenlimit.
coordinators: Words that add a clause: and.
alternatives: Words between alternatives, which may stand in any order: or.
adverb_endings: Endings of words that may stand anywhere in a clause.
family_endings: Endings after which stems are of one family: show and shown. The stemmer leaves them.
numbers, ordinals, days, months: As their names say.
short_days, short_months: Their short forms, which have a capital: "Mon".
signs: Signs that stand for a word: "&" = "and"; "9+" is a plus sign after a number, "!x" a denial in code.
respelled: Letters = how they are written where a keyboard lacks them: ü = "ue".
contractions: Words that stand for several: "don't" = "do not", "invalid" = "not valid".
units: Names of units = their English short forms.
abbreviations: Words whose full stop ends no sentence.
clitics, elisions: Endings, and beginnings before an apostrophe, that are words of their own: n't, l'.
false_past_forms: Present forms with the ending of a past one: need.
has_noun_capitals: True if all nouns are written with a capital.
naming: Words before a name, whatever its letters are: "the table is called release".
has_decimal_comma: True if a comma stands before decimals and a full stop between thousands: "5.000", "2,5 GB".
clock.before, clock.after: Words before or behind an hour = minutes to add: "half past" = 30.
clock.hours: Words that may stand behind an hour.
clock.durations: Words behind a number of hours that is no time of day.
clock.halves, clock.halves_before: Words behind or before a time = half of the day: am, pm, or night.
markers: Class = words that govern what follows them.
cues.<category>: Pole = words that change what is claimed. Poles of a category contradict each other.
denying_verbs: Words of the negative pole that are verbs: beside another verb they replace it.
neutral: Category = poles that may stand in one text alone.
synonyms.groups: Words that are read as one: spellings, forms, abbreviations, and words of one meaning in any sentence.
antonyms.pairs: Words that must not stand for each other.
antonyms.things: Those of them that name things: what is said of one contradicts nothing that is said of the other.
"""

import re
import tomllib
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property, lru_cache, partial
from importlib.resources import files
from itertools import accumulate, chain
from threading import Lock
from typing import Any, get_origin

NAMES = {"en": "English", "de": "German", "es": "Spanish", "fr": "French", "zh": "Chinese", "ja": "Japanese"}
LANGUAGES = tuple(NAMES)
# Languages of one alphabet, between which function words decide.
LATIN = LANGUAGES[:4]

_CJK = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HIRAGANA = "\u3041-\u309f"
_KATAKANA = "\u30a1-\u30ff"
# A word of an alphabet with its inner apostrophes and hyphens, a run of katakana, or one ideograph or hiragana.
WORD = re.compile(
    rf"[{_KATAKANA}]+|[{_CJK}{_HIRAGANA}]|[^\W\d_{_CJK}{_HIRAGANA}{_KATAKANA}]+(?:['-][^\W\d_{_CJK}{_HIRAGANA}{_KATAKANA}]+)*"
)
_PARTICIPLE = re.compile(r"ée?s?\Z")
# Letters before an ending that has two spellings: "colour", not "hour".
_SHORTEST_HEAD = 3
_IDEOGRAPH = re.compile(f"[{_CJK}]")
_KANA = re.compile(f"[{_HIRAGANA}{_KATAKANA}]")


@dataclass(frozen=True, slots=True)
class Phrase:
    """Meaning of a word or phrase. ``role``: light, cue, marker, label or synonym; ``key`` and ``pole`` name it."""

    role: str
    key: str = ""
    pole: str = ""


# Meaning of each phrase, which is a tuple of words in lower case.
PhraseMeanings = Mapping[tuple[str, ...], str]


@dataclass(frozen=True)
class Clock:
    """Words of times of day, by the keys of a language's table ``clock``."""

    before: PhraseMeanings
    hours: PhraseMeanings
    durations: PhraseMeanings
    after: PhraseMeanings
    halves: PhraseMeanings
    halves_before: PhraseMeanings

    @cached_property
    def openings(self) -> frozenset[str]:
        """First words of what stands before an hour."""
        return frozenset(words[0] for words in (*self.before, *self.halves_before))


@dataclass(frozen=True)
class FunctionWords:
    """Words by which a language is told: words without a meaning of their own, and what they are joined by."""

    light: frozenset[str]
    elisions: frozenset[str]
    clitics: Mapping[str, str]

    def is_light(self, word: str) -> bool:
        """Return True if a word in lower case is a function word or is joined with one: n't, l'."""
        if word in self.light:
            return True
        return "'" in word and (word.partition("'")[0] in self.elisions or word.endswith(tuple(self.clitics)))


@dataclass(frozen=True)
class Language(FunctionWords):
    """Word lists of a language. Phrases are tuples of words in lower case, of stems those with a synonym.

    ``phrase_sizes`` and ``synonym_sizes`` are the lengths of the longest ones that begin with a word. ``synonyms`` are
    the words that are read as another one, ``groups`` the groups of words that may stand for each other.
    """

    code: str
    stemmer: str | None
    stem: Callable[[str], str]
    phrases: Mapping[tuple[str, ...], Phrase]
    phrase_sizes: Mapping[str, int]
    synonym_phrases: Mapping[tuple[str, ...], Phrase]
    synonym_sizes: Mapping[str, int]
    numbers: Mapping[str, float]
    units: Mapping[str, str]
    ordinals: Mapping[str, int]
    calendar: Mapping[str, str]
    short_calendar: Mapping[str, str]
    signs: Mapping[str, str]
    contractions: Mapping[str, str]
    respelled: Mapping[str, str]
    bare: Mapping[str, str]
    abbreviations: frozenset[str]
    passive_auxiliaries: frozenset[str]
    agents: frozenset[str]
    perfects: frozenset[str]
    approximations: frozenset[str]
    comparisons: frozenset[str]
    copula_clitic: tuple[str, ...]
    after_copula: frozenset[str]
    demonstratives: frozenset[str]
    prepositions: frozenset[str]
    genitives: frozenset[str]
    determiners: frozenset[str]
    articles: frozenset[str]
    relatives: frozenset[str]
    copulas: frozenset[str]
    participle_prepositions: frozenset[str]
    particles: frozenset[str]
    has_prefixes: bool
    verb_first: Mapping[str, str]
    times: frozenset[str]
    time_adverbs: frozenset[str]
    openings: frozenset[str]
    addressees: frozenset[str]
    coordinators: frozenset[str]
    alternatives: frozenset[str]
    adverb_endings: tuple[str, ...]
    family_endings: frozenset[str]
    participle_endings: tuple[str, ...]
    participles: frozenset[str]
    degrees: Mapping[str, str]
    graded_endings: tuple[str, ...]
    gerund_verbs: frozenset[str]
    gerund_endings: tuple[str, ...]
    has_ordinal_dots: bool
    has_late_participles: bool
    past_forms: frozenset[str]
    past_endings: tuple[str, ...]
    future_endings: tuple[str, ...]
    imperfect_endings: tuple[str, ...]
    conditional_endings: tuple[str, ...]
    infinitive_endings: tuple[str, ...]
    infinitive_marks: frozenset[str]
    preterite_endings: tuple[str, ...]
    finite_endings: tuple[str, ...]
    plural_endings: tuple[str, ...]
    ambiguous_endings: tuple[str, ...]
    futures: frozenset[str]
    perfect_auxiliaries: frozenset[str]
    faults: frozenset[str]
    past_modals: frozenset[str]
    possession: Mapping[str, bool]
    lasting: Mapping[str, bool]
    final_verbs: Mapping[str, bool]
    done: tuple[str, ...]
    hyphened: frozenset[str]
    split_negations: Mapping[str, Mapping[str, str]]
    denying_verbs: frozenset[str]
    neutral: frozenset[tuple[str, str]]
    synonyms: Mapping[str, str]
    groups: Mapping[str, frozenset[int]]
    verbs: frozenset[str]
    antonyms: frozenset[frozenset[str]]
    things: frozenset[str]
    opposites: Mapping[str, frozenset[str]]
    light_verbs: frozenset[str]
    questions: Mapping[str, str]
    inversions: frozenset[tuple[str, ...]]
    requests: tuple[str, ...]
    remarks: frozenset[str]
    clock: Clock
    false_past_forms: frozenset[str]
    has_noun_capitals: bool
    naming: frozenset[str]
    has_decimal_comma: bool
    tools: Mapping[str, str]
    alternations: frozenset[str]
    date_articles: frozenset[str]
    order_adverbs: frozenset[str]
    compound_links: tuple[str, ...]
    possessives: frozenset[str]
    has_late_focus: bool
    spans: frozenset[str]
    attributes: frozenset[str]
    cases: Mapping[str, str]
    adverbial_negations: frozenset[str]
    opposed_prepositions: frozenset[frozenset[str]]
    amounts: Mapping[str, str]
    owners: Mapping[str, str]
    sequence_words: frozenset[str]
    copula_kinds: Mapping[str, str]
    subjects: Mapping[str, str]
    objects: Mapping[str, str]
    list_references: frozenset[str]
    complementizers: frozenset[str]
    closing_complementizers: frozenset[str]
    closings: frozenset[str]
    has_gendered_relatives: bool
    generic_articles: frozenset[str]
    circumstances: frozenset[str]
    genders: Mapping[str, str]
    distributives: frozenset[str]
    singles: frozenset[str]
    counts: Mapping[str, str]
    causatives: frozenset[str]

    def is_past(self, word: str) -> bool:
        """Return True if a word in lower case is the form of a verb that tells what was done: sent, backed up."""
        verb = word.partition(" ")[0]
        is_past = verb in self.past_forms or verb in self.participles or verb.endswith(self.past_endings)
        return is_past and verb not in self.false_past_forms

    def is_future(self, word: str) -> bool:
        """Return True if a word in lower case is the form of a verb that tells what will be done: "borrará"."""
        return len(word) >= _SHORTEST_FUTURE and word.endswith(self.future_endings)

    def is_participle(self, word: str) -> bool:
        """Return True if a word in lower case is a participle: sent, moved."""
        return word in self.participles or word.endswith(self.participle_endings)

    def is_adverb(self, word: str) -> bool:
        """Return True if a word in lower case may stand anywhere in a clause: quickly, but not daily, a known word."""
        return word.endswith(self.adverb_endings) and self.stem(word) not in self.synonyms

    def read_word(self, word: str) -> str:
        """Return the key of a word in lower case: its stem, or the stem that stands for its synonyms."""
        stem = self.stem(word)
        return self.synonyms.get(stem, stem)

    def has_verb(self, verb: str, particle: str) -> bool:
        """Return True if a verb and a particle in lower case are one verb of the lists: "switch off", "ausschalten"."""
        if self.has_prefixes:
            return self.stem(particle + verb) in self.verbs
        return (self.stem(verb), self.stem(particle)) in self.synonym_phrases

    def may_replace(self, one: str, other: str) -> bool:
        """Return True if two keys of words have a meaning in common."""
        return not self.groups.get(one, frozenset()).isdisjoint(self.groups.get(other, ()))


class _Stemmer:
    """Stems of a language: words in lower case without endings, in the first of their forms and spellings."""

    def __init__(self, name: str | None, spellings: Mapping[str, str], forms: Sequence[str]) -> None:
        self.name, self.spellings = name, spellings
        self.longest = max(map(len, spellings), default=0)
        self.forms: dict[str, str] = {}
        lines = [[self._read(word) for word in line.split(", ")] for line in forms]
        lemmas = {first for first, *_ in lines}
        for first, *others in lines:
            self.forms |= {other: first for other in others if other not in lemmas}
        self.stem = lru_cache(maxsize=50_000)(self._read)

    def _read(self, word: str) -> str:
        """Return the stem of a word."""
        for size in range(min(self.longest, len(word) - _SHORTEST_HEAD), 1, -1):
            if ending := self.spellings.get(word[-size:]):
                word = word[:-size] + ending
                break
        stem = _stem(self.name, word) if self.name else word
        return self.forms.get(stem, stem)


# A stemmer holds the word that it works on: two threads that shared it would get parts of each other's words.
_stemming = Lock()


def _stem(name: str, word: str) -> str:
    with _stemming:
        return str(_load_stemmer(name).stemWord(word))


@cache
def _load_stemmer(name: str) -> Any:
    import snowballstemmer  # type: ignore[import-untyped]  # imports the stemmers of 30 languages

    return snowballstemmer.stemmer(name)


@cache
def load_function_words(code: str) -> FunctionWords:
    """Return the words by which one of ``LANGUAGES`` is told."""
    raw = _load_lists(code)
    poles = (words for category in raw["cues"].values() for words in category.values())
    entries = [split_words(entry) for entry in chain(raw["light"], *raw["markers"].values(), *poles)]
    light = frozenset(words[0] for words in entries if len(words) == 1)
    return FunctionWords(light, frozenset(raw.get("elisions", ())), raw.get("clitics", {}))


@cache
def _load_vocabulary(code: str) -> frozenset[str]:
    """Return the words of the synonyms and opposites of one of ``LANGUAGES``, and their forms, as they are written."""
    raw, lists = _load_lists(code), _load_lists(f"{code}_synonyms")
    entries = (*lists["groups"], *lists.get("forms", ()), *chain(*raw["synonyms"]["groups"], *raw["antonyms"]["pairs"]))
    return frozenset(word for entry in entries for word in split_words(entry))


@cache
def load_language(code: str) -> Language:
    """Return the word lists of one of ``LANGUAGES``."""
    raw, lists, function_words = _load_lists(code), _load_lists(f"{code}_synonyms"), load_function_words(code)
    stem = _Stemmer(raw.get("stemmer"), raw.get("spellings", {}), lists.get("forms", ())).stem
    split = partial(_split_entry, function_words.elisions)

    # Phrases are words with blanks: "turn on" and "turn off" must not become "turn".
    equal = [[" ".join(map(stem, split(entry))) for entry in group] for group in raw["synonyms"]["groups"]]
    synonyms = _unite([sorted(group, key=lambda entry: " " in entry) for group in equal])
    alike = [[" ".join(map(stem, split(entry))) for entry in group.split(", ")] for group in lists["groups"]]
    groups: dict[str, set[int]] = {}
    for number, group in enumerate(alike):
        for entry in group:
            groups.setdefault(synonyms.get(entry, entry), set()).add(number)
    synonym_phrases = {
        tuple(entry.split()): Phrase("synonym", synonyms.get(entry, entry))
        for entry in chain.from_iterable((*equal, *alike))
        if " " in entry
    }
    phrases: dict[tuple[str, ...], Phrase] = {}
    for entry in raw["light"]:
        phrases[split(entry)] = Phrase("light")
    for key, entries in raw["markers"].items():
        for entry in entries:
            phrases[split(entry)] = Phrase("marker", key)
    for category, poles in raw["cues"].items():
        for pole, entries in poles.items():
            for entry in entries:
                phrases[split(entry)] = Phrase("cue", category, pole)
    for entry in raw["labels"]:
        phrases.setdefault(split(entry), Phrase("label"))
    bare = _find_bare(raw.get("respelled", {}), _list_words(raw, split) | _load_vocabulary(code) | {*chain(*phrases)})
    for words, phrase in list(phrases.items()) if bare else ():
        if len(words) > 1:  # "ou" is not "où"
            spelled = (_spell_out(word, raw["respelled"]) for word in words)
            phrases.setdefault(tuple(bare.get(word, word) for word in spelled), phrase)
    antonyms = frozenset(
        frozenset(synonyms.get(stem(word), stem(word)) for word in pair) for pair in raw["antonyms"]["pairs"]
    )
    opposed = frozenset().union(*antonyms)
    read: dict[str, Any] = {
        "light": function_words.light,
        "elisions": function_words.elisions,
        "clitics": function_words.clitics,
        "code": code,
        "stemmer": raw.get("stemmer"),
        "stem": stem,
        "phrases": phrases,
        "phrase_sizes": _measure(phrases),
        "synonym_phrases": synonym_phrases,
        "synonym_sizes": _measure(synonym_phrases),
        "bare": bare,
        "calendar": {
            form: f"{kind}-{at}"
            for kind in ("days", "months")
            for at, name in enumerate(raw.get(kind, ()), 1)
            for form in (name, stem(name))
        },
        "short_calendar": {
            name: f"{kind}-{at}"
            for kind in ("days", "months")
            for at, name in enumerate(raw.get(f"short_{kind}", ()), 1)
        },
        "clock": Clock(
            **{field.name: _read_meanings(split, raw["clock"].get(field.name, {})) for field in fields(Clock)}
        ),
        "comparisons": frozenset(map(stem, raw.get("comparisons", ()))),
        "times": frozenset(map(stem, raw.get("times", ()))),
        "faults": frozenset(map(stem, raw.get("faults", ()))),
        "past_endings": (*raw.get("participle_endings", ()), *raw.get("past_endings", ())),
        "neutral": frozenset((category, pole) for category, poles in raw["neutral"].items() for pole in poles),
        "synonyms": synonyms,
        "groups": {key: frozenset(numbers) for key, numbers in groups.items()},
        "verbs": frozenset(stem(line.partition(",")[0]) for line in lists.get("forms", ())),
        "antonyms": antonyms,
        "things": frozenset(synonyms.get(stem(word), stem(word)) for word in raw["antonyms"].get("things", ())),
        "opposites": {
            word: frozenset(one for pair in antonyms if word in pair for one in pair - {word}) for word in opposed
        },
        "opposed_prepositions": frozenset(map(frozenset, raw.get("opposed_prepositions", ()))),
        "questions": {word: pole for pole, words in raw["questions"].items() for word in words},
        "inversions": frozenset(tuple(opening.split()) for opening in raw.get("inversions", ())),
    }
    # The other fields are lists, tables and signs of the file as they are.
    rest = {
        field.name: _FORMS[get_origin(field.type) or field.type](raw.get(field.name, ()))
        for field in fields(Language)
        if field.name not in read
    }
    return Language(**read, **rest)


# Type of a field = what makes it of the value in a file.
_FORMS: Mapping[Any, Callable[[Any], Any]] = {frozenset: frozenset, tuple: tuple, bool: bool, abc.Mapping: dict}


def _read_meanings(
    split: Callable[[str], tuple[str, ...]], entries: Mapping[str, str] | Sequence[str]
) -> PhraseMeanings:
    """Return the meaning of each entry, of one without a meaning the entry itself."""
    meanings = entries if isinstance(entries, Mapping) else {entry: entry for entry in entries}
    return {split(entry): meaning for entry, meaning in meanings.items()}


@cache
def _load_lists(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / "languages" / f"{name}.toml").read_text("utf-8"))


def _split_entry(elisions: frozenset[str], entry: str) -> tuple[str, ...]:
    """Return the words of an entry of the lists, as the lexer splits them."""
    return tuple(part for word in split_words(entry) for _, part in split_parts(word, elisions))


def _list_words(raw: Mapping[str, Any], split: Callable[[str], tuple[str, ...]]) -> set[str]:
    """Return the words of the lists and the keys of the tables of a file."""
    entries = chain.from_iterable(value for value in raw.values() if isinstance(value, list | dict))
    return {word for entry in entries if isinstance(entry, str) for word in split(entry)}


def _spell_out(word: str, respelled: Mapping[str, str]) -> str:
    return "".join(respelled.get(letter, letter) for letter in word)


def _find_bare(respelled: Mapping[str, str], words: abc.Set[str]) -> dict[str, str]:
    """Return the words whose letters are spelled out in only one way, by that spelling: muessen = müssen.

    The last é of a French word stays: "fermé" is no form of "ferme".
    """
    found: dict[str, set[str]] = {}
    for word in words:
        if (spelled := _spell_out(word, respelled)) not in words and not _PARTICIPLE.search(word):
            found.setdefault(spelled, set()).add(word)
    return {spelled: min(of_one) for spelled, of_one in found.items() if len(of_one) == 1}


def _measure(phrases: Mapping[tuple[str, ...], Phrase]) -> dict[str, int]:
    """Return the length of the longest phrase that begins with a word."""
    sizes: dict[str, int] = {}
    for words in phrases:
        sizes[words[0]] = max(sizes.get(words[0], 0), len(words))
    return sizes


def split_parts(word: str, elisions: frozenset[str]) -> list[tuple[int, str]]:
    """Return the parts of a word, which an elision or hyphens separate, with their offsets: l'avant-garde has three."""
    head, apostrophe, rest = word.partition("'")
    parts = [head, *rest.split("-")] if apostrophe and rest and head.lower() in elisions else word.split("-")
    offsets = accumulate((len(part) + 1 for part in parts), initial=0)
    return list(zip(offsets, parts, strict=False))


def is_unspaced(word: str) -> bool:
    """Return True for a word of a script without blanks between words."""
    return word > "\u2e80"


def _unite(groups: list[list[str]]) -> dict[str, str]:
    """Return the representative of each word; groups with a word in common are one."""
    parent: dict[str, str] = {}

    def find(word: str) -> str:
        while parent.setdefault(word, word) != word:
            word = parent[word]
        return word

    for group in groups:
        for word in group[1:]:
            parent[find(word)] = find(group[0])
    return {word: find(word) for word in list(parent)}


def split_words(text: str) -> tuple[str, ...]:
    """Return the words of a text in lower case."""
    return tuple([word.lower() for word in WORD.findall(text.replace("’", "'"))])


# Letters of a verb in the future: "irá" is among the cues.
_SHORTEST_FUTURE = 5
# Words of a text without function words that names something and claims nothing: "shopping list".
_MOST_WORDS_OF_NAME = 2
# It tells no language: CI, IT.
_ACRONYM = re.compile(r"\b[A-Z]{2,}\b")


@lru_cache(maxsize=8192)
def detect_language(text: str) -> str | None:
    """Return the language of a text, None if it is none of ``LANGUAGES``.

    Kana decide for Japanese, other ideographs for Chinese. Between alphabetic languages, the number of function words
    decides, and if these are as many in two or only one, the number of words that the lists know: "CI takes a minute"
    is not French. A text with fewer than one function word in eight is of the language that knows at least a quarter of
    its words, more than any other does. Otherwise, and if it is a name of one or two words, it is of no known language.
    """
    words = split_words(_ACRONYM.sub(" ", text)) or split_words(text)
    if not words:
        return "en"
    if not text.isascii():
        if len(_KANA.findall(text)) * 10 >= len(words):
            return "ja"
        if len(_IDEOGRAPH.findall(text)) * 4 >= len(words):
            return "zh"
    hits = dict.fromkeys(LATIN, 0)
    for word in words:
        for code in _find_languages(word):
            hits[code] += 1
    best, second = sorted(LATIN, key=lambda code: -hits[code])[:2]
    is_clear = hits[best] * 8 >= len(words)
    if is_clear and hits[best] > max(hits[second], 1):
        return best
    known = {code: sum(_knows(code, word) for word in words) for code in LATIN}
    if is_clear:
        return max(LATIN, key=lambda code: (known[code], hits[code]))
    if len(words) <= _MOST_WORDS_OF_NAME and not any(map(str.isdigit, text)):
        return None
    best, second = sorted(known, key=lambda code: -known[code])[:2]
    return best if known[best] > known[second] and known[best] * 4 >= len(words) else None


def _knows(code: str, word: str) -> bool:
    """Return True if a word in lower case, or what is left of it without a short ending, is in the lists."""
    words = _load_vocabulary(code)
    return load_function_words(code).is_light(word) or any(word[: len(word) - cut] in words for cut in range(3))


@lru_cache(maxsize=50_000)
def _find_languages(word: str) -> tuple[str, ...]:
    """Return the alphabetic languages in which a word in lower case is a function word."""
    return tuple(code for code in LATIN if load_function_words(code).is_light(word))
