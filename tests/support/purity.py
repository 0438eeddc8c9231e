"""The rule of a pure core: what it imports and calls."""

from __future__ import annotations

import ast

from support.paths import ROOT

SRC = ROOT / "src" / "cubecast"
PURE = {
    "__future__", "collections", "collections.abc", "dataclasses", "enum", "functools",
    "hashlib", "heapq", "typing", "msgspec",
    "cubecast.topology",
}  # fmt: skip
BUILTINS_OF_THE_WORLD = {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}


def imported_modules(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            names.add(node.module or "")
    return names


def called_builtins(tree: ast.Module) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    } & BUILTINS_OF_THE_WORLD
