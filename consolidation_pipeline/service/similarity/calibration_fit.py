"""Derive a fresh calibration from a project's memories; nothing is stored here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np

from consolidation_pipeline.core.calibration.model_thresholds import (
    LONG_WORDS,
    TIERS,
    ThresholdProfile,
    find_profile,
    resolve_thresholds,
)
from consolidation_pipeline.core.calibration.threshold_estimates import (
    MIN_PATTERN_THRESHOLD,
    CosineSpread,
    LabelledPairs,
    Recommendation,
    Share,
    compute_curve,
    compute_merged_shares,
    estimate_errors,
    measure_spread,
    recommend_pattern_threshold,
    recommend_thresholds,
)
from consolidation_pipeline.core.text.boilerplate import find_boilerplate, strip_boilerplate
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
from consolidation_pipeline.service.similarity.labelled_pairs import build_labelled_pairs, list_decided_pairs
from consolidation_pipeline.store.database.engine import Connection
from consolidation_pipeline.store.database.vector_copy import Vectors, to_uuids
from consolidation_pipeline.store.memories.memories import load_texts
from consolidation_pipeline.store.similarity.calibrations import Calibration, load_decided_texts, load_decisions
from consolidation_pipeline.store.similarity.grouping_vectors import load_text_hashes
from consolidation_pipeline.store.similarity.similarity_graph import Nodes

# A mean, a median or a share of fewer says more about them than about the project: the profile alone holds then.
MIN_CONTENTS = 50

# Options that a snapshot is taken under; it is renewed when one of them changes.
_SHAPING = (*TIERS, "center")


def select_calibration_options(run: ProjectContext) -> dict[str, Any]:
    """The options that a calibration depends on, or the graph under it: pairs across types are judged only if asked."""
    across = {"cross_type": True} if run.options.cross_type else {}
    return {**{name: getattr(run.options, name) for name in _SHAPING}, **across}


def fit_calibration(
    run: ProjectContext, held: Calibration | None, trigger: str, *, given: tuple[Nodes, Vectors] | None = None
) -> tuple[Calibration, StrippedTexts]:
    """A fresh snapshot, and the vectors for grouping that belong to it. ``trigger``: why, for the report.

    ``given``: nodes and their plain vectors (n, d), where they are not those that are stored.

    Raises:
        EmbeddingError: the model gave no usable vector for a text without its boilerplate, or for a planted one.
    """
    material = _load(run, given)
    first = first_rows_of_contents(material.nodes)
    enough = len(first) >= MIN_CONTENTS
    contents = [material.texts[id_] for id_ in to_uuids(material.nodes.ids[first])]
    boilerplate = find_boilerplate(contents) if enough else ()
    wording = embed_stripped_texts(run, material.texts, boilerplate, known=material.kept)
    vectors = build_grouping_vectors(material.nodes.ids, material.plain, wording, material.kept)
    draft = Calibration(
        version=1 if held is None else held.version + 1,
        center=_mean(vectors[first]) if enough and run.options.center else None,
        thresholds={},
        memories=count_units(material.nodes),
        boilerplate=boilerplate,
        options=select_calibration_options(run),
        report={"trigger": trigger, "contents": len(first), "stripped": len(wording.hashes)},
    )
    if not enough:
        return _with_profile(run, draft), wording
    spread = measure_spread(center_vectors(vectors[first], draft), np.arange(len(first)))
    return _with_thresholds(run, draft, spread, _label(run, draft, contents, material)), wording


@dataclass(frozen=True, eq=False)
class _Material:
    """What a calibration is taken from: nodes, their vectors and texts; vectors kept for grouping by their text's hash;
    and what people decided.
    """

    nodes: Nodes
    plain: Vectors
    kept: Mapping[str, Vectors]
    texts: Mapping[UUID, str]
    decided: tuple[tuple[str, str, bool], ...]


def _load(run: ProjectContext, given: tuple[Nodes, Vectors] | None) -> _Material:
    with run.engine.connect() as connection:
        nodes, plain = given or load_graph_nodes(connection, run, plain=True)
        texts = load_texts(connection, to_uuids(nodes.ids))
        kept = load_stored_vectors(connection, run)
        told = {**load_decided_texts(connection, run.project.id), **texts}
        decided = tuple(list_decided_pairs(load_decisions(connection, run.project.id), told))
    return _Material(nodes, plain, kept, texts, decided)


def load_stored_vectors(connection: Connection, run: ProjectContext) -> dict[str, Vectors]:
    """The vectors (d,) for grouping that are stored, by the hash of the text without its boilerplate."""
    hashes = load_text_hashes(connection, run.project.id, run.embedder.name)
    if not hashes:
        return {}
    nodes, vectors = load_graph_nodes(connection, run)
    rows = zip(to_uuids(nodes.ids), vectors, strict=True)
    return {hashes[id_]: vector for id_, vector in rows if id_ in hashes}


def _mean(vectors: Vectors) -> Vectors | None:
    # float64, or the sum of many float32 rows would depend on their number and order.
    return np.asarray(vectors.mean(axis=0, dtype=np.float64), dtype=np.float32) if len(vectors) else None


def _label(run: ProjectContext, draft: Calibration, contents: list[str], material: _Material) -> LabelledPairs:
    sentences = frozenset(draft.boilerplate)
    stripped = [strip_boilerplate(text, sentences) for text in contents]
    decided = [
        (strip_boilerplate(a, sentences), strip_boilerplate(b, sentences), same) for a, b, same in material.decided
    ]
    return build_labelled_pairs(run.embedder, stripped, draft.center, decided=decided)


def _with_profile(run: ProjectContext, draft: Calibration) -> Calibration:
    """Too few memories: the profile for vectors as they are, and the person's options."""
    thresholds = resolve_thresholds(run.embedder.name, run.options.model_dump(), centered=False)
    profile = find_profile(run.embedder.name, centered=False)
    return replace(draft, thresholds=thresholds, report={**draft.report, "profile": _describe(profile)})


def _with_thresholds(
    run: ProjectContext, draft: Calibration, spread: CosineSpread | None, pairs: LabelledPairs
) -> Calibration:
    options = run.options.model_dump()
    profile = find_profile(run.embedder.name, centered=draft.center is not None)
    lowest = MIN_PATTERN_THRESHOLD if isinstance(run.options.t_pattern, str) else run.options.t_pattern
    pairs = replace(pairs, min_shared=profile.shared_words)
    advice = recommend_thresholds(pairs, profile, lowest=lowest)
    recommended = _recommended(profile, advice, spread)
    thresholds = resolve_thresholds(
        run.embedder.name, options, centered=draft.center is not None, recommended=recommended
    )
    report = {
        **draft.report,
        "profile": _describe(profile),
        "spread": None if spread is None else asdict(spread),
        "recommended": recommended,
        **_estimates(_as_merged(run, pairs), thresholds["t_merge"]),
    }
    return replace(draft, thresholds=thresholds, report=report)


def _recommended(profile: ThresholdProfile, advice: Recommendation, spread: CosineSpread | None) -> dict[str, float]:
    """All four. In a project so dense that topics need a higher cosine than merging, asking and merging follow:
    memories that dozens of others are near to were made from one form. Principles keep the profile's distance.
    """
    t_pattern = min(profile.t_pattern, advice.t_suggest) if spread is None else recommend_pattern_threshold(spread)
    t_suggest = max(advice.t_suggest, t_pattern)
    t_merge = max(advice.t_merge, t_suggest)
    t_principle = round(t_pattern - (profile.t_pattern - profile.t_principle), 3)
    return dict(zip(TIERS, (t_merge, t_suggest, t_pattern, t_principle), strict=True))


def _as_merged(run: ProjectContext, pairs: LabelledPairs) -> LabelledPairs:
    """The pairs as this project merges them: a ``t_merge`` that a person gave holds as it stands."""
    if run.options.t_merge == "auto":
        return pairs
    return replace(pairs, words=np.full_like(pairs.words, LONG_WORDS), min_shared=0.0)


def _estimates(pairs: LabelledPairs, t_merge: float) -> dict[str, Any]:
    """What ``t_merge`` does to the labelled pairs, and what others would do."""
    at = estimate_errors(pairs, t_merge)
    return {
        "pairs": len(pairs.same),
        "decided": int((pairs.kind == "decided").sum()),
        "wrong": _share(at.wrong),
        "found": _share(at.found),
        "kinds": {kind: _share(share) for kind, share in compute_merged_shares(pairs, t_merge).items()},
        "curve": [
            {"threshold": point.threshold, "wrong": _share(point.wrong), "found": _share(point.found)}
            for point in compute_curve(pairs)
        ],
    }


def _share(share: Share) -> dict[str, Any]:
    value = None if share.value is None else round(share.value, 4)
    return {"share": value, "low": round(share.low, 4), "high": round(share.high, 4), "of": share.total}


def _describe(profile: ThresholdProfile) -> dict[str, Any]:
    return {**profile.thresholds(), "measured": profile.measured, "source": profile.source}
