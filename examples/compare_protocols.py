"""Compare protocols on the same questions and answers, and draw the result in the terminal.

python examples/compare_protocols.py
"""

from cubecast.sim.params import Params
from cubecast.sim.run import run
from cubecast.sim.scenarios import SCENARIOS

scenario = SCENARIOS["question-answer"]
params = Params().with_({**scenario.defaults, "network": "uniform", "low": 20, "high": 180})

for protocol in ("best-effort", "vcube-ps", "cubecast"):
    outcomes = [run(scenario, protocol, params, seed) for seed in range(5)]
    seen = sum(outcome.metrics["answers_seen"] for outcome in outcomes)
    early = sum(outcome.metrics["answers_before_questions"] for outcome in outcomes)
    latency = sum(outcome.metrics["latency_mean"] for outcome in outcomes) / len(outcomes)
    bar = "#" * round(400 * early / seen)
    print(f"{protocol:>12}: {early:5.0f} of {seen:.0f} answers early, {latency:6.1f} u.t. {bar}")
