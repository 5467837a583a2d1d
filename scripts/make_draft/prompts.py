"""The prompts that the target answers: a built-in mix, or the user's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from make_draft import FEWEST
from orin_deploy.errors import UsageError

PROMPTS = 4096
THINGS = """bread, rain, bees, magnets, volcanoes, taxes, sleep, vaccines, bicycles, glaciers, batteries, jazz,
coffee, earthquakes, gravity, money, chess, whales, photosynthesis, elections, comets, rivers, concrete, yoga, honey,
satellites, mushrooms, insurance, the internet, solar panels, black holes, the stock market, public transport, tea,
home insulation, the Roman Empire, antibiotics, machine learning, the water cycle, electric cars, sourdough,
marathons, recycling, opera, the human heart, time zones, airports, deserts, dinosaurs, encryption, plate tectonics,
sailing, gardens, dreams, stars, databases, compost, the moon"""
TASKS = """reverses a string, checks whether a number is prime, merges two sorted lists, counts the words of a file,
finds the largest item of a list, removes duplicates from a list, converts Celsius to Fahrenheit, parses a CSV line,
computes the factorial of n, sorts a dictionary by value, validates an email address, flattens a nested list, computes
the nth Fibonacci number, checks for balanced brackets, rotates a matrix, finds the median of numbers, groups words by
their first letter, reads a JSON file, retries a failing call, computes the distance of two points"""
PEOPLE = """an old fisherman, a young inventor, a lost dog, a nervous astronaut, two sisters, a retired teacher, a
dragon, a night watchman, a baker, a clever crow, a lonely gardener, a ship's cook, a travelling musician, a shy
wizard"""
PLOTS = """finds a door, must cross the mountains in winter, receives a letter from the past, hopes to win a race,
discovers a secret about the village, loses something precious, builds a flying machine, makes an unlikely friend, has
to tell the truth at last, follows a strange light, saves the harvest, learns to swim, opens a small shop"""
SENTENCES = """The committee met on {n} March to discuss the new bridge., Sales of {x} rose by {n} percent last year.,
Most visitors arrive by train and stay for two nights., Anna Keller who studies {x} called the result surprising.,
The old mill was closed in 19{n} and turned into a museum., A second survey of {n} households gave the same answer.,
Nobody had expected that {x} would matter so much., The report recommends smaller teams and longer schedules.,
Prices are expected to fall again before the summer., Volunteers planted {n} trees along the river.,
The device weighs {n} grams and runs for a week., The mayor has promised that {x} will remain free of charge.,
Teachers asked for more time and better tools., The experiment was repeated {n} times with care."""
NAMES = """total, count, price, items, value, index, result, buffer, node, user, order, score, limit, offset, name"""


def built_in(seed: int) -> Iterator[str]:
    """Prompts without end: chat, stories, code and changes to it, texts to copy or sum up, structured output."""
    dice = random.Random(seed)
    things, tasks, people, plots, sentences, names = (
        " ".join(words.split()).split(", ") for words in (THINGS, TASKS, PEOPLE, PLOTS, SENTENCES, NAMES)
    )

    def text() -> str:
        chosen = dice.sample(sentences, dice.randint(2, 6))
        return " ".join(each.format(n=dice.randint(11, 99), x=dice.choice(things)) for each in chosen)

    def code() -> str:
        a, b, c = dice.sample(names, 3)
        return dice.choice((
            f"def {a}_of({b}s, {c}=0):\n    {a} = {c}\n    for {b} in {b}s:\n        {a} += {b}.{c}\n    return {a}\n",
            f"class {a.title()}:\n    def __init__(self, {b}, {c}):\n        self.{b} = {b}\n        self.{c} = {c}\n\n"
            f"    def {a}_{b}(self):\n        return self.{b} * self.{c}\n",
            f"function {a}{b.title()}({c}) {{\n  let {a} = 0;\n  for (const {b} of {c}) {{\n    if ({b} > {a}) {{\n"
            f"      {a} = {b};\n    }}\n  }}\n  return {a};\n}}\n",
            f"def load_{a}(path):\n    with open(path) as file:\n        {b} = file.read()\n    {c} = []\n"
            f"    for line in {b}.splitlines():\n        {c}.append(line.strip())\n    return {c}\n",
        ))  # fmt: skip

    def one(kind: int) -> str:
        x, y, z = dice.sample(things, 3)
        task, language = dice.choice(tasks), dice.choice(("Python", "Python", "JavaScript", "C", "Go", "Rust"))
        a, b = dice.sample(names, 2)
        chat = (
            f"What should I know about {x}?", f"Explain {x} to a child.", f"Give me five tips about {x}.",
            f"What do {x} and {y} have in common?", f"Why is {x} important?", f"Write an email to a friend about {x}.",
            f"What are the advantages and drawbacks of {x} compared with {y}?", f"How did people use {x} in the past?",
            f"I want to learn about {x} in {dice.randint(2, 9)} days. Make a plan.", f"Can {x} harm {y}?",
        )  # fmt: skip
        write = (
            f"Write a {language} function that {task}.", f"Write a {language} program that {task}, with comments.",
            f"How do I write code that {task} in {language}?", f"Write unit tests for a function that {task}.",
        )  # fmt: skip
        edit = (
            f"Rename `{a}` to `{b}` in this code and give back all of it:\n```\n{code()}```",
            f"Add comments to this code:\n```\n{code()}```", f"Find the bug in this code:\n```\n{code()}```",
            f"Add a check of the arguments and return the whole code.\n```\n{code()}```",
            f"Repeat this code exactly:\n```\n{code()}```",
        )  # fmt: skip
        copy = (
            f"Repeat the following text word for word:\n\n{text()}", f"Summarize this text:\n\n{text()} {text()}",
            f"Correct the spelling of this text, changing nothing else: {text()}",
            f"{text()}\n\nWhat are the main points of the text above?", f"Rewrite this in simpler words: {text()}",
        )  # fmt: skip
        rows = dice.randint(3, 8)
        data = (
            f"List {rows} facts about {x} as a JSON array of objects with the fields name, year and description.",
            f"Give me a JSON object that describes {x}, with the fields {a}, {b} and notes.",
            f"Make a Markdown table that compares {x}, {y} and {z}.", f"Write a YAML file for a service called {a}.",
            f"List {rows} words about {x} as a numbered list, one word a line.",
        )  # fmt: skip
        story = (
            f"Write a short story about {dice.choice(people)} who {dice.choice(plots)}.", f"Write a poem about {x}.",
            f"Tell me a story in which {dice.choice(people)} and {dice.choice(people)} talk about {y}.",
            f"Write the first page of a novel about {x}.",
        )  # fmt: skip
        return dice.choice((chat, write, edit, copy, data, story)[kind])

    number = 0
    while True:
        yield one(number % 6)
        number += 1


def read_prompts(path: Path | None, seed: int) -> list[str]:
    """The user's prompts in a shuffled order, or the built-in ones."""
    if path is None:
        source = built_in(seed)
        return [next(source) for _ in range(PROMPTS)]
    try:
        prompts = [line.strip().replace("\\n", "\n") for line in path.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as wrong:
        raise UsageError(f"the prompts cannot be read: {wrong}", "--prompts FILE, one prompt a line") from None
    if len(prompts) < FEWEST:
        raise UsageError(
            f"{path} has {len(prompts)} prompts; fewer than {FEWEST} teach nothing", "add more, one a line"
        )
    random.Random(seed).shuffle(prompts)
    return prompts[:PROMPTS]
