"""The prompt for suggested merges, and the checks of its reply."""

from functools import partial

from consolidation_pipeline.llm.prompts import suggestion
from consolidation_pipeline.llm.prompts.suggestion import OriginalMemory, SuggestionReply, read_reply, suggestion_prompt

ORIGINALS = (
    OriginalMemory("Uploads end after 30 seconds.", "Send keepalives.", "english"),
    OriginalMemory("Uploads end after 60 seconds at the gateway.", None, "english"),
)
find_losses = partial(suggestion.find_losses, max_chars=8000)


def make_reply(content: str, lessons: str = "", keywords: tuple[str, ...] = ()) -> SuggestionReply:
    return SuggestionReply(content=content, lessons_learned=lessons, keywords=list(keywords))


def test_suggestion_prompt_labels_lessons() -> None:
    prompt = suggestion_prompt(ORIGINALS, max_chars=8000)
    assert prompt.sources == (
        "Uploads end after 30 seconds.\n\nLessons learned: Send keepalives.",
        "Uploads end after 60 seconds at the gateway.",
    )
    assert "at most 150 characters" in prompt.task
    assert "at most 20 characters" in suggestion_prompt(ORIGINALS, max_chars=20).task


def test_keywords_are_few_short_and_unique() -> None:
    text = read_reply(make_reply(" A. ", "  ", ("a", " a ", "", "b" * 99, *map(str, range(20)))))
    assert (text.content, text.lessons_learned) == ("A.", None)
    assert text.keywords[:2] == ("a", "b" * 60)
    assert len(text.keywords) == 10


def test_suggestion_that_loses_nothing_passes() -> None:
    prompt = suggestion_prompt(ORIGINALS, max_chars=8000)
    kept = make_reply("Uploads end after 30 seconds, or after 60 seconds at the gateway.", "Send keepalives.")
    assert find_losses(prompt, kept) == []


def test_suggestion_losses_and_inventions_are_refused() -> None:
    prompt = suggestion_prompt(ORIGINALS, max_chars=8000)
    kept, lessons = "Uploads end after 30 seconds, or after 60 seconds at the gateway.", "Send keepalives."
    assert "60 seconds" in find_losses(prompt, make_reply("Uploads end after 30 seconds.", lessons))[0]
    for invented in (make_reply(kept, f"{lessons} 45 seconds"), make_reply(kept, lessons, ("v2.1.0",))):
        assert len(find_losses(prompt, invented)) == 1
    assert "at most 150 are allowed" in find_losses(prompt, make_reply(kept + " Really." * 20, lessons))[0]
    assert find_losses(prompt, make_reply(" ")) == ["it says nothing: write the content"]


def test_suggestion_may_tell_both_sides() -> None:
    sides = ("Uploads work behind the proxy.", "Uploads do not work behind the proxy.")
    prompt = suggestion_prompt([OriginalMemory(side, None, "english") for side in sides], max_chars=8000)
    assert find_losses(prompt, make_reply(" ".join(sides))) == []
    assert find_losses(prompt, make_reply(sides[0]))
