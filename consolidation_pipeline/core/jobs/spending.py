"""What calls of paid models cost, and when the next one would break a budget."""

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

# The ledger's finest sum of money, US dollars. Costs are rounded up to it: no call counts for less than it costs.
_FINEST = Decimal("0.00000001")


def dollars(amount: float) -> Decimal:
    """US dollars as the ledger stores them, rounded up to 1e-8; what binary fractions add to a sum is no money."""
    return Decimal(str(round(amount, 12))).quantize(_FINEST, rounding=ROUND_UP)


@dataclass(frozen=True)
class Bill:
    """Tokens sent and received, and what they cost in US dollars."""

    prompt_tokens: int
    completion_tokens: int
    usd: Decimal

    @property
    def tokens(self) -> int:
        """Tokens in both directions."""
        return self.prompt_tokens + self.completion_tokens


NOTHING = Bill(0, 0, Decimal(0))


@dataclass(frozen=True)
class Call:
    """A call that is about to be made. ``most``: the most it may be billed, which is what is reserved for it."""

    purpose: str
    model: str
    prompt_hash: str
    most: Bill


@dataclass(frozen=True)
class Spent:
    """What is spent or reserved so far: US dollars of the run and of the day, tokens of the run."""

    usd_in_run: Decimal
    usd_in_day: Decimal
    tokens_in_run: int


@dataclass(frozen=True)
class Budgets:
    """The most a run may cost, a project may cost in a day (UTC), and a run may use. 0 allows what is free."""

    usd_per_run: float
    usd_per_day: float
    tokens_per_run: int

    def find_exceeded(self, spent: Spent, most: Bill) -> str | None:
        """Which budget a call of at most this bill would exceed, by name, with what is spent; None if none.

        A budget may be reached exactly, and what is free goes on when it is used up.
        """
        tokens = Decimal(most.tokens)
        limits = (
            ("budget_usd_per_run", Decimal(str(self.usd_per_run)), spent.usd_in_run, most.usd, " USD"),
            ("budget_usd_per_day", Decimal(str(self.usd_per_day)), spent.usd_in_day, most.usd, " USD"),
            ("budget_tokens_per_run", Decimal(self.tokens_per_run), Decimal(spent.tokens_in_run), tokens, ""),
        )
        for name, limit, used, needed, unit in limits:
            if needed and used + needed > limit:
                return (
                    f"{name} is {_plain(limit)}{unit}: {_plain(used)}{unit} are spent or reserved, "
                    f"and this call may take up to {_plain(needed)}{unit}"
                )
        return None


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
