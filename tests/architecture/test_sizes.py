"""Files and functions stay small enough to be read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

PACKAGE = ROOT / "src/leanops"

MODULE_LINES = 400
FUNCTION_LINES = 40
NESTING = 3
FOLDER_DEPTH = 3
CONFTEST_LINES = 100
BANNED_STEMS = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}
BANNED_CLASS_PARTS = ("Manager", "Helper", "Impl")

Function = ast.FunctionDef | ast.AsyncFunctionDef
# `with` is left out: context managers stack without adding a decision.
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.TryStar, ast.Match)


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def functions_of(path: Path) -> Iterator[Function]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def length_without_docstring(function: Function) -> int:
    assert function.end_lineno is not None
    length = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function) is None:
        return length
    docstring = function.body[0]
    assert docstring.end_lineno is not None
    return length - (docstring.end_lineno - docstring.lineno + 1)


def nesting_of(node: ast.AST, depth: int = 0) -> int:
    """The deepest block below `node`; an elif counts as its if, an inner function starts afresh."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        inside = depth + 1 if isinstance(child, BLOCKS) and not is_elif else depth
        deepest = max(deepest, nesting_of(child, inside))
    return deepest


def place(path: Path, function: Function) -> str:
    return f"{path.relative_to(ROOT)}:{function.lineno} {function.name}"


def test_no_module_is_longer_than_its_limit() -> None:
    modules = python_files("src", "tests", "bench", "examples")
    assert [f"{path.relative_to(ROOT)}: {lines_of(path)}" for path in modules if lines_of(path) > MODULE_LINES] == []


def test_no_conftest_is_longer_than_its_limit() -> None:
    conftests = [path for path in python_files("tests") if path.name == "conftest.py"]
    assert [str(path.relative_to(ROOT)) for path in conftests if lines_of(path) > CONFTEST_LINES] == []


def test_no_function_is_longer_than_its_limit() -> None:
    measured = {
        place(path, function): length_without_docstring(function)
        for path in python_files("src", "bench")
        for function in functions_of(path)
    }
    assert {where: lines for where, lines in measured.items() if lines > FUNCTION_LINES} == {}


def test_no_function_nests_deeper_than_its_limit() -> None:
    measured = {
        place(path, function): nesting_of(function)
        for path in python_files("src", "bench")
        for function in functions_of(path)
    }
    assert {where: depth for where, depth in measured.items() if depth > NESTING} == {}


def test_no_folder_lies_deeper_than_its_limit() -> None:
    folders = {path.parent.relative_to(PACKAGE) for path in python_files("src")}
    assert [str(folder) for folder in folders if len(folder.parts) > FOLDER_DEPTH] == []


def test_every_package_file_is_empty() -> None:
    packages = [path for path in python_files("src") if path.name == "__init__.py"]
    assert packages
    assert [str(path.relative_to(ROOT)) for path in packages if path.stat().st_size > 0] == []


def test_no_module_or_class_has_a_name_that_says_nothing() -> None:
    modules = python_files("src")
    stems = [str(path.relative_to(ROOT)) for path in modules if {path.stem, path.parent.name} & BANNED_STEMS]
    classes = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in modules
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and says_nothing(node.name)
    ]
    assert stems + classes == []


def says_nothing(class_name: str) -> bool:
    name = class_name.lstrip("_")
    return name.startswith(("Base", "Abstract")) or name.endswith(BANNED_CLASS_PARTS)
