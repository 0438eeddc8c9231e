"""The chat of the demos: names, questions and answers, and numbers in words.

Every text is short enough for two screens side by side in a terminal of 80 columns.
"""

from __future__ import annotations

NAMES = (
    "Ann", "Bob", "Cem", "Dee", "Eli", "Fay", "Gus", "Hal",
    "Ida", "Joe", "Kim", "Leo", "Mia", "Ned", "Ola", "Pia",
)  # fmt: skip

TALK = {
    "Where do we eat?": (
        "At the harbour.", "I brought soup.", "Noodles, please.", "Anywhere warm.",
        "The usual place.", "Not hungry yet.", "In the garden.",
    ),
    "Who has the keys?": (
        "Not me.", "On the table.", "I lost mine.", "Ask next door.",
        "They are in my bag.", "No idea.", "Under the mat.",
    ),
    "When do we leave?": (
        "At nine.", "I am ready now.", "After the rain.", "In ten minutes.",
        "Whenever you like.", "Not before coffee.", "I am on my way.",
    ),
    "Did the train come?": (
        "Not yet.", "It is late again.", "I see it now.", "It has just left.",
        "I took the bus.", "Five minutes ago.", "None today.",
    ),
    "What shall I bring?": (
        "Bread.", "Some fruit.", "Your guitar.", "A warm coat.",
        "Only yourself.", "Something sweet.", "A good game.",
    ),
    "Who sings tonight?": (
        "Not me.", "I do, alas.", "The neighbours.", "Everybody.",
        "Only the kettle.", "Ask me later.", "You do.",
    ),
}  # fmt: skip
"""Each question, and its possible answers."""
QUESTIONS = tuple(TALK)

_SMALL = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen",
    "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def name_of(member: int) -> str:
    """The name of a member."""
    return NAMES[member] if member < len(NAMES) else f"No. {member}"


def question(number: int) -> str:
    """The question of round `number`."""
    return QUESTIONS[number % len(QUESTIONS)]


def answer(number: int, asker: int, member: int) -> str:
    """The answer of `member` to `asker` in round `number`; up to 8 members differ."""
    texts = TALK[question(number)]
    return texts[(member if member < asker else member - 1) % len(texts)]


def in_words(number: int) -> str:
    """A number below one hundred in words, a larger one in digits."""
    if number < len(_SMALL):
        return _SMALL[number]
    if number >= 100:
        return f"{number:,}"
    tens, ones = divmod(number, 10)
    return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")


def share_in_words(part: int, whole: int) -> str:
    """ "about one answer in sixteen stood above its question", from a count and the total."""
    if not part:
        return "no answer stood above its question"
    if part * 2 > whole:
        return "more than half of the answers stood above their question"
    return f"about one answer in {in_words(round(whole / part))} stood above its question"
