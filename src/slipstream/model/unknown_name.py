"""What to say of a name that a call does not know."""

from collections.abc import Iterable


def unknown_name(call: str, what: str, given: Iterable[str], known: Iterable[str]) -> str:
    """What to say of names that a call does not know: the nearest it knows, else all of them."""
    from difflib import get_close_matches  # only once something is wrong

    wrong, there = sorted(given), sorted(known)
    near = [found for name in wrong for found in get_close_matches(name, there, 1)]
    hint = f"did you mean {' and '.join(near)}?" if near else f"it has {', '.join(there)}"
    return f"{call} has no {what} {', '.join(wrong)}; {hint}"
