"""Labelling of pairs in the terminal: ``consolidation calibrate PROJECT --label N``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from consolidation_pipeline.cli.cli_context import get_actor, open_store
from consolidation_pipeline.cli.output import make_console, print_json, print_note
from consolidation_pipeline.errors import ConflictError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from consolidation_pipeline.core.text.word_diff import Piece
    from consolidation_pipeline.service.review.pair_labels import PairToLabel
    from consolidation_pipeline.store.database.engine import Engine

_PROMPT = "[s]ame, [d]ifferent, s[k]ip or [q]uit? "
_ANSWERS = {"s": "same", "d": "different", "k": "skip", "q": "quit"}


def label_pairs(project: str, count: int, *, as_json: bool) -> None:
    """Ask about ``count`` pairs of a project and store each answer at once; with ``as_json`` only list the pairs."""
    from consolidation_pipeline.service.review.pair_labels import count_labels, list_pairs_to_label

    engine, settings = open_store()
    pairs = list_pairs_to_label(engine, project, count, settings=settings)
    if as_json:
        labels = count_labels(engine, project)
        print_json({"project": project, "labels": vars(labels), "pairs": [_describe(pair) for pair in pairs]})
        return
    out = make_console()
    if not pairs:
        out.print(f"{project}: no pair is left to label")
        print_note(f"a run compares new memories: consolidation run {project}")
        return
    done = _ask_all(out, engine, project, pairs)
    labels = count_labels(engine, project)
    out.print(
        f"answers stored: {done}; all labels of {project}: {labels.same} same, {labels.different} different, "
        f"{labels.skipped} skipped"
    )
    print_note(f"the errors measured on them: consolidation calibrate {project}")


def _describe(pair: PairToLabel) -> dict[str, Any]:
    differences = [{"kind": one.kind, "a": one.a, "b": one.b} for one in pair.explanation.differences]
    return {
        "a": {"id": pair.a, "content": pair.text_a},
        "b": {"id": pair.b, "content": pair.text_b},
        "similarity": round(pair.similarity, 4),
        "would_merge": pair.would_merge,
        "merged_into": pair.merged_into,
        "verdict": pair.explanation.verdict,
        "differences": differences,
    }


def _ask_all(out: Console, engine: Engine, project: str, pairs: Sequence[PairToLabel]) -> int:
    """Ask about the pairs until the person quits; return the number of answers that were stored."""
    from consolidation_pipeline.service.review.pair_labels import LABELS, label_pair

    done = 0
    for number, pair in enumerate(pairs, 1):
        _show_pair(out, pair, f"{number} of {len(pairs)}")
        answer = _read_answer(out)
        if answer == "quit":
            break
        try:
            label_pair(engine, project, pair.a, pair.b, same=LABELS[answer], labelled_by=get_actor())
        except ConflictError as error:
            print_note(str(error))
            continue
        done += 1
        if answer == "different" and pair.merged_into is not None:
            out.print(
                f"They are in one merged memory, {pair.merged_into}; a label does not undo that: "
                f"consolidation history {project} --operation merge lists what to roll back",
                soft_wrap=True,
            )
    return done


def _show_pair(out: Console, pair: PairToLabel, title: str) -> None:
    """Print both texts, each difference marked, and the differences."""
    from consolidation_pipeline.core.knowledge.difference_words import describe_differences
    from consolidation_pipeline.service.review.pair_labels import mark_texts

    sides = zip("AB", (pair.a, pair.b), mark_texts(pair), strict=True)
    out.print(f"\n{title}, similarity {pair.similarity:.2f}: may these two become one?", style="bold")
    for name, id_, pieces in sides:
        out.print(f"\n{name}  {id_}", style="dim")
        out.print(_join_pieces(pieces, plain=not out.is_terminal), soft_wrap=not out.is_terminal)
    out.print()
    for words in describe_differences(pair.explanation.differences):
        out.print(f"  {words}", soft_wrap=True)


def _join_pieces(pieces: Sequence[Piece], *, plain: bool) -> Text:
    """Return a text in which contradictions are red and other differences yellow; ``plain``: both in brackets."""
    from rich.text import Text

    text = Text()
    for piece in pieces:
        is_marked = piece.differs or piece.conflicts
        if plain:
            text.append(f"[{piece.text}]" if is_marked else piece.text)
        else:
            text.append(piece.text, "bold red" if piece.conflicts else "bold yellow" if is_marked else "")
    return text


def _read_answer(out: Console) -> str:
    """Return the answer in full; the end of the input means quit."""
    while True:
        out.print(_PROMPT, end="")
        try:
            given = input().strip().casefold()
        except EOFError:
            out.print()
            return "quit"
        answer = _ANSWERS.get(given, given)
        if answer in _ANSWERS.values():
            return answer
        print_note(f"{given!r} is no answer; type one of {', '.join(_ANSWERS)} and Enter")
