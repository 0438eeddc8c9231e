"""The examples of the page on order across topics run, on real services."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cubecast.bench.event_servers import NoServer, free_ports, nats_servers, redis_server
from support.paths import ROOT

PAGE = (ROOT / "docs" / "ordering.md").read_text(encoding="utf-8")
GENEROUS_S = 120
EXAMPLE = r"^<!-- run: (\w+) -->\n```python\n(.*?)^```\n\n```text\n(.*?)^```"


@contextmanager
def free_address() -> Iterator[list[str]]:
    yield [f"127.0.0.1:{free_ports(1)[0]}"]


SERVICES: dict[str, tuple[str, Callable[[], AbstractContextManager[list[str]]]]] = {
    "cubecast": ("127.0.0.1:7400", free_address),
    "nats": ("nats://localhost:4222", nats_servers),
    "redis": ("redis://localhost:6379", redis_server),
}
"""By name: the address that the page prints, and what runs in its place."""
EXAMPLES = re.findall(EXAMPLE, PAGE, re.MULTILINE | re.DOTALL)


def test_there_is_an_example_of_each_service() -> None:
    assert {name for name, _, _ in EXAMPLES} == set(SERVICES)


@pytest.mark.parametrize(("name", "program", "output"), EXAMPLES, ids=lambda text: text.split()[0])
def test_an_example_prints_what_the_page_says(
    name: str, program: str, output: str, tmp_path: Path
) -> None:
    printed, service = SERVICES[name]
    assert printed in program
    script = tmp_path / "example.py"
    try:
        with service() as (address,):
            script.write_text(program.replace(printed, address), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, str(script)], capture_output=True, text=True, timeout=GENEROUS_S
            )
    except NoServer as reason:
        pytest.skip(str(reason))
    assert (done.stdout, done.stderr) == (output, "")
