"""Types as applications see them: the examples are clean under mypy strict, mistakes are found."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.paths import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

USES = """
import cubecast
from cubecast import codecs

class Reading:
    celsius: float

async def uses(node: cubecast.Node, client: cubecast.Client) -> None:
    reveal_type(await node.publish("t", b""))
    reveal_type(await node.publish("t", b"", receipt=True))
    reveal_type(await client.publish("t", memoryview(b""), receipt=True))
    reveal_type(node.subscribe("t"))
    reveal_type(client.subscribe("t", codec=codecs.json(Reading)))
    async with node.subscribe("t", codec=codecs.msgpack(Reading)) as messages:
        async for message in messages:
            reveal_type(message.value)
    reveal_type(node.explain("t")["behind"])
    reveal_type((await client.explain("t"))["waiting"])

def number(message: cubecast.Message[int]) -> None: ...

async def mistakes(node: cubecast.Node, message: cubecast.Message[Reading]) -> None:
    message.value + 1  # wrong
    await cubecast.start()  # wrong
    with cubecast.start(): pass  # wrong
    for each in node.subscribe("t"): pass  # wrong
    await node.publish(["t"], b"")  # wrong
    await node.publish("t", {})  # wrong
    (await node.publish("t", b"")).stable()  # wrong
    node.on("t", number)  # wrong
"""
REVEALED = [
    "None",
    "cubecast.net.publishing.receipt.Receipt",
    "cubecast.net.client.publishing.ClientReceipt",
    "cubecast.net.reading.subscription.Subscription[bytes]",
    "cubecast.net.client.subscription.RemoteSubscription[Reading]",
    "Reading",
    "dict[int, int]",
    "explain.Waiting, {",
]


def mypy(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def test_all_examples_pass_mypy_strict() -> None:
    assert len(EXAMPLES) >= 9
    assert mypy(*map(str, EXAMPLES)) == ""


def test_checkers_see_receipts_values_and_explanations_and_find_mistakes(tmp_path: Path) -> None:
    program = tmp_path / "uses.py"
    program.write_text(USES, encoding="utf-8")
    told = mypy(str(program)).splitlines()
    notes = [line.split('"')[1].replace("uses.", "") for line in told if "Revealed type" in line]
    for found, expected in zip(notes, REVEALED, strict=True):
        assert expected in found
    errors = [line for line in told if " error: " in line]
    wrong = {number for number, line in enumerate(USES.splitlines(), 1) if "# wrong" in line}
    assert {int(line.split(":")[1]) for line in errors} == wrong, errors
