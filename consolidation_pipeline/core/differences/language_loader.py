"""Word lists of languages, read from ``languages/*.toml``; ``language.py`` explains their keys."""

import re
import tomllib
from collections import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache, lru_cache, partial
from importlib.resources import files
from itertools import chain
from threading import Lock
from typing import Any, get_origin

from consolidation_pipeline.core.differences.inflection import list_stems, name_passive
from consolidation_pipeline.core.differences.language import (
    Clock,
    FunctionWords,
    Language,
    Phrase,
    PhraseMeanings,
    Template,
    split_parts,
    split_words,
)
from consolidation_pipeline.core.grouping.union_find import unite

_PARTICIPLE = re.compile(r"ée?s?\Z")
_PART = re.compile(r"\{([a-z]+)\}")
# Categories of cues that are no verbs with stems.
_GRAMMAR = frozenset("polarity need quantity restriction bound modality stance tense order voice time".split())
# Letters before an ending that has two spellings: "colour", not "hour".
_SHORTEST_HEAD = 3


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


# Symbols of units, which are of no language.
_SYMBOLS = frozenset(("g", "kg"))


@cache
def load_vocabulary(code: str) -> frozenset[str]:
    """Return the words of the synonyms and opposites of one of ``LANGUAGES``, and their forms, as they are written."""
    raw, lists = _load_lists(code), _load_lists(f"{code}_synonyms")
    entries = (*lists["groups"], *lists.get("forms", ()), *chain(*raw["synonyms"]["groups"], *raw["antonyms"]["pairs"]))
    return frozenset(word for entry in entries for word in split_words(entry)) - _SYMBOLS


@cache
def load_language(code: str) -> Language:
    """Return the word lists of one of ``LANGUAGES``."""
    raw, lists, function_words = _load_lists(code), _load_lists(f"{code}_synonyms"), load_function_words(code)
    stem = _Stemmer(raw.get("stemmer"), raw.get("spellings", {}), lists.get("forms", ())).stem
    split = partial(_split_entry, function_words.elisions)

    # Phrases are words with blanks: "turn on" and "turn off" must not become "turn".
    entries = [*raw["synonyms"]["groups"], *_list_verb_forms(raw.get("stem_verbs", ()))]
    equal = [[" ".join(map(stem, split(entry))) for entry in group] for group in entries]
    synonyms = unite([sorted(group, key=lambda entry: " " in entry) for group in equal])
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
    phrases = _read_phrases(raw, split)
    bare = _find_bare(raw.get("respelled", {}), _list_words(raw, split) | load_vocabulary(code) | {*chain(*phrases)})
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
        "numbers": dict(_list_compound_numbers(raw)) | raw.get("numbers", {}),
        "stemmer": raw.get("stemmer"),
        "stem": stem,
        "phrases": phrases,
        "phrase_sizes": _measure(phrases),
        "synonym_phrases": synonym_phrases,
        "synonym_sizes": _measure(synonym_phrases),
        "phrasings": (phrasings := _read_phrasings(split, raw.get("phrasings", {}))),
        "phrasing_sizes": _measure(phrasings),
        "bare": bare,
        "calendar": {form: key for name, key in _read_calendar(raw, "").items() for form in (name, stem(name))},
        "short_calendar": _read_calendar(raw, "short_"),
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
        "opposed_places": frozenset(map(frozenset, raw.get("opposed_places", ()))),
        "holders": _read_keys(raw.get("holders", ()), stem, synonyms),
        "intransitives": _read_keys(raw.get("intransitives", ()), stem, synonyms),
        "deeds": _read_keys(raw.get("deeds", ()), stem, synonyms),
        "undoing": _read_keys(raw.get("undoing", ()), stem, synonyms),
        "opposed_prepositions": frozenset(map(frozenset, raw.get("opposed_prepositions", ()))),
        "questions": {word: pole for pole, words in raw["questions"].items() for word in words},
        "inversions": frozenset(tuple(opening.split()) for opening in raw.get("inversions", ())),
        "rewriting": tuple(_read_rewriting(raw.get("rewriting", {}))),
    }
    # The other fields are lists, tables and signs of the file as they are.
    plain = {field.name: field.type for field in fields(Language) if field.name not in read}
    check_keys(code, raw, _READ_KEYS | plain.keys())
    check_keys(f"{code}: clock", raw["clock"], {field.name for field in fields(Clock)})
    check_keys(f"{code}: antonyms", raw["antonyms"], {"pairs", "things"})
    check_keys(f"{code}: synonyms", raw["synonyms"], {"groups"})
    check_keys(f"{code}: rewriting", raw.get("rewriting", {}), {"parts", "rules"})
    check_keys(f"{code}_synonyms", lists, {"forms", "groups"})
    rest = {name: _FORMS[get_origin(form) or form](raw.get(name, ())) for name, form in plain.items()}
    return Language(**read, **rest)


def _read_keys(entries: Sequence[str], stem: Callable[[str], str], synonyms: Mapping[str, str]) -> frozenset[str]:
    """Return the keys of words and phrases."""
    stems = (" ".join(map(stem, split_words(entry))) for entry in entries)
    return frozenset(synonyms.get(one, one) for one in stems)


def _list_verb_forms(verbs: Sequence[str]) -> list[list[str]]:
    """Return each Japanese verb with its stems, and the stems of passives, which are words apart."""
    forms = [[verb, *list_stems(verb)] for verb in verbs]
    return [*forms, *([passive] for verb in verbs if (passive := name_passive(verb)))]


# Keys of a file that are read by name.
_READ_KEYS = frozenset(
    (
        *("light", "markers", "cues", "labels", "clock", "synonyms", "antonyms", "neutral", "questions", "inversions"),
        *("elisions", "clitics", "stemmer", "spellings", "days", "months", "short_days", "short_months"),
        *("comparisons", "times", "faults", "past_endings", "opposed_prepositions", "opposed_places", "holders"),
        *("undoing", "deeds", "intransitives", "stem_verbs", "phrasings", "rewriting", "numbers", "number_heads"),
    )
)
# Type of a field = what makes it of the value in a file.
_FORMS: Mapping[Any, Callable[[Any], Any]] = {frozenset: frozenset, tuple: tuple, bool: bool, abc.Mapping: dict}


def check_keys(place: str, table: Mapping[str, Any], known: abc.Set[str]) -> None:
    """Raise ValueError if a table has other keys than those that are read."""
    if unknown := sorted(table.keys() - known):
        raise ValueError(f"{place}: nothing reads the keys {', '.join(unknown)}; known: {', '.join(sorted(known))}")


def _read_phrases(raw: Mapping[str, Any], split: Callable[[str], tuple[str, ...]]) -> dict[tuple[str, ...], Phrase]:
    """Return the meanings of function words, markers, cues and labels."""
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
    for words, phrase in list(phrases.items()) if raw.get("stem_verbs") else ():
        if phrase.role == "cue" and phrase.key not in _GRAMMAR:
            for form in list_stems("".join(words)):
                phrases.setdefault(split(form), phrase)
    for words, phrase in list(phrases.items()):
        elided = words[-1][:-1]
        if elided in raw.get("elisions", ()) and len(words) > 1:  # "dit qu'il", "dit que"
            phrases.setdefault((*words[:-1], elided), phrase)
    for entry in raw["labels"]:
        phrases.setdefault(split(entry), Phrase("label"))
    return phrases


def _read_calendar(raw: Mapping[str, Any], prefix: str) -> dict[str, str]:
    """Return the keys of the names of days and months in the lists with a prefix: monday = "days-1"."""
    return {
        name: f"{kind}-{at}" for kind in ("days", "months") for at, name in enumerate(raw.get(prefix + kind, ()), 1)
    }


def _read_meanings(
    split: Callable[[str], tuple[str, ...]], entries: Mapping[str, str] | Sequence[str]
) -> PhraseMeanings:
    """Return the meaning of each entry, of one without a meaning the entry itself."""
    meanings = entries if isinstance(entries, Mapping) else {entry: entry for entry in entries}
    return {split(entry): meaning for entry, meaning in meanings.items()}


def _list_compound_numbers(raw: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield numbers in one word that are made of others: "zweihundertfünfzig", "zwanzigtausend"."""
    below = {word: int(n) for word, n in raw.get("numbers", {}).items() if 1 <= n < 100 and n == int(n)} | {"ein": 1}
    for head, value in raw.get("number_heads", {}).items():
        for first, n in [("", 1), *below.items()]:
            if n * value < 10 * value or value > 100:
                yield first + head, n * value
            if n < 10 and value == 100:
                yield from (
                    (first + head + link + rest, n * value + m) for rest, m in below.items() for link in ("", "und")
                )


def _read_phrasings(split: Callable[[str], tuple[str, ...]], entries: Mapping[str, str]) -> PhraseMeanings:
    """Return what stands in the place of each phrase, with blanks between its words in any script."""
    return {split(entry): " ".join(split_words(meaning)) for entry, meaning in entries.items()}


def _read_rewriting(raw: Mapping[str, Any]) -> Iterator[tuple[re.Pattern[str], Template]]:
    """Yield the pattern of each rule and what stands in its place."""
    parts: dict[str, str] = {}
    for name, part in raw.get("parts", {}).items():
        parts[name] = _fill_in(part, parts)
    for pattern, form in raw.get("rules", ()):
        signs = re.findall(r"\\\d|.", form)
        yield re.compile(_fill_in(pattern, parts)), tuple(int(s[1:]) if len(s) > 1 else s for s in signs)


def _fill_in(pattern: str, parts: Mapping[str, str]) -> str:
    return _PART.sub(lambda match: parts[match[1]], pattern)


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


def _measure(phrases: Mapping[tuple[str, ...], Any]) -> dict[str, int]:
    """Return the length of the longest phrase that begins with a word."""
    sizes: dict[str, int] = {}
    for words in phrases:
        sizes[words[0]] = max(sizes.get(words[0], 0), len(words))
    return sizes
