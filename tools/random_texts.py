"""Random texts of many scripts, and hashes of what a tokenizer makes of them, for the scripts that make reference data.

tests/llm/random_texts.h has the same generator. Of the ids only a hash for each hundred texts is stored.
"""

TEXTS = 2000
GROUP = 100  # texts per hash

# Each range is a first and a last character. These characters were assigned long ago, so that releases of Unicode agree
# on them.
RANGES = [(0x61, 0x7A), (0x61, 0x7A), (0x41, 0x5A), (0x30, 0x39), (0x30, 0x39), (0x20, 0x20), (0x20, 0x20), (0x0A, 0x0A),
          (0x09, 0x0D), (0x21, 0x2F), (0x27, 0x27), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E), (0xA0, 0xA0), (0xA1, 0xFF),
          (0x100, 0x17F), (0x2B0, 0x2C1), (0x300, 0x33F), (0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA),
          (0x621, 0x63A), (0x660, 0x669), (0x915, 0x939), (0x93E, 0x94C), (0x966, 0x96F), (0xE01, 0xE30), (0xE31, 0xE31),
          (0x1C5, 0x1C5), (0x1F88, 0x1F8F), (0x2000, 0x200A), (0x2010, 0x2027), (0x20A0, 0x20AC), (0x2160, 0x216B),
          (0x2190, 0x21FF), (0x2460, 0x2473), (0x3000, 0x3002), (0x3041, 0x3096), (0x30A1, 0x30FA), (0x4E00, 0x9FA5),
          (0xAC00, 0xD7A3), (0xFF01, 0xFF0F), (0xFF10, 0xFF19), (0xFF21, 0xFF3A), (0x1F600, 0x1F64F), (0x10400, 0x1044F)]
WORDS = ["'s", "'LL", "'re", " the", " in", "  ", "\n\n", "\r\n", "ing", "123", " 4567", "://", "don't", "I'M", "e\u0301"]


class Random:
    """Generates the same numbers as TextRandom of tests/llm/random_texts.h."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % bound


def texts():
    random = Random(20261125)
    for _ in range(TEXTS):
        text = ""
        for _ in range(random.below(24) + 1):
            if random.below(3) == 0:
                text += WORDS[random.below(len(WORDS))]
            else:
                first, last = RANGES[random.below(len(RANGES))]
                for _ in range(random.below(4) + 1):
                    text += chr(first + random.below(last - first + 1))
        yield text


def hashes(encode):
    """Returns FNV-1a of the ids as four bytes each, with ff ff ff ff after each text."""
    found, count, value = [], 0, 0xCBF29CE484222325
    for text in texts():
        for number in list(encode(text)) + [0xFFFFFFFF]:
            for byte in int(number).to_bytes(4, "little"):
                value = (value ^ byte) * 0x100000001B3 % 2**64
        count += 1
        if count % GROUP == 0:
            found.append(f"{value:016x}")
    return found
