"""Real tasks whose answers are checked by equality: where their rows are, and prompts that a person would write for them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRAIN = 80
"""Rows that a search learns from, where there are as many."""

Rows = dict[str, list[dict[str, Any]]]


@dataclass(frozen=True)
class RealTask:
    """A task.

    `search` are the splits of `file` for the search, `test` is the one that is sealed. Without `search` both are halves of
    `test` (of the whole file where it has no splits), so that the search sees labels as often as the test does. `labels` names
    the labels of a row, and rows with others are left out; without them a row has its targets. `tokens` is how long an answer
    may be. With a `speaker`, the file holds dialogues, and the rows are the turns of that one that do one thing (`label`). With
    `services`, the label is the service that such a turn is about, and only turns that name a slot of it are rows.
    """

    file: str
    search: tuple[str, ...]
    test: str
    frame: str
    labels: Mapping[int | str, str]
    hand: tuple[str, ...]
    tokens: int = 8
    speaker: str = ""
    services: bool = False

    def path(self, data: Path) -> Path:
        """The file of the rows."""
        return data / self.file


TASKS = {
    "sst-2": RealTask(
        "few_shot_classification/sst-2.jsonl", ("train", "dev"), "test", "Review", {0: "negative", 1: "positive"},
        (
            "Is the sentiment of this film review positive or negative? Answer with one word, positive or negative, in lower "
            "case.",
            "Classify the review. positive: the writer likes the film. negative: the writer does not like it. Answer with "
            "the label only.",
            "Say whether the review is positive or negative. Write one word in lower case.\nReview: a joy to watch .\npositive\n"
            "Review: dull and far too long .\nnegative",
        ),
    ),
    "sst-5": RealTask(
        "few_shot_classification/sst-5.jsonl", (), "test", "Review",
        {0: "terrible", 1: "bad", 2: "okay", 3: "good", 4: "great"},
        (
            "How does the writer of this film review like the film? Answer with one word in lower case: terrible, bad, okay, "
            "good or great.",
            "Rate the review on a scale of five words. terrible: hates the film. bad: does not like it. okay: neither. good: "
            "likes it. great: loves it. Answer with the word only.",
            "Rate the film review with one word: terrible, bad, okay, good or great.\nReview: a masterpiece .\ngreat\n"
            "Review: dull and far too long .\nbad",
        ),
    ),
    "agnews": RealTask(
        "few_shot_classification/agnews.jsonl", ("train", "dev"), "test", "News",
        {0: "World", 1: "Sports", 2: "Business", 3: "Tech"},
        (
            "What is this news item about? Answer with one word: World, Sports, Business or Tech.",
            "Classify the news. World: politics, wars, disasters. Sports: matches, athletes. Business: companies, markets. "
            "Tech: science, computers, the internet. Answer with the label only.",
            "Name the section of a newspaper, one word: World, Sports, Business or Tech.\nNews: Oil prices rose again.\n"
            "Business\nNews: The striker scored twice in the final.\nSports",
        ),
    ),
    "dbpedia-codes": RealTask(
        "few_shot_classification/dbpedia.jsonl", ("train", "dev"), "test", "Entry",
        {0: "K7", 2: "M2", 6: "Q9", 8: "T4", 9: "W1", 12: "Z5"},
        (
            "What is the entry about? Answer with the code only. K7: a company. M2: an artist. Q9: a building. T4: a village. "
            "W1: an animal. Z5: a film.",
            "Codes: company K7, artist M2, building Q9, village T4, animal W1, film Z5. Write the code that fits the entry and "
            "nothing else.",
            "Write the code of the entry: K7, M2, Q9, T4, W1 or Z5.\nEntry: A bank in Oslo, founded in 1901.\nK7\n"
            "Entry: A singer and painter from Chile.\nM2\nEntry: A church from the 12th century.\nQ9\n"
            "Entry: A place of 300 people in Iran.\nT4\nEntry: A moth of the family Noctuidae.\nW1\n"
            "Entry: A comedy of 1987 with three Oscars.\nZ5",
        ),
    ),
    "antonyms": RealTask(
        "instruction_induction/antonyms.jsonl", ("induce",), "execute", "Word", {},
        (
            "Write a word that means the opposite of the input. Answer with that one word, in lower case.",
            "Write the antonym of the word, nothing else. Prefer the same word with or without a prefix such as un- or in-.",
            "Give the opposite of the word, one word in lower case.\nWord: hot\ncold\nWord: possible\nimpossible",
        ),
    ),
    "dates": RealTask(
        "bbh/date_understanding.jsonl", (), "", "Question", {},
        (
            "Choose the right option. Answer with its letter in brackets, such as (A), and nothing else.",
            "Work out the date in your head, then write only the letter of the option that names it, in round brackets.",
            "Answer with the letter of the right option in brackets.\nQuestion: Today is 3 May 2001. What is the date tomorrow "
            "in MM/DD/YYYY?\nOptions:\n(A) 05/02/2001\n(B) 05/04/2001\n(B)",
        ),
    ),
    "word-sorting": RealTask(
        "bbh/word_sorting.jsonl", (), "", "Question", {},
        (
            "Write the words of the list in the order of the alphabet, with one blank between them, and nothing else.",
            "Sort the words. Answer with the sorted words on one line, without commas and without any other text.",
            "Write the sorted words on one line.\nQuestion: Sort the following words alphabetically: List: pear fig apple\n"
            "apple fig pear",
        ),
        tokens=96,
    ),
    "similarity": RealTask(
        "instruction_induction/sentence_similarity.jsonl", ("induce",), "execute", "Pair", {},
        (
            "How similar in meaning are the two sentences? Answer with one of these and nothing else: 0 - definitely not, "
            "1 - probably not, 2 - possibly, 3 - probably, 4 - almost perfectly, 5 - perfectly.",
            "Rate how alike the sentences are. 0 - definitely not: other topics. 1 - probably not: the same topic. 2 - possibly: "
            "some details in common. 3 - probably: important details differ. 4 - almost perfectly: small details differ. "
            "5 - perfectly: the same meaning. Write the number and its words.",
            "Say how alike the sentences are.\nPair: Sentence 1: A man sings. Sentence 2: A dog runs.\n0 - definitely not\n"
            "Pair: Sentence 1: A man sings. Sentence 2: A man is singing.\n5 - perfectly",
        ),
        tokens=12,
    ),
    "mr": RealTask(
        "few_shot_classification/mr.jsonl", ("train", "dev"), "test", "Review", {0: "terrible", 1: "great"},
        (
            "Is this film review good or bad? Answer with one word in lower case: great or terrible.",
            "Classify the review. great: the writer likes the film. terrible: the writer does not like it. Answer with the word "
            "only.",
            "Write great or terrible.\nReview: a joy to watch .\ngreat\nReview: dull and far too long .\nterrible",
        ),
    ),
    "german": RealTask(
        "instruction_induction/translation_en-de.jsonl", ("induce",), "execute", "Word", {},
        (
            "Translate the word into German. Write one word and nothing else.",
            "Write the German word for the English one, a noun with a capital letter, without article or full stop.",
            "Write the German word.\nWord: house\nHaus\nWord: possible\nmöglich",
        ),
        tokens=12,
    ),
    "counting": RealTask(
        "bbh/object_counting.jsonl", (), "", "Question", {},
        (
            "Count the things asked for. Answer with the number in digits and nothing else.",
            "Add up the numbers of the things that the question asks for, a means 1. Write only the sum in digits.",
            "Write the number.\nQuestion: I have two pens and a cup. How many objects do I have?\n3\n"
            "Question: I have a cat, three dogs and a table. How many animals do I have?\n4",
        ),
    ),
    "plural": RealTask(
        "instruction_induction/singular_to_plural.jsonl", ("induce",), "execute", "Noun", {},
        (
            "What is the plural form of this noun? Answer with one word in lower case.",
            "Write the plural of the noun in lower case, one word only.",
            "Write the plural.\nNoun: box\nboxes\nNoun: lady\nladies",
        ),
    ),
    "difference": RealTask(
        "instruction_induction/diff.jsonl", ("induce",), "execute", "Numbers", {},
        (
            "What is the first number minus the second number? Answer with the number only.",
            "Subtract the second number from the first. Write only the difference.",
            "Write the difference.\nNumbers: 174 12\n162\nNumbers: 163 7\n156",
        ),
    ),
    "first-letter": RealTask(
        "instruction_induction/first_word_letter.jsonl", ("induce",), "execute", "Word", {},
        (
            "Which letter does the word begin with? Answer with one lower-case letter.",
            "Write the first letter of the word, in lower case, and nothing else.",
            "Write the first letter.\nWord: house\nh\nWord: possible\np",
        ),
    ),
    "sum": RealTask(
        "instruction_induction/sum.jsonl", ("induce",), "execute", "Numbers", {},
        (
            "What is the sum of the two numbers? Answer with the number only.",
            "Add the two numbers. Write only the sum, in digits.",
            "Write the sum.\nNumbers: 12 30\n42\nNumbers: 7 81\n88",
        ),
        tokens=5,
    ),
    "sentiment": RealTask(
        "instruction_induction/sentiment.jsonl", ("induce",), "execute", "Text", {},
        (
            "Is this text positive or negative? Answer with one word in lower case: positive or negative.",
            "Classify the text. positive: the writer likes the film. negative: the writer does not like it. Answer with the "
            "label only.",
            "Write positive or negative.\nText: a joy to watch\npositive\nText: dull and far too long\nnegative",
        ),
        tokens=5,
    ),
    "boolean": RealTask(
        "bbh/boolean_expressions.jsonl", (), "", "Expression", {},
        (
            "What is the value of the expression? Answer with one word, True or False.",
            "Work out the expression: first not, then and, then or. Write only True or False.",
            "Write the value.\nExpression: not ( True ) and ( True ) is\nFalse\nExpression: True or not False is\nTrue",
        ),
        tokens=5,
    ),
    "larger-animal": RealTask(
        "instruction_induction/larger_animal.jsonl", ("induce",), "execute", "Animals", {},
        (
            "Which of the two animals is larger? Answer with its name only, as it is written.",
            "Write the name of the larger animal, exactly as it stands in the list, in lower case, and nothing else.",
            "Write the larger animal.\nAnimals: mouse, horse\nhorse\nAnimals: whale, dog\nwhale",
        ),
    ),
    "negation": RealTask(
        "instruction_induction/negation.jsonl", ("induce",), "execute", "Sentence", {},
        (
            "Negate the sentence. Write the same sentence with not in it and nothing else.",
            "Write the sentence again so that it says the opposite: put not after is, was, can or will, or write did not or does "
            "not before the verb. Change nothing else.",
            "Write the negation of the sentence.\nSentence: The house is old.\nThe house is not old.\n"
            "Sentence: She wrote two books.\nShe did not write two books.",
        ),
        tokens=40,
    ),
    "dbpedia-topics": RealTask(
        "few_shot_classification/dbpedia.jsonl", ("train", "dev"), "test", "Entry",
        {1: "School", 3: "Sport", 4: "Politics", 7: "Nature", 10: "Plant", 11: "Music"},
        (
            "What is the entry about? Answer with one word: School, Sport, Politics, Nature, Plant or Music.",
            "Name the topic of the entry in one word. School: a school or college. Sport: an athlete. Politics: a politician. "
            "Nature: a mountain, river or lake. Plant: a plant. Music: an album.",
            "Write School, Sport, Politics, Nature, Plant or Music.\nEntry: A college in Oslo, founded in 1901.\nSchool\n"
            "Entry: A member of the senate of Chile.\nPolitics\nEntry: A lake in the north of Norway.\nNature",
        ),
        tokens=5,
    ),
    "moves": RealTask(
        "dialogues_sgd/dialogues.jsonl", (), "", "Utterance",
        {
            act: act
            for act in ("REQUEST", "OFFER", "CONFIRM", "GOODBYE", "INFORM", "NOTIFY_SUCCESS", "REQ_MORE")
        },
        (
            "What does the assistant do in this utterance? Answer with one of these and nothing else: REQUEST, OFFER, CONFIRM, "
            "GOODBYE, INFORM, NOTIFY_SUCCESS or REQ_MORE.",
            "Name the dialogue act. REQUEST: asks the user for a detail. OFFER: proposes a result. CONFIRM: asks whether the "
            "details are right. GOODBYE: ends the talk. INFORM: answers a question. NOTIFY_SUCCESS: says that something was "
            "done. REQ_MORE: asks whether there is anything else. Answer with the name only.",
            "Write REQUEST, OFFER, CONFIRM, GOODBYE, INFORM, NOTIFY_SUCCESS or REQ_MORE.\nUtterance: In which city?\nREQUEST\n"
            "Utterance: Your table is booked.\nNOTIFY_SUCCESS\nUtterance: Can I help with anything else?\nREQ_MORE",
        ),
        speaker="system",
    ),
    "user-moves": RealTask(
        "dialogues_sgd/dialogues.jsonl", (), "", "Utterance",
        {act: act for act in ("INFORM", "REQUEST", "INFORM_INTENT", "SELECT", "AFFIRM")},
        (
            "What does the user do in this utterance? Answer with one of these and nothing else: INFORM, REQUEST, INFORM_INTENT, "
            "SELECT or AFFIRM.",
            "Name the dialogue act. INFORM: gives a detail. REQUEST: asks for a detail. INFORM_INTENT: says what the user wants "
            "to do. SELECT: takes what was offered. AFFIRM: says yes. Answer with the name only.",
            "Write INFORM, REQUEST, INFORM_INTENT, SELECT or AFFIRM.\nUtterance: In Oslo, please.\nINFORM\n"
            "Utterance: I want to rent a car.\nINFORM_INTENT\nUtterance: Yes, that is right.\nAFFIRM",
        ),
        speaker="user",
    ),
    "services": RealTask(
        "dialogues_sgd/dialogues.jsonl", (), "", "Utterance",
        {
            name: name
            for name in ("Events_1", "Services_4", "Flights_3", "Weather_1", "Homes_1", "RentalCars_1", "Alarm_1")
        },
        (
            "Which service is the utterance about? Answer with one of these and nothing else: Events_1, Services_4, Flights_3, "
            "Weather_1, Homes_1, RentalCars_1 or Alarm_1.",
            "Name the service. Events_1: concerts and matches. Services_4: a therapist. Flights_3: flights. Weather_1: the "
            "weather. Homes_1: flats. RentalCars_1: a rented car. Alarm_1: an alarm. Answer with the name only.",
            "Write Events_1, Services_4, Flights_3, Weather_1, Homes_1, RentalCars_1 or Alarm_1.\n"
            "Utterance: The concert begins at 8 pm.\nEvents_1\nUtterance: Your flight leaves at noon.\nFlights_3\n"
            "Utterance: It will rain in Oslo.\nWeather_1",
        ),
        speaker="system",
        services=True,
    ),
    "spelling": RealTask(
        "instruction_induction/letters_list.jsonl", ("induce",), "execute", "Word", {},
        (
            "Spell the word: write its letters with a blank between them and nothing else.",
            "Break the word into its letters. Write them in lower case, in their order, with one blank between two letters.",
            "Write the letters.\nWord: house\nh o u s e\nWord: cat\nc a t",
        ),
        tokens=24,
    ),
}  # fmt: skip
"""`dbpedia-codes` has six classes of DBpedia under names that say nothing, so that they must be learned."""


def rows_of(data: Path, name: str, seed: int, validation: int, test: int) -> Rows:
    """Rows of a task by split for a seed, no input twice; test rows of other seeds are others as far as they last."""
    task = TASKS[name]
    with task.path(data).open(encoding="utf-8") as lines:
        found = [
            row for one in map(json.loads, lines) for row in (_turns(one, task) if task.speaker else [one])
        ]
    read = {row["input"]: row for row in found}
    rows = []
    for row in read.values():
        if task.labels and row["label"] not in task.labels:
            continue
        targets = [task.labels[row["label"]]] if task.labels else row.get("targets", [row["target"]])
        whole = {"id": row["id"], "input": row["input"], "target": targets[0], "targets": targets}
        rows.append((row.get("split", ""), whole))
    sealed = [row for split, row in rows if split == task.test]
    random.Random(0).shuffle(sealed)
    if task.search:
        pool = [row for split, row in rows if split in task.search]
    else:
        half = len(sealed) // 2
        pool, sealed = sealed[:half], sealed[half:]
    random.Random(seed).shuffle(pool)
    turn = seed * test % len(sealed)
    sealed = (sealed[turn:] + sealed[:turn])[:test]
    train = min(TRAIN, len(pool) - validation)
    return {"train": pool[:train], "validation": pool[train : train + validation], "test": sealed}


def _turns(dialogue: Mapping[str, Any], task: RealTask) -> list[dict[str, Any]]:
    """The turns of the speaker of a task that do one thing only, or that name slots of one service."""
    rows = []
    for n, turn in enumerate(dialogue["turns"]):
        actions = [action for frame in turn["frames"] for action in frame["actions"]]
        labels = {action["act"] for action in actions}
        if task.services:
            named = any(action.get("slot") for action in actions)
            labels = {frame["service"] for frame in turn["frames"]} if named else set()
        if turn["speaker"] == task.speaker and len(labels) == 1:
            rows.append({"id": f"{dialogue['id']}-{n}", "input": turn["utterance"], "label": labels.pop()})
    return rows


def grade(example: Mapping[str, Any], output: str) -> dict[str, Any]:
    """1 for exactly a target, else 0 with what would have been right."""
    wanted = example["targets"]
    right = output.strip() in wanted
    return {
        "reward": float(right),
        "critique": None if right else f'The answer must be exactly "{wanted[0]}" and nothing else.',
    }
