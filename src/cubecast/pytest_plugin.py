"""For pytest: the fixture `cubecast_cluster`.

    pytest_plugins = ["cubecast.pytest_plugin"]  # in conftest.py, or in a module of tests

    async def test_hello(cubecast_cluster):
        async with cubecast_cluster[1].subscribe("chat") as messages:
            await cubecast_cluster[0].publish("chat", "hello")
            assert (await anext(messages)).payload == b"hello"

A test that is a coroutine and asks for the fixture runs on virtual time; other tests are left
alone.  Nothing but pytest is imported before a test asks for the fixture, so collection is not
slowed down.  There is no entry point: with one, pytest would load this in every test run of an
environment that has cubecast, and rewrite the assertions of all its modules.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cubecast.testing.fixture_cluster import GivenCluster

FIXTURE = "cubecast_cluster"
MARKER = (
    "cubecast(nodes=3, *, seed=0, check=True, config=None, secret='', client_secret='', "
    "limit_s=1800): what cluster the fixture cubecast_cluster gives, and how many seconds of "
    "virtual time the test may take"
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, for --strict-markers."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def cubecast_cluster(request: pytest.FixtureRequest) -> GivenCluster:
    """A cluster of real nodes in memory, on virtual time; judged at the end of the test.

    The marker `cubecast` says of what kind, and an indirect parameter, a dict of the same.
    """
    from cubecast.testing.fixture_cluster import GivenCluster

    marker = request.node.get_closest_marker("cubecast")
    args, kwargs = ((), {}) if marker is None else (marker.args, marker.kwargs)
    return GivenCluster(*args, **{**kwargs, **getattr(request, "param", {})})


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine that uses the fixture, on virtual time."""
    test: Any = pyfuncitem.obj
    if FIXTURE not in pyfuncitem.funcargs or not inspect.iscoroutinefunction(test):
        return None
    from cubecast.testing.virtual import run, with_given

    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    given: Any = pyfuncitem.funcargs[FIXTURE]
    run(with_given(pyfuncitem.funcargs.values(), partial(test, **arguments)), limit_s=given.limit_s)
    return True
