"""Words that say the opposite of each other, by their stems."""

from consolidation_pipeline.core.text.stems import stem

# Each line is a scale: words of one end / words of the other.
_OPPOSITES = """
    work succeed pass success / fail break failure
    enable activate / disable deactivate
    add insert / remove delete drop removal
    include / exclude
    increase raise grow / decrease reduce lower shrink
    allow permit accept / deny forbid reject block prevent disallow
    before / after
    above / below
    more / less fewer
    faster / slower
    higher / lower
    start / stop
    open / close
    up / down
    true / false
    first / last
    read / write
    left / right
    top / bottom
    old / new
    inside / outside
    show / hide
    lock / unlock
    install / uninstall
    connect / disconnect
    upload / download
    import / export
    encode / decode
    encrypt / decrypt
    upgrade / downgrade
    minimum / maximum
    valid / invalid
    correct correctly / incorrect incorrectly wrong wrongly
    safe / unsafe
    support supported / unsupported
    available / unavailable
    possible / impossible
    required necessary mandatory / optional unnecessary
    stable / unstable
    synchronous sync / asynchronous async
    public / private
    ascending / descending
"""


def _scales() -> dict[str, tuple[str, bool]]:
    ends = [line.split("/") for line in _OPPOSITES.strip().splitlines()]
    return {
        stem(word): (high.split()[0], side is low)
        for high, low in ends
        for side in (high, low)
        for word in side.split()
    }


# By the stem of a word: the name of its scale, and whether it stands at the low end.
SCALES = _scales()
