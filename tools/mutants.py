"""Mutation testing: change one place of the code at a time, and see whether a test notices.

    python -m tools.mutants asrkit/search asrkit/model/attention.py --number 5

It needs a map of which test runs which line: docs/contributing.md has the command. Mutants of a file are drawn at
random. Each is tried in a clone of the last commit, by the tests that run its line: those of the same folder, then
others, the quickest first. mutants.jsonl has a line for each mutant; those that are in it are not tried again.
"""  # noqa: E501

import argparse
import ast
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torchaudio  # noqa: F401, once for every fork

SWAPS = {
    "Lt": "<=", "LtE": "<", "Gt": ">=", "GtE": ">", "Eq": "!=", "NotEq": "==", "Is": "is not",
    "IsNot": "is", "In": "not in", "NotIn": "in", "And": "or", "Or": "and", "Add": "-", "Sub": "+",
    "Mult": "/", "Div": "*", "FloorDiv": "*", "Mod": "*", "Pow": "*", "BitAnd": "|", "BitOr": "&",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
DELETED = (ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
NOTHING = {"lines": (0, 0), "place": (0, 0), "old": "", "new": ""}  # the control
Tests = dict[str, float]  # seconds of each
Mutant = dict[str, Any]  # lines, places in the file's bytes, old and new text


def places(source: bytes) -> Iterator[Mutant]:
    """Yield every mutant of a module, except of its annotations, strings and decorators."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree, owner, skipped = ast.parse(source), {}, set()

    def mutant(node: Any, text: str, size: int | None = None, first: int | None = None) -> Mutant:
        begin = starts[node.lineno - 1] + node.col_offset if first is None else first
        end = starts[node.end_lineno - 1] + node.end_col_offset if size is None else begin + size
        old = source[begin:end].decode()
        return {
            "lines": (owner[node], node.end_lineno),
            "place": (begin, end),
            "old": old,
            "new": text,
        }

    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            owner |= dict.fromkeys(ast.walk(node), node.lineno)
        unchanged = [getattr(node, name, None) for name in ("annotation", "returns")]
        unchanged += getattr(node, "decorator_list", []) + [node] * isinstance(node, ast.JoinedStr)
        unchanged += [node] * (isinstance(node, ast.keyword) and node.arg == "strict")
        skipped |= {below for each in unchanged if each for below in ast.walk(each)}
    for node in [node for node in ast.walk(tree) if node not in skipped]:
        match node:
            case ast.Compare() | ast.BinOp() | ast.BoolOp():
                get = dict(ast.iter_fields(node)).get
                parts = get("values") or [get("left"), *get("comparators", [get("right")])]
                operators = get("ops") or [get("op")] * (len(parts) - 1)
                for left, right, operator in zip(parts, parts[1:], operators, strict=False):
                    first = mutant(left, "")["place"][1]
                    old = source[first : mutant(right, "")["place"][0]].decode()
                    if new := SWAPS.get(type(operator).__name__):
                        new = f"{')' * old.count(')')} {new} {'(' * old.count('(')}"
                        yield mutant(left, new, len(old.encode()), first)
            case ast.UnaryOp(op=ast.Not() | ast.USub() as operator):
                yield mutant(node, "", 3 if isinstance(operator, ast.Not) else 1)
            case ast.Constant(value=bool(value)):
                yield mutant(node, str(not value))
            case ast.Constant(value=int(value) | float(value)):
                yield mutant(node, str(value + 1))
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield mutant(test, f"(not ({ast.unparse(test)}))")
            case ast.Call(func=ast.Name(id=name) as function) if name in NAMES:
                yield mutant(function, NAMES[name])
            case ast.Slice(lower=lower, upper=upper):
                yield from (mutant(bound, "") for bound in (lower, upper) if bound is not None)
            case ast.Expr(ast.Call()):
                yield mutant(node, "pass")
            case _ if isinstance(node, DELETED):
                yield mutant(node, "pass")


def tests_of(folder: Path) -> dict[str, dict[int, Tests]]:
    """Return for each file the tests that ran each line; for line 0 all tests."""
    import coverage

    seconds = {}
    for case in ElementTree.parse(folder / "times.xml").iter("testcase"):
        if {each.tag for each in case}.isdisjoint(("failure", "error", "skipped")):
            seconds[f"{case.get('file')}::{case.get('name')}"] = float(case.get("time", 0))
    found = coverage.CoverageData(str(folder / ".coverage"))
    found.read()
    files: dict[str, dict[int, Tests]] = {}
    for name in found.measured_files():
        lines = files[name[name.rindex("/asrkit/") + 1 :]] = {0: {}}
        for line, contexts in found.contexts_by_lineno(name).items():
            tests = {context.split("|")[0] for context in contexts} & seconds.keys()
            lines[line] = {test: seconds[test] for test in tests}
            lines[0] |= lines[line]
    return files


def passes(tree: Path, tests: Tests) -> bool | None:
    """Run tests in a fork, which need not import libraries; None if they take too long."""
    if (child := os.fork()) == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        used = resource.getrusage(resource.RUSAGE_SELF).ru_utime  # not by the clock
        resource.setrlimit(resource.RLIMIT_CPU, (int(used + 60 + 5 * sum(tests.values())), -1))
        resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, -1))
        signal.alarm(1800)
        os._exit(pytest.main(["-x", "-p", "no:cacheprovider", *(tests or ["--collect-only"])]))
    _, status = os.waitpid(child, 0)
    late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM)
    return None if late else status == 0


def outcome(tree: Path, mutant: Mutant, lines: dict[int, Tests], folder: str, budget: float) -> str:
    """Return "killed", "too long", "survived", or "not run" for a line that no test runs."""
    ran = [
        lines[each] for each in range(mutant["lines"][0], mutant["lines"][1] + 1) if each in lines
    ]
    tests = {test: seconds for each in ran for test, seconds in each.items()}
    if ran and not tests:  # a line that runs when the file is imported
        tests = lines[0]
    order = sorted(tests, key=lambda each: (not each.startswith(folder), tests[each]))
    total = list(accumulate(tests[each] for each in order))
    chosen = {each: tests[each] for each, at in zip(order, total, strict=True) if at <= budget}
    chosen = chosen or {each: tests[each] for each in order[:1]}
    names = {True: "survived", False: "killed", None: "too long"}
    return names[passes(tree, chosen)] if chosen else "not run"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("paths", nargs="+", type=Path, help="files or folders below asrkit/")
    parser.add_argument("--number", type=int, default=5, help="mutants of each file (default: 5)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--budget", type=float, default=20, help="seconds of tests of a mutant")
    parser.add_argument("--folder", type=Path, default=Path(), help="folder of the map")
    options = parser.parse_args()
    tests, results = tests_of(options.folder), options.folder / "mutants.jsonl"
    rows = list(map(json.loads, results.read_text().splitlines())) if results.exists() else []
    known = {(row["file"], *row["place"], row["new"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder, results.open("a") as output:
        tree = Path(folder) / "asrkit"
        subprocess.run(["git", "clone", "--quiet", ".", tree], check=True)
        passes(tree, {})  # compiles everything, once
        os.environ["PYTHONDONTWRITEBYTECODE"], sys.dont_write_bytecode = "1", True
        nested = [sorted(path.rglob("*.py")) or [path] for path in options.paths]
        for path in [file for each in nested for file in each]:
            file, source, near = str(path), (tree / path).read_bytes(), f"tests/{path.parts[1]}/"
            mutants = list(places(source))
            random.Random(f"{options.seed} {file}").shuffle(mutants)
            for each in [NOTHING, *mutants[: options.number]]:
                first, last = each["place"]
                if (file, first, last, each["new"]) not in known:
                    (tree / path).write_bytes(source[:first] + each["new"].encode() + source[last:])
                    os.utime(tree / path, (first, first))  # no compiled file is of this time
                    found = outcome(tree, each, tests.get(file, {}), near, options.budget)
                    if each is NOTHING and found not in ("survived", "not run"):
                        raise SystemExit(f"{file}: the tests fail without a mutation")
                    if each is not NOTHING:
                        rows.append({"file": file, "outcome": found} | each)
                        print(json.dumps(rows[-1]), file=output, flush=True)
            (tree / path).write_bytes(source)
    for row in rows:
        if row["outcome"] in ("survived", "not run"):
            print("{file}:{lines[1]}: {outcome}: {old!r} -> {new!r}".format_map(row))
    print(Counter(row["outcome"] for row in rows))


if __name__ == "__main__":
    main()
