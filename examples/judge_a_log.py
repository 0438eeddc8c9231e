"""Judge the order of another program's event log: the checkers need only who saw what, and when.

    python examples/judge_a_log.py

Alice asks, Bob answers, and Carol is shown the answer first.
"""

from cubecast.trace import Record, answers_before_questions, check

ALICE, BOB, CAROL = range(3)
log = [Record("join", 0, person, "help") for person in (ALICE, BOB, CAROL)]
log += [
    Record("publish", 1, ALICE, "help", id="question"),
    Record("deliver", 1, ALICE, "help", id="question"),
    Record("deliver", 2, BOB, "help", id="question"),
    Record("publish", 3, BOB, "help", id="answer", reply_to=("question",)),
    Record("deliver", 3, BOB, "help", id="answer"),
    Record("deliver", 4, CAROL, "help", id="answer"),
    Record("deliver", 5, CAROL, "help", id="question"),
    Record("deliver", 5, ALICE, "help", id="answer"),
]
report = check(log)
for violation in report.violations:
    print(violation)
inversions = answers_before_questions(log)
print(f"{inversions.inverted} of {inversions.pairs} answers were seen before their question")
