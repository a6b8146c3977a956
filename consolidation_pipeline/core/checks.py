"""Checks of single numbers. ``vectors.check_numbers`` checks arrays."""


def check_count(name: str, count: int) -> None:
    """Raise ValueError, with ``name``, if ``count`` is negative."""
    if count < 0:
        raise ValueError(f"{name} is {count}; it must be 0 or more")


def check_share(name: str, value: float) -> None:
    """Raise ValueError, with ``name``, if ``value`` is NaN or outside [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{name} is {value}; it must be from 0 to 1")
