"""Generated memories: facts in several wordings, near-misses, replaced facts, long notes and chatter, from a seed."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any

from benchmarks.consolidation_bench.dataset import (
    Dataset,
    Duplicate,
    Fact,
    Memory,
    NearMiss,
    Question,
    Replacement,
    match_values,
)

FOLDER = Path(__file__).parent / "languages"
LANGUAGES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
USERS = ("ana", "ben")
SEED = 24
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
REPEATS_OF_CHATTER = 2

# Class of near-misses -> slots with other values in the second fact. Without any, the template has other wordings or
# the second fact has another owner.
DIFFERENCES: Mapping[str, tuple[str, ...]] = {
    "number": ("number",),
    "name": ("person",),
    "negation": (),
    "time": ("time",),
    "unit": ("unit",),
    "roles": ("first", "second"),
    "user": (),
    "version": ("version",),
    "environment": ("environment",),
    "antonym": (),
    "quantity": ("quantity",),
    "modality": (),
    "note": ("number",),
}

# Classes whose two facts can both be true.
COMPATIBLE = ("roles", "user", "environment", "note")

NAMES = (
    "Kestrel|Orion|Juniper|Basalt|Corvus|Lumen|Tundra|Saffron|Halcyon|Pelican|Quartz|Vesper|Mistral|Onyx|Willow|Zephyr|"
    "Argon|Bramble|Cobalt|Dahlia|Ember|Falcon|Garnet|Heron|Indigo|Jasper|Krill|Larch|Magnet|Nimbus|Osprey|Poplar|"
    "Quill|Raven|Sequoia|Topaz|Umber|Violet|Walnut|Xenon|Yarrow|Zinc"
).split("|")
PARTS = (
    "Hub|Gate|Desk|Flow|Vault|Board|Mail|Shop|Cast|Grid|Lens|Port|Queue|Relay|Scan|Sync|Track|View|Wire|Works|Bridge|"
    "Forge|Ledger|Studio"
).split("|")
SERVICES = [f"{name} {part}" for name in NAMES for part in PARTS]
PERSONS = "Anna|Boris|Clara|David|Elena|Felix|Greta|Hugo|Irina|Jonas|Katja|Lukas|Maria|Nils|Olga|Pavel".split("|")
REGIONS = "eu-west-1|eu-north-2|us-east-1|us-west-3|ap-south-1|ap-east-2|sa-east-1|af-south-2".split("|")


@dataclass
class _Builder:
    """Dataset that grows, with the words of one language."""

    draw: random.Random
    data: Dataset
    language: str = ""
    words: Mapping[str, Any] = field(default_factory=dict)

    def add_fact(self, user: str, patterns: Sequence[str]) -> str:
        """Add a fact; return its id."""
        fact = Fact(f"f{len(self.data.facts):04}", user, tuple(patterns))
        self.data.facts[fact.id] = fact
        return fact.id

    def add_memory(self, user: str, text: str, *facts: str) -> str:
        """Add a memory that tells the facts; return its id."""
        id_ = f"m{len(self.data.memories):05}"
        self.data.memories.append(Memory(id_, user, text, "", self.language))
        self.data.tells[id_] = frozenset(facts)
        return id_


def generate(size: int = 4, *, seed: int = SEED, languages: Sequence[str] = LANGUAGES) -> Dataset:
    """Return generated memories.

    Args:
        size: Near-misses of each class and language. 4 gives 2,088 memories in six languages.
        seed: The same seed gives the same memories.
        languages: Names of the files in ``languages/``.

    Raises:
        SystemExit: There is no such language.
    """
    if unknown := [language for language in languages if language not in LANGUAGES]:
        raise SystemExit(f"no language {', '.join(unknown)}; there are {', '.join(LANGUAGES)}")
    builder = _Builder(random.Random(seed), Dataset(f"generated, size {size}, seed {seed}"))
    kinds = (*DIFFERENCES, "replaced", "added", "extended")
    if not 1 <= size * len(kinds) * len(languages) <= len(SERVICES):
        raise SystemExit(f"size {size} is not between 1 and {len(SERVICES) // len(kinds) // len(languages)}")
    # Every service once, so that no fact is told by the memory of another or is its translation.
    services = iter(builder.draw.sample(SERVICES, len(SERVICES)))
    for language in languages:
        builder.language = language
        builder.words = tomllib.loads((FOLDER / f"{language}.toml").read_text("utf-8"))
        for kind in kinds:
            for service in islice(services, size):
                _add_kind(builder, kind, service)
        for text in builder.words["chatter"] * REPEATS_OF_CHATTER:
            builder.add_memory(USERS[0], text)
    return _date_memories(builder)


def _add_kind(builder: _Builder, kind: str, service: str) -> None:
    if kind in DIFFERENCES:
        _add_near_miss(builder, kind, service)
    elif kind == "extended":
        _add_extension(builder, service)
    else:
        _add_newer(builder, kind, service)


def _add_near_miss(builder: _Builder, difference: str, service: str) -> None:
    """Add a fact in four memories, a near-miss of it in two of the same wordings, and a question about each."""
    template, draw = builder.words[difference], builder.draw
    values, others = _draw_values(builder, difference, service)
    owners = USERS if difference == "user" else (USERS[0], USERS[0])
    texts = (template["wordings"], template.get("other", template["wordings"]))
    tells = (template.get("tells"), template.get("other_tells", template.get("tells")))
    tail = f" {builder.words['tail']}" if difference == "note" else ""
    first, second = draw.sample(range(len(texts[0])), 2)
    facts = []
    for owner, told, wordings, pattern in zip(owners, (values, others), texts, tells, strict=True):
        fact = builder.add_fact(owner, _build_patterns(wordings[0], pattern, told))
        shown, reworded = (wordings[at].format(**told) + tail for at in (first, second))
        original = builder.add_memory(owner, shown, fact)
        variants = {"reworded": reworded}
        if not facts:
            variants |= {"exact": shown, "light": _edit_lightly(builder, shown)}
        for kind, text in variants.items():
            variant = builder.add_memory(owner, text, fact)
            builder.data.duplicates.append(Duplicate(kind, builder.language, original, variant))
        builder.data.questions.append(Question(owner, template["question"].format(**told), fact))
        facts.append(fact)
    builder.data.near_misses.append(NearMiss(difference, builder.language, *facts, both_hold=difference in COMPATIBLE))


def _draw_values(builder: _Builder, difference: str, service: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the values of the slots for a fact and for its near-miss."""
    draw = builder.draw
    release = f"{draw.randint(1, 9)}.{draw.randint(0, 20)}"
    people = draw.sample(PERSONS, 2)
    slots = {
        "number": draw.sample(range(12, 97), 2),
        "person": people,
        "first": people,
        "second": people[::-1],
        "time": [f"{hour:02}:{draw.choice((0, 15, 30, 45)):02}" for hour in draw.sample(range(24), 2)],
        "version": [f"{release}.{patch}" for patch in draw.sample(range(1, 30), 2)],
        **{name: draw.sample(values, 2) for name, values in builder.words["slots"].items()},
    }
    both = [{"service": service, **{name: str(values[at]) for name, values in slots.items()}} for at in (0, 1)]
    changed = DIFFERENCES[difference]
    return both[0], both[0] | {name: both[1][name] for name in changed}


def _build_patterns(wording: str, tells: str | None, values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the patterns of a fact: its own, with the values of the slots, else the values of one wording."""
    if tells:
        return (tells.format(**{name: re.escape(value) for name, value in values.items()}),)
    return match_values(values[name] for _, name, _, _ in Formatter().parse(wording) if name)


def _edit_lightly(builder: _Builder, text: str) -> str:
    """Return the text with an opening, without its full stop, or with two spaces for one."""
    edits = (
        builder.draw.choice(builder.words["openings"]) + text,
        text.rstrip(".。"),
        text.replace(" ", "  ", 1),
    )
    return builder.draw.choice(edits)


def _add_newer(builder: _Builder, kind: str, service: str) -> None:
    """Add a memory, a newer one that replaces it or adds to it, and a question about the newer one."""
    template, draw, user = builder.words[kind], builder.draw, USERS[0]
    old, new = draw.sample(REGIONS, 2)
    values = {"service": service, "old": old, "new": new, "date": f"2026-0{draw.randint(2, 6)}-{draw.randint(10, 28)}"}
    facts = [builder.add_fact(user, match_values((service, region))) for region in (old, new)]
    older = builder.add_memory(user, template["wordings"][0].format(**values), facts[0])
    newer = builder.add_memory(user, template["newer"][0].format(**values), facts[1])
    builder.data.replacements.append(Replacement(builder.language, older, newer, kind == "replaced"))
    builder.data.questions.append(Question(user, template["question"].format(**values), facts[1]))


def _add_extension(builder: _Builder, service: str) -> None:
    """Add a memory and one that tells the same and a detail more. They may become one if the detail stays."""
    template, user = builder.words["extended"], USERS[0]
    values = _draw_values(builder, "number", service)[0]
    text, detail = template["wordings"][0].format(**values), template["detail"].format(**values)
    fact = builder.add_fact(user, match_values((service, values["number"])))
    more = builder.add_fact(user, (re.escape(detail.rstrip(".。")),))
    builder.add_memory(user, text, fact)
    builder.add_memory(user, f"{text} {detail}", fact, more)
    builder.data.questions.append(Question(user, template["question"].format(**values), fact))


def _date_memories(builder: _Builder) -> Dataset:
    """Return the dataset with its memories shuffled and dated, one an hour; an older one stays before its newer one."""
    memories = list(builder.data.memories)
    builder.draw.shuffle(memories)
    place = {memory.id: at for at, memory in enumerate(memories)}
    for pair in builder.data.replacements:
        if place[pair.older] > place[pair.newer]:
            place[pair.older], place[pair.newer] = place[pair.newer], place[pair.older]
    dated = [
        replace(memory, created_at=(START + timedelta(hours=place[memory.id])).isoformat())
        for memory in sorted(memories, key=lambda memory: place[memory.id])
    ]
    return replace(builder.data, memories=dated)
