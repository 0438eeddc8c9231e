"""Small changes of Python source, each a likely slip: the mutants that `mutate.py` runs tests on.

A mutant replaces one stretch of the text of one file, found in the syntax tree.  Its name is the
module, the function, the kind of change and a number, so that it outlives changes elsewhere in the
file.  Kinds:

    boundary     <  <=, >  >=                      operand    a and b -> a, or -> b; the same for or
    opposite     == !=, is  is not, in  not in     constant   n -> n + 1, True False
    arithmetic   + -, * //, % *, << >>, & |        return     return x -> return None
    boolean      and or, not x -> x                statement  a call, an assignment, … -> pass
    extreme      min max                           condition  if x -> if not x, while, a if b else c

Not changed: code without a promise, or read only by people: annotations, decorators, assertions,
texts, messages of exceptions and of logs, counts of branches for tests (`marks`), `__repr__`.  Nor
is an assignment in `__init__` left out: every test would find that.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("boundary", "<="), ast.LtE: ("boundary", "<"),
    ast.Gt: ("boundary", ">="), ast.GtE: ("boundary", ">"),
    ast.Eq: ("opposite", "!="), ast.NotEq: ("opposite", "=="),
    ast.Is: ("opposite", "is not"), ast.IsNot: ("opposite", "is"),
    ast.In: ("opposite", "not in"), ast.NotIn: ("opposite", "in"),
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "//", ast.FloorDiv: "*", ast.Div: "*", ast.Mod: "*",
    ast.Pow: "*", ast.LShift: ">>", ast.RShift: "<<", ast.BitAnd: "|", ast.BitOr: "&",
    ast.BitXor: "&",
}  # fmt: skip
EXTREMES = {"min": "max", "max": "min"}
UNSPOKEN = ("log", "warnings")
"""Calls of these only produce text for people."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file."""

    name: str
    path: str
    line: int
    """Where the change begins."""
    lines: tuple[int, int]
    """The first and the last line of the statement: a test that runs none of them cannot tell."""
    start: int
    end: int
    """The replaced text, as offsets in the file's bytes."""
    before: str
    after: str
    digest: str
    """Of the enclosing function: another text there means another mutant."""

    def applied(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}: {_short(self.before)} -> {_short(self.after)}"


def _short(text: str) -> str:
    one_line = " ".join(text.split())
    return one_line if len(one_line) <= 60 else one_line[:57] + "..."


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """Every mutant of a file, in the order of its text."""
    source = path.read_bytes()
    finder = _Finder(source, str(path.relative_to(root)))
    finder.visit(ast.parse(source))
    return sorted(finder.found, key=lambda one: (one.start, one.end, one.after))


class _Finder(ast.NodeVisitor):
    """Walks a module, and notes possible changes."""

    def __init__(self, source: bytes, path: str) -> None:
        self.found: list[Mutant] = []
        self._source = source
        self._path = path
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        parts = Path(path).with_suffix("").parts
        self._module = ".".join(parts[parts.index("cubecast") + 1 :]) or "cubecast"
        self._scopes: list[str] = []
        self._digests = [self._hash(source)]
        self._statement: ast.stmt | None = None
        self._numbers: Counter[str] = Counter()

    # -- noting ----------------------------------------------------------------------------------

    @staticmethod
    def _hash(text: bytes) -> str:
        return blake2b(text, digest_size=6).hexdigest()

    def _offsets(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._offsets(node)
        return self._source[start:end].decode()

    def _note(self, kind: str, node: ast.AST, after: str) -> None:
        self._note_span(kind, *self._offsets(node), after)

    def _note_span(self, kind: str, start: int, end: int, after: str) -> None:
        before = self._source[start:end].decode()
        statement = self._statement
        if before == after or statement is None:
            return
        stem = ":".join([self._module, ".".join(self._scopes) or "-", kind])
        self._numbers[stem] += 1
        line = self._source.count(b"\n", 0, start) + 1
        self.found.append(
            Mutant(
                name=f"{stem}:{self._numbers[stem]}",
                path=self._path,
                line=line,
                lines=(line, max(line, _head_end(statement))),
                start=start,
                end=end,
                before=before,
                after=after,
                digest=self._digests[-1],
            )
        )

    # -- walking ---------------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            outer, self._statement = self._statement, node
            self._change_statement(node)
            super().visit(node)
            self._statement = outer
        else:
            super().visit(node)

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._scopes.append(node.name)
        self._digests.append(self._hash(self._text(node).encode()))
        for one in node.body:
            self.visit(one)
        self._digests.pop()
        self._scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__repr__":
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        self._scope(node)

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and "TypeAlias" not in ast.unparse(node.annotation):
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion is a check itself."""

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if "marks[" not in self._text(node):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Do nothing: the text of an error is for people."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Do nothing: it is text for people."""

    # -- changes of expressions ------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            kind, other = COMPARISONS[type(operator)]
            self._note_between(kind, left, right, other)
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in ARITHMETIC and not _is_text(node.left, node.right):
            self._note_between("arithmetic", node.left, node.right, ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def _note_between(self, kind: str, left: ast.AST, right: ast.AST, after: str) -> None:
        """Replace the operator between two operands; parentheses around these stay."""
        start, end = self._offsets(left)[1], self._offsets(right)[0]
        between = self._source[start:end].decode()
        if "#" in between:
            return
        closing = len(between) - len(between.lstrip(" \t\n)"))
        opening = len(between) - len(between.rstrip(" \t\n("))
        self._note_span(kind, start + closing, end - opening, after)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = "or" if isinstance(node.op, ast.And) else "and"
        texts = [self._text(one) for one in node.values]
        whole = [f"({text})" for text in texts]
        self._note("boolean", node, f"({f' {word} '.join(whole)})")
        same = f" {'and' if word == 'or' else 'or'} "
        for index in range(len(whole)):
            self._note("operand", node, f"({same.join(whole[:index] + whole[index + 1 :])})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._note("boolean", node, f"bool({self._text(node.operand)})")
        elif isinstance(node.op, ast.USub | ast.Invert):
            self._note("arithmetic", node, self._text(node.operand))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._note("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._note("constant", node, f"({self._text(node)} + 1)")

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in EXTREMES:
            self._note("extreme", node.func, EXTREMES[node.func.id])
        if not _speaks(node):
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._note("condition", test, f"(not ({self._text(test)}))")

    # -- changes of statements -------------------------------------------------------------------

    def _change_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.If() | ast.While():
                self._negate(node.test)
            case ast.Return(value=ast.expr() as value) if not _is_nothing(value):
                self._note("return", node, "return None")
            case ast.Expr(value=ast.Call() as call) if not _speaks(call):
                self._note("statement", node, "pass")
            case ast.Expr(value=ast.Await()) | ast.Delete() | ast.Break() | ast.Continue():
                self._note("statement", node, "pass")
            case ast.Raise():
                self._note("statement", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                if self._scopes[-1:] != ["__init__"]:
                    self._note("statement", node, "pass")
            case ast.AugAssign():
                if "marks[" not in self._text(node):
                    self._note("statement", node, "pass")
                    if type(node.op) in ARITHMETIC and not _is_text(node.value):
                        operator = f"{ARITHMETIC[type(node.op)]}="
                        self._note_between("arithmetic", node.target, node.value, operator)


def _head_end(node: ast.stmt) -> int:
    """The last line of a statement without its body: of an `if`, that of its condition."""
    body = getattr(node, "body", None)
    if isinstance(body, list) and body:
        return max(node.lineno, min(one.lineno for one in body) - 1)
    assert node.end_lineno is not None
    return node.end_lineno


def _is_nothing(node: ast.expr) -> bool:
    """Whether an expression is None, or False, which no test can tell from None."""
    return isinstance(node, ast.Constant) and node.value in (None, False)


def _is_text(*nodes: ast.expr) -> bool:
    return any(
        isinstance(node, ast.JoinedStr)
        or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for node in nodes
    )


def _speaks(call: ast.Call) -> bool:
    """Whether a call only produces text for people."""
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id in UNSPOKEN
    )


def all_mutants(files: list[Path], root: Path) -> Iterator[Mutant]:
    """Every mutant of some files, by name of the file."""
    for path in sorted(files):
        yield from mutants_of(path, root)
