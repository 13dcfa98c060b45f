"""A mixed program for `flagstone bench python`: what Python services do all day.

Prints one checksum, which is the same for every allocator.
"""

import json
import re
import sys
import zlib


def records(count):
    """Dictionaries with strings, floats and lists, the shape of a web request."""
    for number in range(count):
        yield {
            "id": number,
            "name": f"user {number * 7919 % 10007:05d}",
            "tags": [f"tag{(number * step) % 97}" for step in range(1, 6)],
            "score": (number * 2654435761 % 1000003) / 7.0,
            "path": f"/api/v{number % 3}/items/{number:x}?page={number % 11}",
        }


def round_trip(rows):
    """Serialise and parse again."""
    text = json.dumps(rows)
    back = json.loads(text)
    return len(text), back


def count_words(rows):
    """Split, join, count and sort strings."""
    counts = {}
    for row in rows:
        for word in re.split(r"[/?=& ]+", row["path"] + " " + row["name"]):
            counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def index(rows):
    """Build lookup tables of sets and tuples."""
    table = {}
    for row in rows:
        for tag in row["tags"]:
            table.setdefault(tag, set()).add((row["id"], row["name"]))
    return {tag: sorted(members)[:20] for tag, members in table.items()}


def grow(count):
    """Growing buffers: realloc and large blocks."""
    blob = bytearray()
    parts = []
    for number in range(count):
        blob += b"%08x" % (number * 2654435761 % 2**32)
        parts.append(bytes(blob[-64:]))
    return zlib.crc32(blob + b"".join(parts))


class Node:
    """A small object with attributes, as most Python programs are full of."""

    def __init__(self, key, left=None, right=None):
        self.key = key
        self.left = left
        self.right = right


def tree(depth, key=1):
    """A complete binary tree."""
    if depth == 0:
        return Node(key)
    return Node(key, tree(depth - 1, 2 * key), tree(depth - 1, 2 * key + 1))


def total(node):
    """Sum of keys."""
    if node is None:
        return 0
    return node.key + total(node.left) + total(node.right)


def main(size):
    """Runs every part `size` thousand records large, three times."""
    check = 0
    for turn in range(3):
        rows = list(records(size * 1000))
        length, back = round_trip(rows)
        words = count_words(back)
        tags = index(back)
        check += length + len(words) + sum(len(members) for members in tags.values())
        check += grow(size * 1500) + total(tree(11 + (size > 4)))
        order = sorted(back, key=lambda row: (row["score"], row["name"]))
        check += order[turn]["id"]
    print(check)


main(int(sys.argv[1]))
