"""Fit of a calibration: mean, boilerplate and thresholds from a project's memories. Nothing is stored here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, islice
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.calibration.decision_errors import LabelledPair, measure_errors
from consolidation_pipeline.core.calibration.model_thresholds import (
    TIERS,
    ThresholdProfile,
    find_profile,
    resolve_thresholds,
)
from consolidation_pipeline.core.calibration.threshold_estimates import CosineSpread, measure_spread
from consolidation_pipeline.core.calibration.topic_threshold import TopicThreshold, find_topic_threshold
from consolidation_pipeline.core.differences.pair_screen import RULES_VERSION
from consolidation_pipeline.core.memories.memories import content_hash
from consolidation_pipeline.core.text.boilerplate import find_boilerplate
from consolidation_pipeline.embed.local import word_similarity
from consolidation_pipeline.scopes import NO_WALLS
from consolidation_pipeline.service.similarity.graph_nodes import (
    ProjectContext,
    center_vectors,
    count_units,
    first_rows_of_contents,
    load_graph_nodes,
)
from consolidation_pipeline.service.similarity.grouping_vectors import (
    StrippedTexts,
    build_grouping_vectors,
    embed_stripped_texts,
)
from consolidation_pipeline.service.similarity.judge_calibration import measure_judge
from consolidation_pipeline.service.similarity.pair_judges import name_judge
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.review.labelled_pairs import load_labels
from consolidation_pipeline.store.search.context import load_scopes
from consolidation_pipeline.store.similarity.calibrations import Calibration, load_decided_texts, load_decisions
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

# With fewer contents, a mean, a median or a share says more about the sample than about the project. Then the model's
# profile is used alone.
MIN_CONTENTS = 50

# Position of the lowest principle threshold between the median cosine of all pairs (0) and that of nearest neighbours
# (1): 0.23 on commands of 11 domains, where ``WORDLLAMA`` was measured.
PRINCIPLE_POSITION = 0.30

# Version of the rule for t_pattern; a project with another one is calibrated anew.
TOPIC_RULE = 3

# Memories used of a large approved group, as the others repeat the same; and pairs of suggestions and pairs of labels
# that are measured, the newest first.
_MAX_GROUP_MEMORIES, _MAX_DECIDED_PAIRS, _MAX_LABELS = 6, 500, 500

# The memories of a group, and True if a person found that they say the same.
Decision = tuple[Sequence[UUID], bool]

# Options that a snapshot depends on; it is renewed when one of them changes.
_OPTION_NAMES = (*TIERS, "center")


def select_calibration_options(context: ProjectContext) -> dict[str, Any]:
    """Return the options that a calibration or the graph under it depends on.

    ``cross_type`` is among them if it is set: pairs across types are judged only then. ``scope`` is among them if it
    keeps memories apart. ``pair_judge``: name of the judge, if there is one. ``rules``: version of the rules that
    decide on pairs. ``topics``: version of the rule for t_pattern.
    """
    options = context.options
    cross_type = {"cross_type": True} if options.cross_type else {}
    scope = {"scope": options.scope} if options.scope != NO_WALLS else {}
    judge = {"pair_judge": name_judge(options)} if options.pair_judge != "none" else {}
    own = {name: getattr(options, name) for name in _OPTION_NAMES}
    return {**own, **cross_type, **scope, **judge, "rules": RULES_VERSION, "topics": TOPIC_RULE}


def fit_calibration(
    context: ProjectContext,
    current: Calibration | None,
    trigger: str,
    *,
    ask_judge: bool,
    given: tuple[Nodes, Vectors] | None = None,
) -> tuple[Calibration, StrippedTexts]:
    """Make a new calibration snapshot, and the stripped texts whose vectors belong to it.

    Args:
        context: the project and its embedding model.
        current: snapshot in force, if there is one.
        trigger: reason of the new calibration, for the report.
        ask_judge: ask the pair judge about labelled pairs without an answer; else only stored answers are used.
        given: nodes and their plain vectors (n, d) to use; None = those that are stored.

    Raises:
        EmbeddingError: the model gave no usable vector for a text without its boilerplate.
    """
    inputs = _load_inputs(context, given)
    first = first_rows_of_contents(inputs.nodes)
    is_measured = len(first) >= MIN_CONTENTS
    contents = [inputs.texts[id_] for id_ in to_uuids(inputs.nodes.ids[first])]
    boilerplate = find_boilerplate(contents) if is_measured else ()
    stripped = embed_stripped_texts(context, inputs.texts, boilerplate, known=inputs.stored)
    vectors = build_grouping_vectors(inputs.nodes.ids, inputs.plain, stripped, inputs.stored)
    draft = Calibration(
        version=1 if current is None else current.version + 1,
        center=_mean(vectors[first]) if is_measured and context.options.center else None,
        thresholds={},
        memories=count_units(inputs.nodes),
        boilerplate=boilerplate,
        options=select_calibration_options(context),
        report={
            "trigger": trigger,
            "contents": len(first),
            "stripped": len(stripped.hashes),
            "decided": measure_errors(inputs.decided, word_similarity) if inputs.decided else None,
            "judge": measure_judge(context, inputs.decided, ask=ask_judge),
        },
    )
    if not is_measured:
        return _use_profile(context, draft), stripped
    x = center_vectors(vectors[first], draft)
    # By text, not by id, so that a project of another name gets the same thresholds.
    order = np.argsort(np.array([content_hash(text) for text in contents]))
    spread = measure_spread(x, order)
    topics = None if spread is None else find_topic_threshold(x, order, spread)
    return _use_spread(context, draft, spread, topics), stripped


@dataclass(frozen=True, eq=False)
class _FitInputs:
    """Inputs of a calibration.

    ``nodes`` with ``plain`` vectors (n, d) of their whole texts; ``stored``: grouping vectors (d,) by the hash of their
    stripped text; ``texts`` by memory; ``decided``: pairs that people decided on or labelled.
    """

    nodes: Nodes
    plain: Vectors
    stored: Mapping[str, Vectors]
    texts: Mapping[UUID, str]
    decided: list[LabelledPair]


def _load_inputs(context: ProjectContext, given: tuple[Nodes, Vectors] | None) -> _FitInputs:
    with context.engine.connect() as connection:
        nodes, plain = given or load_graph_nodes(connection, context, plain=True)
        texts = load_texts(connection, to_uuids(nodes.ids))
        stored = load_stored_vectors(connection, context)
        decided = load_decided_pairs(connection, context, texts)
    return _FitInputs(nodes, plain, stored, texts, decided)


def load_decided_pairs(
    connection: Connection, context: ProjectContext, texts: Mapping[UUID, str]
) -> list[LabelledPair]:
    """Return the pairs of decided suggestions, and the labelled ones that nobody decided on.

    Args:
        texts: texts of the nodes.
    """
    project_id = context.project.id
    all_texts = {**load_decided_texts(connection, project_id), **texts}
    decisions = load_decisions(connection, project_id)
    labels = load_labels(connection, project_id, most=_MAX_LABELS)
    firsts = [*(ids[0] for ids, _ in decisions), *(a for a, _, _ in labels)]
    scopes = load_scopes(connection, firsts, context.options.scope)
    suggested = _list_decided_pairs(decisions, all_texts, scopes)
    found = {frozenset((pair.a, pair.b)): pair for pair in islice(suggested, _MAX_DECIDED_PAIRS)}
    archived = {id_ for a, b, _ in labels for id_ in (a, b) if id_ not in texts}
    labelled_texts = {**texts, **load_texts(connection, list(archived))}
    for a, b, same in labels:
        pair = LabelledPair(labelled_texts[a], labelled_texts[b], same, "label", scopes.get(a, ""))
        found.setdefault(frozenset((pair.a, pair.b)), pair)
    return list(found.values())


def _list_decided_pairs(
    decisions: Sequence[Decision], texts: Mapping[UUID, str], scopes: Mapping[UUID, str]
) -> Iterator[LabelledPair]:
    """Yield the pairs of the groups that people decided on.

    Rejected groups of more than two are left out: nobody knows which of their pairs differ.
    """
    for ids, same in decisions:
        used = ids[:_MAX_GROUP_MEMORIES]
        if all(id_ in texts for id_ in used) and (same or len(ids) == 2):
            pairs = combinations([texts[id_] for id_ in used], 2)
            scope = scopes.get(ids[0], "")
            yield from (LabelledPair(a, b, same, "suggestion", scope) for a, b in pairs if a != b)


def load_stored_vectors(connection: Connection, context: ProjectContext) -> dict[str, Vectors]:
    """Return the stored grouping vectors (d,) by the hash of the text without its boilerplate."""
    hashes = load_text_hashes(connection, context.project.id, context.embedder.name)
    if not hashes:
        return {}
    nodes, vectors = load_graph_nodes(connection, context)
    rows = zip(to_uuids(nodes.ids), vectors, strict=True)
    return {hashes[id_]: vector for id_, vector in rows if id_ in hashes}


def _mean(vectors: Vectors) -> Vectors | None:
    # In float64: a float32 sum of many rows would depend on their number and order.
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32) if len(vectors) else None


def _use_profile(context: ProjectContext, draft: Calibration) -> Calibration:
    """Use the model's profile for uncentred vectors and the given options: there are too few memories to measure."""
    thresholds = resolve_thresholds(context.embedder.name, context.options.model_dump(), centered=False)
    profile = find_profile(context.embedder.name, centered=False)
    return replace(draft, thresholds=thresholds, report={**draft.report, "profile": _describe_profile(profile)})


def _use_spread(
    context: ProjectContext, draft: Calibration, spread: CosineSpread | None, topics: TopicThreshold | None
) -> Calibration:
    """Use the thresholds that the project's cosines recommend, and the given options."""
    name, centered = context.embedder.name, draft.center is not None
    profile = find_profile(name, centered=centered)
    recommended = _recommend_thresholds(profile, spread, topics)
    thresholds = resolve_thresholds(name, context.options.model_dump(), centered=centered, recommended=recommended)
    report = {
        **draft.report,
        "profile": _describe_profile(profile),
        "spread": None if spread is None else asdict(spread),
        "topics": None if topics is None else asdict(topics),
        "recommended": recommended,
    }
    return replace(draft, thresholds=thresholds, report=report)


def _recommend_thresholds(
    profile: ThresholdProfile, spread: CosineSpread | None, topics: TopicThreshold | None
) -> dict[str, float]:
    """Return the four thresholds by name, and ``t_graph``, from which on pairs are stored.

    Some projects are so dense that a memory has dozens of neighbours, because all were made from one form. There
    ``t_graph`` is above the profile's suggest threshold, and the suggest and merge thresholds are raised to it.
    Principles keep the profile's distance to patterns, as far as it leaves them above what unrelated texts share.
    """
    if spread is None or topics is None:
        return {**profile.thresholds(), "t_graph": profile.t_pattern}
    t_pattern = topics.threshold
    t_graph = max(t_pattern, spread.bound)
    t_suggest = max(profile.t_suggest, t_graph)
    related = spread.median + PRINCIPLE_POSITION * (spread.nearest - spread.median)
    t_principle = min(t_pattern, round(max(t_pattern - (profile.t_pattern - profile.t_principle), related), 3))
    tiers = dict(zip(TIERS, (t_suggest, t_suggest, t_pattern, t_principle), strict=True))
    return {**tiers, "t_graph": t_graph}


def _describe_profile(profile: ThresholdProfile) -> dict[str, Any]:
    return {**profile.thresholds(), "measured": profile.measured, "source": profile.source}
