"""Budget checks before a paid call."""

from decimal import Decimal

import pytest

from consolidation_pipeline.core.jobs.spending import NOTHING, Bill, Budgets, Spent, dollars

FREE = Spent(Decimal(0), Decimal(0), 0)


def test_budget_may_be_reached_but_not_exceeded() -> None:
    budgets, spent = Budgets(1.0, 5.0, 1000), Spent(Decimal("0.9"), Decimal("0.9"), 900)
    assert budgets.find_exceeded(spent, Bill(60, 40, Decimal("0.1"))) is None
    assert budgets.find_exceeded(spent, Bill(60, 40, Decimal("0.10000001"))) is not None


@pytest.mark.parametrize(
    ("spent", "bill", "message"),
    [
        (
            Spent(Decimal("0.99"), Decimal(0), 0),
            Bill(1, 1, Decimal("0.02")),
            "budget_usd_per_run is 1 USD: 0.99 USD are spent or reserved, and this call may take up to 0.02 USD",
        ),
        (
            Spent(Decimal(0), Decimal("4.99"), 0),
            Bill(1, 1, Decimal("0.02")),
            "budget_usd_per_day is 5 USD: 4.99 USD are spent or reserved, and this call may take up to 0.02 USD",
        ),
        (
            Spent(Decimal(0), Decimal(0), 999),
            Bill(1, 1, Decimal(0)),
            "budget_tokens_per_run is 1000: 999 are spent or reserved, and this call may take up to 2",
        ),
    ],
)
def test_exceeded_budget_message_names_amounts(spent: Spent, bill: Bill, message: str) -> None:
    assert Budgets(1, 5, 1000).find_exceeded(spent, bill) == message


def test_amounts_times_margin_are_short() -> None:
    spent = Spent(Decimal("0.3"), Decimal(0), 999, margin=Decimal(100) / 3)
    message = Budgets(0.3, 5, 1000).find_exceeded(spent, Bill(1, 1, Decimal("0.00228413")))
    assert "may take up to 0.07613767 USD, 33.3 times" in str(message)
    message = Budgets(5, 5, 1000).find_exceeded(spent, Bill(1, 1, Decimal(0)))
    assert "may take up to 67, 33.3 times" in str(message)


def test_zero_budget_allows_free_calls() -> None:
    assert Budgets(0, 0, 0).find_exceeded(FREE, NOTHING) is None
    assert Budgets(0, 0, 10).find_exceeded(FREE, Bill(5, 5, Decimal(0))) is None
    assert Budgets(0, 0, 10).find_exceeded(FREE, Bill(5, 5, Decimal("0.00000001"))) is not None
    used_up = Spent(Decimal(2), Decimal(2), 0)
    assert Budgets(1, 1, 10).find_exceeded(used_up, Bill(5, 5, Decimal(0))) is None


def test_dollars_round_up_but_ignore_float_noise() -> None:
    assert dollars(1e-9) == Decimal("0.00000001")
    assert dollars(0.1 + 0.2) == Decimal("0.3")
    assert dollars(0.0) == 0
