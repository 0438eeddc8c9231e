"""Counts the branches of recovery that worlds moved by hand take; a pytest plugin besides.

    python -m pytest -p support.branch_recorder --branches FILE TESTS

runs those of the tests that have no fixture but `monkeypatch`, and no mark, and writes the counts
as JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.agreement_toys import Toys
from support.member_toys import Members


@contextmanager
def recorded() -> Iterator[Counter[str]]:
    """The counts of all worlds that are made meanwhile, filled when the block is left."""
    made: list[Any] = []
    found: Counter[str] = Counter()
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Members, Toys):
            patch.setattr(kind, "__init__", _keeping(kind.__init__, made))
        yield found
    for world in made:
        for one in world.members if isinstance(world, Members) else world.toys:
            found.update(one.marks)


def _keeping(make: Any, made: list[Any]) -> Any:
    def remember(self: Any, *args: Any, **options: Any) -> None:
        make(self, *args, **options)
        made.append(self)

    return remember


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--branches", type=Path, required=True, help="where to write the counts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [
        item
        for item in items
        if isinstance(item, pytest.Function)
        and {*item.fixturenames} <= {"monkeypatch", *_parameters(item)}
        and all(mark.name == "parametrize" for mark in item.iter_markers())
    ]


def _parameters(item: pytest.Function) -> dict[str, Any]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    with recorded() as found:
        result = yield
    session.config.getoption("branches").write_text(json.dumps(found))
    return result
