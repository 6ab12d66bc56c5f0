"""What waits is in the order of its keys, whatever comes, goes or changes."""

import random

from sweep.work.ordered import Ordered


class Waiting:
    def __init__(self, number):
        self.key, self.number = 0, number


def test_it_is_always_as_a_stable_sort_would_have_it():
    draw = random.Random(0)
    ordered = Ordered(lambda one: (one.key,))
    plain = []  # in the order in which they came, or changed
    for number in range(600):
        action = draw.choice(["add", "add", "pop", "remove", "replace"]) if plain else "add"
        one = draw.choice(plain) if plain else None
        if action == "add":
            one = Waiting(number)
            one.key = draw.randrange(5)
            ordered.add(one)
            plain.append(one)
        elif action == "pop":
            plain.remove(ordered.pop(draw.randrange(len(ordered))))
        elif action == "remove":
            ordered.remove(one)
            plain.remove(one)
        else:
            one.key = draw.randrange(5)
            ordered.replace(one)
            plain.remove(one)
            plain.append(one)
        assert list(ordered) == sorted(plain, key=lambda one: one.key) and len(ordered) == len(plain)
    assert ordered.between((2,), (4,)) == [one for one in ordered if one.key in (2, 3)]
    assert ordered.count_between((2,), (4,)) == sum(one.key in (2, 3) for one in plain)
    for one in plain:
        one.key = -one.key
    before = list(ordered)
    ordered.replace_all()
    assert list(ordered) == sorted(before, key=lambda one: one.key)
