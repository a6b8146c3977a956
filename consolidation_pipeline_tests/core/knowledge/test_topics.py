"""Topics of texts: who belongs together, what is left out, and independence of the order."""

from __future__ import annotations

from consolidation_pipeline.core.knowledge.topics import MANY, find_topics

CACHE = [f"The cart cache keeps prices for {what} after a sale ends" for what in ("shoes", "hats", "coats", "gloves")]
LOGIN = [
    f"Login tokens expire early when {who} signs in twice" for who in ("an admin", "a guest", "a partner", "a clerk")
]
OTHER = ["The moon was full over the harbour"]


def list_groups(texts: list[str], most: int = 10) -> list[set[str]]:
    return [{texts[at] for at in topic} for topic in find_topics(texts, [1] * len(texts), most=most)]


def test_topics_group_texts_that_share_terms() -> None:
    texts = sorted([*CACHE, *LOGIN, *OTHER])
    assert sorted(map(sorted, list_groups(texts))) == sorted([sorted(CACHE), sorted(LOGIN)])


def test_topics_do_not_depend_on_text_order() -> None:
    texts = [*CACHE, *LOGIN, *OTHER]
    assert sorted(map(sorted, list_groups(texts))) == sorted(map(sorted, list_groups(texts[::-1])))


def test_topics_are_at_most_as_many_as_asked() -> None:
    texts = sorted([*CACHE, *LOGIN])
    assert len(find_topics(texts, [1] * 8, most=1)) == 1
    assert find_topics(texts, [1] * 8, most=0) == []


def test_single_text_is_topic_if_repeated() -> None:
    assert find_topics(["Restart the worker"], [3], most=5) == [[0]]
    assert find_topics(["Restart the worker"], [1], most=5) == []


def test_pair_is_no_topic_of_many_texts() -> None:
    pair = ["Paint the fence green", "Paint the fence white"]
    assert {*pair} in list_groups(sorted([*CACHE, *pair]))
    assert {*pair} not in [{*group} for group in _list_with_many(pair)]


def _list_with_many(pair: list[str]) -> list[set[str]]:
    texts = sorted([*pair, *CACHE])
    counts = [1 if text in pair else MANY for text in texts]
    return [{texts[at] for at in topic} for topic in find_topics(texts, counts, most=10)]


def test_large_topic_comes_before_small_one() -> None:
    texts = sorted([*CACHE, *LOGIN[:2]])
    sizes = [len(topic) for topic in find_topics(texts, [1] * len(texts), most=10)]
    assert sizes == sorted(sizes, reverse=True)


def test_topic_is_opened_by_texts_about_its_term() -> None:
    about = [f"parcel {what}" for what in ("late", "lost", "heavy", "wet")]
    # They name a parcel, but are about coupons.
    mentions = [f"{what} coupon coupon coupon parcel" for what in ("expired", "old", "blue", "paper")]
    others = [f"coupon {what} code voucher" for what in ("sales", "staff", "guest")]
    groups = list_groups(sorted([*about, *mentions, *others, *LOGIN]))
    assert {*about} in groups
    assert {*mentions} in groups
