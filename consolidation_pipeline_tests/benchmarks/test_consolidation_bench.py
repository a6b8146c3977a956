"""Benchmark of consolidation: generated data, measures, adapters, limits of processes, report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.consolidation_bench import measure
from benchmarks.consolidation_bench.dataset import Fact, Memory, match_values
from benchmarks.consolidation_bench.external import load_dataset
from benchmarks.consolidation_bench.generate import DIFFERENCES, LANGUAGES, generate
from benchmarks.consolidation_bench.measure import Share
from benchmarks.consolidation_bench.observe import observe
from benchmarks.consolidation_bench.report import write_report
from benchmarks.consolidation_bench.run import measure_observation, run, run_system
from benchmarks.consolidation_bench.systems import load_system
from benchmarks.consolidation_bench.systems.rule_model import OracleRule, WordRule
from benchmarks.consolidation_bench.systems.system import ActiveMemory
from consolidation_pipeline_tests.benchmarks.example_systems import TEXTS, make_dataset

EXAMPLES = "consolidation_pipeline_tests.benchmarks.example_systems"


def measure_example(name: str, folder: Path) -> dict[str, Any]:
    """Return the figures of an example system on the small dataset."""
    data = make_dataset()
    seen, other = (observe(f"{EXAMPLES}:{name}", data, folder, is_shuffled=shuffled) for shuffled in (False, True))
    return measure_observation(data, seen, other)


# --- data ------------------------------------------------------------------------------------------------------------


def test_same_seed_gives_same_memories() -> None:
    assert generate(2) == generate(2)
    assert generate(2).memories != generate(2, seed=25).memories


def test_every_class_is_in_every_language() -> None:
    data = generate(1)
    assert {(pair.difference, pair.language) for pair in data.near_misses} == {
        (difference, language) for difference in DIFFERENCES for language in LANGUAGES
    }
    assert {(pair.language, pair.is_replaced) for pair in data.replacements} == {
        (language, is_replaced) for language in LANGUAGES for is_replaced in (True, False)
    }


def test_memory_tells_its_facts_and_no_others() -> None:
    data = generate(1)
    # "no longer in X" names the older value too.
    older = {data.replaced[id_]: data.tells[id_] for id_ in data.replaced}
    for memory in data.memories:
        told = {id_ for id_, fact in data.facts.items() if fact.user == memory.user and fact.is_told_by(memory.text)}
        assert told - older.get(memory.id, frozenset()) == data.tells[memory.id], memory.text


def test_older_memories_were_created_first() -> None:
    data = generate(2)
    assert all(data.created[pair.older] < data.created[pair.newer] for pair in data.replacements)
    assert list(data.created.values()) == sorted(data.created.values())


def test_values_match_as_a_whole() -> None:
    fact = Fact("f", "ana", match_values(["Kestrel", "3.8"]))
    assert fact.is_told_by("kestrel  needs 3.8.")
    assert not fact.is_told_by("Kestrel needs 3.8.2.")
    assert not fact.is_told_by("Kestrel needs 13.8.")
    assert not fact.is_told_by("Kestrel is here. 3.8 is needed.")


@pytest.mark.parametrize(
    ("arguments", "message"), [({"size": 0}, "size 0"), ({"size": 99}, "size 99"), ({"languages": ["xx"]}, "xx")]
)
def test_illegal_size_or_language_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        generate(**arguments)


def test_pairs_and_sets_of_files_are_loaded(tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"a": "x is 1", "b": "x is 2", "part": "near", "cls": "number"}, {"a": "p", "b": "q", "may_merge": True}]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = load_dataset(pairs)
    assert [pair.difference for pair in data.near_misses] == ["number"]
    assert [(pair.first, pair.second) for pair in data.duplicates] == [("pair-1-a", "pair-1-b")]
    assert data.facts["pair-1-fact-0"].is_told_by("It is Q.")

    sets = tmp_path / "sets.jsonl"
    sets.write_text("".join(json.dumps({"content": text, "dup_group": "g"}) + "\n" for text in ("one", "One", "two")))
    assert [pair.kind for pair in load_dataset(sets).duplicates] == ["exact", "reworded"]


def test_file_of_other_rows_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    file.write_text('{"text": "x"}\n')
    with pytest.raises(SystemExit, match="a and b, or content"):
        load_dataset(file)


# --- measures --------------------------------------------------------------------------------------------------------


def test_perfect_system_has_no_faults(tmp_path: Path) -> None:
    figures = measure_example("Perfect", tmp_path)
    assert figures["active"] == 6
    assert figures["wrong_merges"]["all"] == Share(0, 1)
    assert figures["missed_duplicates"]["all"] == Share(0, 1)
    assert figures["lost_facts"] == Share(0, 5)
    assert figures["superseded"] == Share(1, 1)
    assert figures["wrongly_superseded"] == Share(0, 2)
    assert figures["order_dependence"] == Share(0, 2)
    assert figures["changed_by_second_run"] == Share(0, 6)
    assert figures["restored_by_undo"] == Share(7, 7)
    assert figures["answered_before"] == figures["answered_after"] == Share(1, 1)


def test_one_memory_for_all_merges_wrongly_and_loses(tmp_path: Path) -> None:
    figures = measure_example("OneForAll", tmp_path)
    assert figures["active"] == 1
    assert figures["wrong_merges"] == {key: Share(1, 1) for key in ("all", "number", "en")}
    assert figures["missed_duplicates"]["all"] == Share(0, 1)
    assert figures["mixed_memories"] == Share(1, 1)
    assert figures["lost_facts"].count == 4
    assert figures["wrongly_superseded"].count == 3
    assert figures["restored_by_undo"] is None


def test_idle_system_misses_duplicates_and_loses_nothing(tmp_path: Path) -> None:
    figures = measure_example("Idle", tmp_path)
    assert figures["wrong_merges"]["all"] == Share(0, 1)
    assert figures["missed_duplicates"]["reworded"] == Share(1, 1)
    assert figures["lost_facts"] == Share(0, 5)
    assert figures["superseded"] == Share(0, 1)


def test_second_run_and_backward_marks_are_counted(tmp_path: Path) -> None:
    figures = measure_example("Growing", tmp_path)
    assert figures["changed_by_second_run"] == Share(2, 7)
    assert figures["wrongly_superseded"] == Share(1, 2)


def test_mark_between_contradicting_facts_is_not_judged() -> None:
    data = make_dataset()
    active = [ActiveMemory(memory.user, memory.text, (memory.id,)) for memory in data.memories]
    marks = {("port", "other port"): 0, ("other port", "port"): 1, ("port", "metrics"): 1, ("old home", "new home"): 0}
    for (older, newer), wrong in marks.items():
        state = measure.State(data, active, {older: newer})
        assert measure.count_wrongly_superseded(state).count == wrong, (older, newer)


# --- systems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "package", "left"),
    [
        ("nothing", None, 4),
        ("exact", None, 3),
        ("greedy cosine", None, 3),
        ("minhash", "datasketch", 3),
        ("semhash", "semhash", 3),
    ],
)
def test_simple_systems_unite_repeats_of_a_user(name: str, package: str | None, left: int, tmp_path: Path) -> None:
    if package:
        pytest.importorskip(package)
    data = make_dataset()
    texts = [("ana", TEXTS["port"]), ("ben", TEXTS["port"]), ("ana", TEXTS["port"]), ("ana", TEXTS["metrics"])]
    rows = [Memory(f"m{at}", user, text, "") for at, (user, text) in enumerate(texts)]
    system = load_system(name)(tmp_path, data)
    system.load(rows)
    system.consolidate()
    groups = {memory.sources for memory in system.active()}
    assert len(groups) == left
    assert (("m0", "m2") in groups) == (name != "nothing")
    assert system.search("ana", "Where do the metrics of Lumen go?", 1) == [TEXTS["metrics"]]
    assert not system.undo()


def test_word_rule_knows_texts_by_their_words() -> None:
    rule = WordRule()
    assert not rule.decide("Kestrel listens on port 41.", ["kestrel listens on  port 41"]).keeps
    assert rule.decide("Kestrel listens on port 41.", ["Kestrel listens on port 42."]).keeps
    assert not rule.decide("备份在早上开始。", ["备份在早上开始"]).keeps
    assert rule.decide("备份在早上开始。", ["报告在晚上结束。"]).keeps


def test_oracle_knows_what_is_told_and_replaced() -> None:
    rule = OracleRule(make_dataset())
    assert not rule.decide(TEXTS["port again"], [TEXTS["port"]]).keeps
    assert rule.decide(TEXTS["port again"], [TEXTS["other port"]]).keeps
    assert rule.decide(TEXTS["new home"], [TEXTS["old home"]]) == (True, (TEXTS["old home"],))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "left", "superseded"),
    [("mem0, oracle", "mem0", 6, 0), ("langmem, oracle", "langmem", 5, 1)],
)
def test_adapters_run_on_the_small_dataset(name: str, package: str, left: int, superseded: int, tmp_path: Path) -> None:
    pytest.importorskip(package)
    figures = run_system(name, make_dataset(), tmp_path, seconds=200, megabytes=4000)
    assert "skipped" not in figures, figures
    assert figures["active"] == left
    assert figures["wrong_merges"]["all"] == Share(0, 1)
    assert figures["lost_facts"] == Share(0, 5)
    assert figures["answered_after"] == Share(1, 1)
    assert figures["calls"] == 7
    assert figures["superseded"] == Share(superseded, 1)


def test_unknown_system_is_named() -> None:
    with pytest.raises(SystemExit, match="no system 'memo'"):
        load_system("memo")


# --- processes and report --------------------------------------------------------------------------------------------


def test_report_names_best_values_and_left_out_systems() -> None:
    data = make_dataset()
    names = {name: f"{EXAMPLES}:{name}" for name in ("Idle", "Hanging", "Failing", "Missing")}
    figures = dict(run([names["Idle"], names["Failing"], names["Missing"]], data, seconds=60, megabytes=4000))
    figures |= dict(run([names["Hanging"]], data, seconds=1, megabytes=4000))
    report = write_report(data, {name: figures[path] for name, path in names.items()})
    assert "| Idle | none | 100.0% | **0.0%** | **100.0%** |" in report
    assert "Hanging: left out, more than 1 s." in report
    assert "Failing: left out, failed: RuntimeError: no licence." in report
    assert "Missing: left out, package a_package_that_nobody_has is not installed." in report


def test_memory_limit_ends_a_system(tmp_path: Path) -> None:
    figures = run_system(f"{EXAMPLES}:Hanging", make_dataset(), tmp_path, seconds=60, megabytes=1)
    assert figures == {"skipped": "more than 1 MB"}
