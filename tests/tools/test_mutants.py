"""tools/mutants.py: the places that it changes, and that a test notices a change."""

from tools.mutants import SWAPS, places

SOURCE = '''
def most(values: list[int | None], limit: int = 3) -> int:
    """Return é if not -1 < 0."""
    total = (len(values) + 1) * (2)
    if total < limit and not values[1:]:
        raise ValueError(f"{limit + 1} is too much")
    return max(zip(values, [0], strict=True))
'''.encode()


def test_every_mutant_is_one_change_that_parses() -> None:
    found = [(each["old"], each["new"]) for each in places(SOURCE)]
    assert sorted(found) == sorted([
        (" + ", " - "), (") * (", ") / ("), (" < ", " <= "), (" and ", " or "), ("not", ""),
        ("max", "min"), ("3", "4"), ("1", "2"), ("1", "2"), ("1", ""), ("2", "3"), ("0", "1"),
        ('raise ValueError(f"{limit + 1} is too much")', "pass"),
        ("total < limit and not values[1:]", "(not (total < limit and (not values[1:])))"),
    ])  # fmt: skip
    for each in places(SOURCE):
        first, last = each["place"]
        assert SOURCE[first:last].decode() == each["old"]
        compile(SOURCE[:first] + each["new"].encode() + SOURCE[last:], "mutant", "exec")


def test_every_operator_becomes_another() -> None:
    for name, text in SWAPS.items():
        assert name.isalpha()
        compile(f"a {text} a", "operator", "eval")
