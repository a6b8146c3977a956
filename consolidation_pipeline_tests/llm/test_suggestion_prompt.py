"""The prompt for suggested merges, and the trimming and checks of its reply."""

from consolidation_pipeline.llm.prompts.suggestion import (
    OriginalMemory,
    SuggestionReply,
    find_inventions,
    suggestion_prompt,
    trim_reply,
)

ORIGINALS = (
    OriginalMemory("Uploads stop after 30 seconds.", "Send keepalives.", "english"),
    OriginalMemory("Uploads stop after 60 seconds at the gateway.", None, "english"),
)


def make_reply(content: str, lessons: str = "", keywords: tuple[str, ...] = ()) -> SuggestionReply:
    return SuggestionReply(content=content, lessons_learned=lessons, keywords=list(keywords))


def test_suggestion_prompt_labels_lessons() -> None:
    prompt = suggestion_prompt(ORIGINALS)
    assert prompt.sources == (
        "Uploads stop after 30 seconds.\n\nLessons learned: Send keepalives.",
        "Uploads stop after 60 seconds at the gateway.",
    )
    assert "at most 45 characters" in prompt.task
    assert "at most 16 characters" in prompt.task


def test_suggestion_reply_is_trimmed_to_originals() -> None:
    long = "Uploads stop after 30 seconds, or after 60 seconds at the gateway, says another."
    trimmed = trim_reply(make_reply(long, "Send keepalives all the time."), ORIGINALS)
    assert trimmed.content == "Uploads stop after 30 seconds, or after 60"
    assert trimmed.lessons_learned == "Send keepalives"


def test_new_lessons_are_bounded_by_content_length() -> None:
    trimmed = trim_reply(make_reply("Short.", "x" * 100), ORIGINALS[1:])
    assert trimmed.lessons_learned == "x" * 45


def test_keywords_are_few_short_and_unique() -> None:
    trimmed = trim_reply(make_reply("A.", "  ", ("a", " a ", "", "b" * 99, *map(str, range(20)))), ORIGINALS)
    assert trimmed.lessons_learned is None
    assert trimmed.keywords[:2] == ("a", "b" * 60)
    assert len(trimmed.keywords) == 10


def test_suggestion_inventions_are_rejected() -> None:
    prompt = suggestion_prompt(ORIGINALS)
    assert find_inventions(prompt, make_reply("Uploads stop after 30 seconds or 60 seconds.")) == []
    for invented in (make_reply("45 seconds"), make_reply("Yes.", "45 seconds"), make_reply("Yes.", "", ("v2.1.0",))):
        assert len(find_inventions(prompt, invented)) == 1
    assert find_inventions(prompt, make_reply(" ")) == ["it says nothing: write the content"]
