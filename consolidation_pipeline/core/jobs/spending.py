"""Costs of calls to paid models, and the budgets that limit them."""

from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

# Smallest amount that the spend ledger stores, US dollars. Costs are rounded up to it.
_FINEST = Decimal("0.00000001")


def dollars(amount: float) -> Decimal:
    """Return an amount of US dollars rounded up to 1e-8, without the error of binary fractions."""
    return Decimal(str(round(amount, 12))).quantize(_FINEST, rounding=ROUND_UP)


@dataclass(frozen=True)
class Bill:
    """Tokens sent and received, and their cost in US dollars."""

    prompt_tokens: int
    completion_tokens: int
    usd: Decimal

    @property
    def tokens(self) -> int:
        """Tokens sent and received."""
        return self.prompt_tokens + self.completion_tokens


NOTHING = Bill(0, 0, Decimal(0))


@dataclass(frozen=True)
class Call:
    """Call that is about to be made. ``max_bill``: the most that it may cost, which is reserved."""

    purpose: str
    model: str
    prompt_hash: str
    max_bill: Bill


@dataclass(frozen=True)
class Spent:
    """Amounts spent or reserved so far: US dollars in the run and in the day, tokens in the run.

    ``margin``: how many times the reserved amount the next call may cost, 1 or more.
    """

    usd_in_run: Decimal
    usd_in_day: Decimal
    tokens_in_run: int
    margin: Decimal = Decimal(1)


@dataclass(frozen=True)
class Budgets:
    """Limits: US dollars of a run, US dollars of a project in a UTC day, tokens of a run. 0 allows free calls only."""

    usd_per_run: float
    usd_per_day: float
    tokens_per_run: int

    def find_exceeded(self, spent: Spent, max_bill: Bill) -> str | None:
        """Return a message that names the budget which a call of ``max_bill`` could exceed, or None.

        A budget may be reached exactly. Free calls are allowed when it is used up.
        """
        usd = (max_bill.usd * spent.margin).quantize(_FINEST, rounding=ROUND_UP)
        tokens = (max_bill.tokens * spent.margin).to_integral_value(rounding=ROUND_UP)
        limits = (
            ("budget_usd_per_run", Decimal(str(self.usd_per_run)), spent.usd_in_run, usd, " USD"),
            ("budget_usd_per_day", Decimal(str(self.usd_per_day)), spent.usd_in_day, usd, " USD"),
            ("budget_tokens_per_run", Decimal(self.tokens_per_run), Decimal(spent.tokens_in_run), tokens, ""),
        )
        for name, limit, used, needed, unit in limits:
            if needed and used + needed > limit:
                return (
                    f"{name} is {_plain(limit)}{unit}: {_plain(used)}{unit} are spent or reserved, "
                    f"and this call may take up to {_plain(needed)}{unit}{_explain(spent.margin)}"
                )
        return None


def _explain(margin: Decimal) -> str:
    return f", {_plain(round(margin, 1))} times its estimate, as bills of the model may be" if margin > 1 else ""


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
