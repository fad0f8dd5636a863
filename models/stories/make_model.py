#!/usr/bin/env python3
"""Make the small story model from nothing.

The script does the whole job in one run:

1. it writes short stories with a grammar of its own (the tables and plots
   below); no outside text is read,
2. it trains a byte-level BPE tokenizer on those stories,
3. it trains a Llama-architecture language model of about 2.7 million
   parameters on one CPU thread, and
4. it saves a Hugging Face model directory (config, tokenizer, bf16 weights).

Usage:
    python3 make_model.py --out DIR [--minutes N]   train for N minutes
    python3 make_model.py --out DIR --steps N       train for exactly N steps
    python3 make_model.py --show 5                  print five stories and stop

The stories, the tokenizer and the starting weights depend only on the fixed
seed. With --steps the whole run is repeatable on the same machine and library
versions. With --minutes the learning-rate schedule follows the clock, so the
number of steps, and with it the weights, depend on the speed of the machine.

Needs: torch, transformers, tokenizers, safetensors, numpy.
"""

import argparse
import json
import math
import os
import random
import re
import time

SEED = 20240607
VOCAB = 2048
SEQ = 256            # tokens per training sequence
BATCH = 8            # sequences per step
TRAIN_STORIES = 60000
HELD_OUT_STORIES = 400
BOS = "<|begin_of_text|>"
EOS = "<|end_of_text|>"

# ---------------------------------------------------------------------------
# Template engine
#
#   [a|b|c]   one of the parts, chosen at random; parts may nest or be empty
#   {slot}    a value of the story (may itself be a template)
#   a%        "a" or "an", decided by the next letter
#
# A letter that starts a sentence is made a capital at the end, except where
# the sentence goes on after a quotation ("Help!" cried the mouse).
# ---------------------------------------------------------------------------

INNERMOST = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{(\w+)\}")


def expand(rng, text, ctx):
    while True:
        # Choices first, so that a slot inside a part that was not chosen is
        # never looked up.
        new = INNERMOST.sub(lambda m: rng.choice(m.group(1).split("|")), text)
        if new == text:
            new = SLOT.sub(lambda m: ctx[m.group(1)], text)
            if new == text:
                return text
        text = new


SPEAKS = r"(?:(?:he|she|it|they|the \w+(?: \w+)?) )?(?:said|asked|answered|cried|shouted|called|whispered|sighed|thought)\b"


def tidy(text):
    text = re.sub(r"\b([Aa])% ([\"']?)(\w)",
                  lambda m: m.group(1) + ("n " if m.group(3).lower() in "aeiou" else " ")
                  + m.group(2) + m.group(3), text)
    text = re.sub(r"\b([Aa]) honest", r"\1n honest", text)
    text = re.sub(r"\b([Ff]ar away), on an island far away", r"\1, on a small island", text)
    paragraphs = []
    for p in text.split("\n"):
        p = re.sub(r"\s+", " ", p).strip()
        p = re.sub(r" ([,.!?])", r"\1", p)
        if not p:
            continue
        # Start of paragraph, after . ! ? and a space, after ." and a space.
        p = re.sub(r"^(\"?)([a-z])", lambda m: m.group(1) + m.group(2).upper(), p)
        p = re.sub(r"([.!?] \"?|\.\" \"?)([a-z])", lambda m: m.group(1) + m.group(2).upper(), p)
        # After !" or ?" unless the sentence goes on with who said it.
        p = re.sub(r"([!?]\" )(?!" + SPEAKS + r")([a-z])", lambda m: m.group(1) + m.group(2).upper(), p)
        paragraphs.append(p)
    return "\n\n".join(paragraphs)


# ---------------------------------------------------------------------------
# Who and where
# ---------------------------------------------------------------------------

GIRLS = ("Mia Lily Anna Rosa Ella Nora Clara Ivy Daisy Ruby Molly Sara Tilda Wanda Greta Hazel "
         "Luna Poppy Emma Zoe Flora Olive Bella Nina Fern Holly Maya Pearl Kira June").split()
BOYS = ("Tom Ben Max Leo Sam Finn Oscar Hugo Jack Toby Otto Felix Pip Milo Rufus Bruno Walter "
        "Theo Ned Henry Oliver Peter Simon Jasper Barney Gus Albert Dan Robin Eddie").split()

# kind, gender ("" = either), group
KINDS = [
    ("girl", "f", "child"), ("girl", "f", "child"), ("girl", "f", "child"),
    ("boy", "m", "child"), ("boy", "m", "child"), ("boy", "m", "child"),
    ("princess", "f", "child"), ("prince", "m", "child"), ("shepherd boy", "m", "child"),
    ("goose girl", "f", "child"),
    ("farmer", "", "adult"), ("baker", "", "adult"), ("gardener", "", "adult"),
    ("fisherman", "m", "adult"), ("tailor", "", "adult"), ("miller", "m", "adult"),
    ("woodcutter", "m", "adult"), ("sailor", "", "adult"), ("knight", "", "adult"),
    ("wizard", "m", "adult"), ("witch", "f", "adult"), ("clockmaker", "", "adult"),
] + [(k, "", "animal") for k in (
    "fox rabbit bear mouse cat dog hedgehog squirrel frog turtle goat lamb pony kitten puppy "
    "piglet badger mole deer beaver dragon otter elephant lion monkey fox rabbit bear mouse cat "
    "dog squirrel").split()]

ADJ = {"child": "little|young|kind|curious|clever|brave|quiet|cheerful|shy|dreamy",
       "adult": "kind|clever|poor|cheerful|quiet|old|young|honest|busy|gentle",
       "animal": "little|small|kind|curious|clever|brave|cheerful|shy|young|funny|gentle|sleepy"}

# place with preposition, short name of the place, groups that may live there
HOMES = [
    ("in a small village by the sea", "the village", "child adult"),
    ("in a small village", "the village", "child adult"),
    ("in a quiet village at the foot of a mountain", "the village", "child adult"),
    ("in a busy town", "the town", "child adult"),
    ("in a little town with red roofs", "the town", "child adult"),
    ("in a tall castle on a hill", "the castle", "royal"),
    ("on a small farm", "the farm", "child animal"),
    ("on a farm near the woods", "the farm", "child animal"),
    ("in a cottage at the edge of the forest", "the cottage", "child adult"),
    ("in a little house on a hill", "the house", "child adult"),
    ("in a little house by the river", "the house", "child adult animal"),
    ("in a big green forest", "the forest", "animal"),
    ("in a deep dark forest", "the forest", "animal"),
    ("in the woods near a wide river", "the woods", "animal"),
    ("in a green valley", "the valley", "child adult animal"),
    ("in a sunny valley between two mountains", "the valley", "child adult animal"),
    ("in a warm hole under an old oak tree", "the oak tree", "small"),
    ("on an island far away", "the island", "child adult animal"),
    ("beside a blue lake", "the lake", "child adult animal"),
]
SMALL = "rabbit mouse hedgehog squirrel fox badger mole".split()

# helpers known by kind only; the gender keeps pronouns clear
HELPERS = [("an old owl", "the owl"), ("a wise old turtle", "the turtle"), ("a tiny mouse", "the mouse"),
           ("a friendly crow", "the crow"), ("a big brown bear", "the bear"), ("a gray goose", "the goose"),
           ("a white horse", "the horse"), ("an old woman with a basket", "the old woman"),
           ("an old man with a long beard", "the old man"), ("a traveling peddler", "the peddler"),
           ("a red squirrel", "the squirrel"), ("a small green frog", "the frog"),
           ("a tall deer", "the deer"), ("a busy beaver", "the beaver"), ("a grumpy badger", "the badger"),
           ("a lonely giant", "the giant"), ("a young shepherd", "the shepherd")]

TIMES = ["one day", "one morning", "one sunny morning", "one afternoon", "one windy day",
         "one spring day", "one summer day", "one cold morning", "early one morning"]


def pronouns(gender, prefix=""):
    he, him, his = ("she", "her", "her") if gender == "f" else ("he", "him", "his")
    d = {"he": he, "him": him, "his": his, "himself": him + "self",
         "He": he.capitalize(), "His": his.capitalize()}
    return {prefix + k: v for k, v in d.items()}


def hero(rng, want=None, not_kind=()):
    """A main character with a name, a kind, an adjective and a home."""
    while True:
        kind, gender, group = rng.choice(KINDS)
        if (want is None or group in want) and kind not in not_kind:
            break
    gender = gender or rng.choice("fm")
    c = pronouns(gender)
    c["n"] = rng.choice(GIRLS if gender == "f" else BOYS)
    c["kind"], c["group"], c["gender"] = kind, group, gender
    c["adj"] = rng.choice(ADJ[group].split("|"))
    tags = {group}
    if kind in ("princess", "prince"):
        tags = {"royal"}
    if kind in SMALL:
        tags.add("small")
    homes = [h for h in HOMES if tags & set(h[2].split())]
    c["in_home"], c["home"] = rng.choice(homes)[:2]
    # s: the main character as subject in the middle of a story
    c["s"] = "[{n}|{n}|{he}|the {kind}]"
    c["nn"] = "[{n}|{n}|the {kind}]"
    c["time"] = rng.choice(TIMES)
    if group == "child" and kind not in ("princess", "prince"):
        c["elder"] = rng.choice(["mother", "father", "grandmother", "grandfather"])
    elif group == "animal":
        c["elder"] = rng.choice(["mother", "father", "grandmother", "uncle"])
    else:
        c["elder"] = rng.choice(["mother", "sister", "aunt", "grandmother"])
    return c


def friend(rng, c):
    """A second character: same sort of being, other gender, other name."""
    gender = "m" if c["gender"] == "f" else "f"
    d = pronouns(gender, "f")
    d["fn"] = rng.choice(GIRLS if gender == "f" else BOYS)
    kinds = [k for k in KINDS if k[2] == c["group"] and k[1] in ("", gender) and k[0] != c["kind"]
             and k[0] not in ("princess", "prince")]
    d["fkind"] = rng.choice(kinds)[0]
    return d


def helper(rng):
    a, the = rng.choice(HELPERS)
    return {"a_helper": a, "helper": the}


# ---------------------------------------------------------------------------
# Shared sentences
# ---------------------------------------------------------------------------

OPENINGS = [
    "once upon a time, there was a% {adj} {kind} named {n}. {He} lived {in_home}.",
    "once upon a time, there was a% {adj} {kind} [named|called] {n} who lived {in_home}.",
    "once upon a time, {in_home}, there lived a% {adj} {kind} [named|called] {n}.",
    "once upon a time, a% {adj} {kind} [named|called] {n} lived {in_home}.",
    "{in_home}, there lived a% {adj} {kind} [named|called] {n}.",
    "{in_home} lived a% {adj} {kind} [named|called] {n}.",
    "there was [once|] a% {adj} {kind} [named|called] {n}. {He} lived {in_home}.",
    "there once was a% {adj} {kind} [named|called] {n} who lived {in_home}.",
    "long ago, there lived a% {adj} {kind} [named|called] {n}. [{n}'s|{His}] home was {in_home}.",
    "long, long ago, {in_home}, there was a% {adj} {kind} [named|called] {n}.",
    "long ago, {in_home}, a% {adj} {kind} [named|called] {n} lived with {his} {elder}.",
    "{n} was a% {adj} {kind} who lived {in_home}.",
    "{n} the {kind} lived {in_home}. [everyone said that {he} was very {adj2}.|]",
    "{n} was a% {adj} {kind}. [every day|every morning], {he} [sang a little song|ate a big breakfast|walked "
    "around {home}|helped {his} {elder}].",
    "far away, {in_home}, there lived a% {adj} {kind} [named|called] {n}.",
    "not so long ago, a% {adj} {kind} [named|called] {n} lived {in_home}.",
    "this is the story of {n}, a% {adj} {kind} who lived {in_home}.",
    "the {adj} {kind} {n} lived {in_home}.",
]

# Short starts for stories that begin in the middle of things.
QUICK = [
    "{time}, a% {adj} {kind} [named|called] {n}",
    "{time}, {n} the {kind}",
]

BUSY = ["sitting in the sun", "walking along the path", "looking at the clouds", "singing a song",
        "eating breakfast",
        "humming a little tune", "watching the birds", "taking a walk", "resting under a tree",
        "playing in the grass"]
SEASON = ["it was a warm summer day", "it was a bright spring morning", "it was a windy autumn day",
          "it was a quiet morning", "it was a fine day"]

HABITS = [
    "every morning, {he} [sang a song|fed the birds|swept the floor|looked out of the window|drank a cup of warm milk].",
    "{he} loved [stories|music|the stars|warm soup|the rain|flowers|honey cake] more than anything else.",
    "{he} had [a kind heart|a warm smile|bright eyes|a loud laugh|many questions|a red scarf|a blue hat].",
    "everyone {in_area} knew {him}.",
    "{he} was always [kind to others|ready to help|full of ideas|in a good mood].",
    "{he} liked to [walk in the woods|watch the clouds|play by the water|count the stars|sing in the rain|tell jokes].",
    "", "", "", "",
]

WEATHER = [
    "the sun was warm and the sky was blue.", "the wind blew and the clouds were gray.",
    "a soft rain fell on the grass.", "the birds were singing in the trees.",
    "the air was cold and fresh.", "the leaves were red and gold.", "flowers were growing everywhere.",
    "snow lay on the ground.", "the morning was quiet.", "", "", "", "", "", "",
]

MORALS = {
    "help": ["from that day on, {n} knew that [good friends make hard things easy|it is wise to ask for help|"
             "two can do what one cannot].",
             "and {n} never forgot that a friend can make all the difference.",
             "{n} had learned that it is good to ask for help."],
    "kind": ["and {n} learned that a kind act always comes back.",
             "from that day on, they were the best of friends.",
             "{n} knew now that even a small kindness can be very big.",
             "kindness costs nothing, but it is worth more than gold."],
    "share": ["they had learned that sharing makes everything better.",
              "and they never fought about {thing} again.",
              "from that day on, they shared everything.",
              "{n} knew that a friend is worth more than {thing}."],
    "brave": ["{n} learned that being brave means doing a thing even when you are afraid.",
              "from that day on, {n} was not so afraid anymore.",
              "being brave does not mean that you are never afraid. It means that you try."],
    "proud": ["and so everyone learned that it is better to be steady than to be proud.",
              "from that day on, {fn} never laughed at anyone again.",
              "those who boast the most do not always win.",
              "{fn} had learned that a kind word is better than a proud one."],
    "patience": ["{n} had learned that good things take time.",
                 "from that day on, {n} was never in such a hurry.",
                 "and whenever {n} had to wait, {he} thought of the little seed and smiled."],
    "home": ["{n} had seen the world, but home was the best place of all.",
             "the world is wide, {n} thought, but home is where you are loved.",
             "and when people asked {him} about the journey, {n} always smiled."],
    "truth": ["{n} learned that the truth is always the best way.",
              "from that day on, {n} always told the truth.",
              "it is hard to tell the truth, but a lie is even harder to carry."],
    "gift": ["{n} had learned that a gift made with love is the best gift of all.",
             "and {n} knew that the best gifts come from the heart.",
             "{n} thought that giving was even nicer than getting.",
             "from that day on, {n} made a gift for someone every year."],
    "calm": ["{n} learned that many scary things are only strange until you know them.",
             "from that day on, {n} always looked twice before {he} was afraid.",
             "and {n} laughed every time {he} thought about it."],
}

ENDINGS = [
    "that night, {n} slept [very well|with a smile on {his} face|like a stone].",
    "and {n} was [happy|very happy|happy for a long, long time].",
    "and they all lived happily ever after.",
    "it was the best day of {n}'s life.",
    "when the moon came up, {n} [smiled and fell asleep|was still smiling].",
    "[{n}'s|{His}] {elder} was very proud of {him}.",
]


def opening(rng, c):
    c["adj2"] = rng.choice(["kind", "clever", "helpful", "friendly", "polite", "funny"])
    c["in_area"] = {"the village": "in the village", "the town": "in the town",
                    "the forest": "in the forest",
                    "the valley": "in the valley", "the woods": "in the woods", "the farm": "on the farm",
                    "the castle": "in the castle", "the island": "on the island"}.get(c["home"],
                                                            "in the land")
    if rng.random() < 0.15:
        o = rng.choice(QUICK) + " was " + rng.choice(BUSY) + "."
        if rng.random() < 0.4:
            o = rng.choice(SEASON) + ", and" + o.split(",", 1)[1]
        o = o.replace("{time}", c["time"]) + rng.choice([" {He} lived {in_home}.", " {He} lived {in_home}.",
                                                         ""])
        c["time"] = rng.choice(["the next day", "the next morning", "that afternoon", "a little later"])
        return o + " " + rng.choice(HABITS)
    o = rng.choice(OPENINGS[:4]) if rng.random() < 0.25 else rng.choice(OPENINGS)
    return o + " " + rng.choice(HABITS)


def closing(rng, moral):
    m, e = rng.choice(MORALS[moral]), rng.choice(ENDINGS)
    r = rng.random()
    if r < 0.3 and moral not in ("truth", "calm", "share"):
        return rng.choice(["it was the best day of {n}'s life.",
                           "[{n}'s|{His}] {elder} was very proud of {him}."]) + " " + m
    if r < 0.65:
        return m
    return m if moral == "truth" and "best day" in e else e


# ---------------------------------------------------------------------------
# Plot 1: a wish, an obstacle, attempts that fail, a helper, success
# ---------------------------------------------------------------------------

WISHES = [
    dict(wish="to cross the wide river", why="[the sweetest berries grew|{his} best friend lived|a beautiful garden lay] on the other side",
         block="the water was deep and there was no bridge",
         tries=["{s} tried to jump from stone to stone, but the stones were too slippery.",
                "{s} made a raft out of sticks, but it fell apart.",
                "{s} tried to walk through the water, but it was much too cold."],
         plan=["we can push this fallen tree over the water", "let us lay a long log across the river"],
         do="together they pushed and pushed until the [tree|log] lay across the river like a bridge.",
         win="{n} walked slowly over the bridge and reached the other side."),
    dict(wish="to climb the high mountain",
         why="{he} wanted to [see the whole world from the top|touch the clouds|be close to the stars]",
         block="the path was steep and full of stones",
         tries=["{s} ran up the path as fast as {he} could, but soon {he} was too tired.",
                "{s} tried to climb straight up the rocks, but {he} slipped and slid back down.",
                "{s} started at noon, but the sun was too hot."],
         plan=["go slowly, and rest at every bend of the path",
               "start early, and take one small step after another"],
         do="so they went up together, one step after another, and rested many times.",
         win="at last {n} stood on the top of the mountain and looked down at the wide green land."),
    dict(wish="to pick the golden apple at the top of the old tree",
         why="[it looked so sweet|it was as bright as the sun|{his} {elder} loved apples]",
         block="the branches were far too high",
         tries=["{s} jumped as high as {he} could, but {he} could not reach it.",
                "{s} threw a stick at the apple, but the stick got stuck in the leaves.",
                "{s} shook the tree, but only a few leaves fell down."],
         plan=["stand on my back, and you will be tall enough",
               "we can pile up these stones and make a stair"],
         do="[{n} did what {helper} said|they worked together], and little by little the apple came closer.",
         win="{n} took the golden apple in {his} [hands|arms] and shared it with {helper}."),
    dict(wish="to learn to swim", why="all the others played in the lake on hot days",
         block="{he} always sank like a stone",
         tries=["{s} kicked and splashed, but {he} only swallowed water.",
                "{s} held on to a piece of wood, but it floated away.",
                "{s} closed {his} eyes and jumped in, but {he} had to climb out at once."],
         plan=["first lie on your back and let the water carry you",
               "breathe slowly, and do not fight the water"],
         do="[{n} tried it again and again|they practiced every day for a week], and {helper} stayed close by.",
         win="at last {n} swam all the way across the lake.",
         no="dragon otter frog turtle beaver fisherman sailor dog puppy"),
    dict(wish="to open the old wooden box",
         why="[something was ringing inside it|it had belonged to {his} grandfather|nobody knew what was in it]",
         block="it was locked and the key was gone",
         tries=["{s} pulled at the lid, but it did not move.",
                "{s} shook the box, but it stayed shut.",
                "{s} looked for the key under the bed, but {he} found only dust."],
         plan=["look under the box, where old keys often hide",
               "feel along the bottom, for such boxes have a secret button"],
         do="{n} turned the box over, and there {he} heard a small click.",
         win="the lid opened. Inside lay [a silver bell|an old map|a music box|a letter full of kind words]."),
    dict(wish="to make a kite that could fly", why="the spring wind was so [strong|warm|merry]",
         block="every kite {he} made fell to the ground",
         tries=["{s} made a kite out of cloth, but it was too heavy.",
                "{s} ran across the field with a paper kite, but it hit a tree.",
                "{s} used a short string, but the kite only turned in circles."],
         plan=["your kite needs a long tail", "use light wood and a long tail"],
         do="they tied a long tail of ribbons to the kite and carried it up the hill.",
         win="the wind took the kite, and it rose higher and higher into the sky."),
    dict(wish="to grow the biggest pumpkin in the land",
         why="there was a prize at the [autumn|harvest] fair",
         block="the ground was dry and hard",
         tries=["{s} sang to the little plants, but they stayed small.",
                "{s} gave the plants water at noon, but the sun dried it up at once.",
                "{s} planted more seeds, but the birds ate them."],
         plan=["dig the ground deep, and water it in the evening",
               "put old leaves on the ground to keep it wet"],
         do="every evening they worked in the garden together until the stars came out.",
         win="in autumn {n} had a pumpkin as big as a cart, and {he} won the prize."),
    dict(wish="to sing at the summer feast", why="{he} loved music with all {his} heart",
         block="{he} was too shy to sing in front of others",
         tries=["{s} tried to sing in the kitchen, but {his} voice shook.",
                "{s} sang for {his} {elder}, but {he} forgot the words.",
                "{s} hid behind a tree and sang, but nobody could hear {him}."],
         plan=["sing to only one friend, and forget the others",
               "close your eyes and think of the things that you love"],
         do="every evening {n} sang for {helper}, a little louder each time.",
         win="at the feast {n} sang so well that everyone [clapped|danced|cheered]."),
    dict(wish="to light the old lighthouse again", why="the ships could not find their way in the dark",
         block="the stairs were broken and the lamp was empty",
         tries=["{s} carried a candle to the door, but the wind blew it out.",
                "{s} climbed the stairs, but they broke under {him}.",
                "{s} made a fire on the beach, but the rain put it out."],
         plan=["first we must mend the stairs, and then we can carry up the oil",
               "bring wood and nails, and I will bring the oil"],
         do="they mended the stairs, one by one, and carried the oil to the top.",
         win="that night {n} lit the lamp, and its light shone far over the sea."),
    dict(wish="to bring water to the dry garden", why="the flowers were hanging their heads",
         block="the well was empty",
         tries=["{s} carried water from the pond in {his} hat, but it leaked.",
                "{s} danced for rain, but no cloud came.",
                "{s} dug a hole, but {he} found only sand."],
         plan=["we can dig a little stream from the river to the garden",
               "dig at the foot of the hill, where the grass is green"],
         do="they dug all day long, and in the evening the ground grew wet.",
         win="clear water ran into the garden, and the flowers lifted their heads."),
    dict(wish="to build a house of {his} own", why="{he} wanted to have a warm place for the winter",
         block="the wind always blew it down",
         tries=["{s} made the walls out of leaves, but they flew away.",
                "{s} used dry grass, but the rain washed it away.",
                "{s} put up four sticks and a roof, but everything fell down in the night."],
         plan=["build with stones, and mix the clay with straw",
               "dig deep for the posts, and then the wind cannot push them over"],
         do="they worked for seven days and made everything strong.",
         win="the next storm came, but {n} sat inside {his} new house, warm and dry."),
    dict(wish="to wake the sleeping bell in the tower", why="it had not rung for a hundred years",
         block="the rope was gone and the bell was full of rust",
         tries=["{s} threw stones at the bell, but it made no sound.",
                "{s} called up to the bell, but only {his} own voice came back.",
                "{s} tried to climb the wall, but it was too smooth."],
         plan=["bring oil for the bell and a new rope", "we can make a rope out of old shirts"],
         do="they cleaned the bell until it was shining and tied a new rope to it.",
         win="{n} pulled the rope, and the bell rang out, clear and loud, over the whole land."),
    dict(wish="to catch a falling star", why="{he} wanted to give {his} {elder} something bright",
         block="the stars were much too far away",
         tries=["{s} climbed on the roof with a net, but {he} caught only the wind.",
                "{s} ran after a falling star, but it was gone before {he} got there.",
                "{s} called to the stars all night, but they did not come down."],
         plan=["fill a bowl with water and look into it at night",
               "come to the pond when the wind is still"],
         do="that night the water was as smooth as glass, and all the stars were shining in it.",
         win="\"Now I have a thousand stars,\" said {n}, and {he} showed them to {his} {elder}."),
    dict(wish="to bake a cake for the king", why="the king had been sad for a long time",
         block="the oven was always too hot or too cold",
         tries=["{s} baked a cake with honey, but it was burned.",
                "{s} baked a cake with nuts, but it was as hard as a rock.",
                "{s} baked a cake with cream, but it fell flat."],
         plan=["make a small fire, and wait with an open eye", "count to one hundred, slowly, three times"],
         do="{n} made a small fire and waited, and a sweet smell filled the kitchen.",
         win="the king ate the whole cake, and for the first time in years he laughed."),
]


def plot_wish(rng):
    w = rng.choice(WISHES)
    c = hero(rng, not_kind=w.get("no", "").split())
    c.update(helper(rng))
    c.update({k: w[k] for k in ("wish", "why", "block", "do", "win")})
    c["plan"] = rng.choice(w["plan"])
    c["Plan"] = c["plan"][0].upper() + c["plan"][1:]
    tries = rng.sample(w["tries"], 3)
    n_tries = rng.choice([1, 2, 2, 2, 3])
    link = [["first,", ""], ["then", "the next day,", "after that,"], ["in the end,", "at last,"]]
    t = " ".join((rng.choice(link[i]) + " " + tries[i]) for i in range(n_tries))
    p1 = opening(rng, c) + " " + rng.choice([
        "more than anything, {n} wanted {wish}, because {why}.",
        "{n} had one big wish. {He} wanted {wish}, because {why}.",
        "{n} dreamed of one thing. {He} wanted {wish}.",
        "{n} always wanted {wish}, for {why}.",
        "because {why}, {n} wanted {wish}."])
    p1 += " " + rng.choice(["but {block}.", "there was only one problem: {block}.",
                            "it was not easy, because {block}."])
    p2 = rng.choice(["{time}, {n} made up {his} mind to try. ", "\"I will try,\" said {n}. ",
                     "{time}, {n} began. ", ""]) + t
    p2 += rng.choice([" {n} was [sad|very sad|tired and sad|ready to give up].",
                      " {n} sat down and [cried|sighed].",
                      " \"[It is no use|I will never do it|It is too hard for me],\" {n} [said|sighed|thought].", ""])
    p3 = rng.choice([
        "just then, {a_helper} came [by|along|down the road].", "{a_helper} had seen everything.",
        "that evening, {n} met {a_helper}.", "not far away, {a_helper} was watching."])
    p3 += " " + rng.choice([
        "\"Why are you so sad?\" asked {helper}. {n} [told the whole story|explained everything].",
        "\"What is the matter?\" asked {helper}. \"I want {wish2},\" [said {n}|{n} answered], \"but I cannot.\"",
        "{n} asked {helper} for help.", "\"Can you help me?\" asked {n}."])
    p3 += " " + rng.choice(["\"{Plan},\" said {helper}.",
                            "\"{Plan},\" {helper} [answered|said with a smile].",
                            "{helper} thought for a while. \"{Plan},\" {helper} said.",
                            "\"Do not give up,\" said {helper}. \"{Plan}.\""])
    c["wish2"] = c["wish"].replace("{his}", "my")
    p4 = "{do} {win} " + rng.choice(["\"Thank you!\" said {n} to {helper}.", "\"We did it!\" cried {n}.",
                                     "{n} thanked {helper} with all {his} heart.",
                                     "{n} laughed and danced with joy.", ""])
    p4 += " " + closing(rng, "help")
    return c, [p1, p2, p3, p4]


# ---------------------------------------------------------------------------
# Plot 2: something is lost and found
# ---------------------------------------------------------------------------

LOST = ["red ball", "silver ring", "blue scarf", "little drum", "golden key", "wooden flute", "warm hat",
        "favorite book", "small bell", "green kite", "teddy bear", "new coat", "lucky coin", "music box"]
SEARCH = [("under the bed", "only dust and an old shoe"), ("behind the door", "only a broom"),
          ("in the garden", "only flowers and bees"), ("near the well", "only a wet bucket"),
          ("in the barn", "only hay and a sleeping cow"), ("by the river", "only stones and cool water"),
          ("in the kitchen", "only pots and pans"), ("on the path", "only leaves"),
          ("behind the old wall", "only a snail"), ("in the tall grass", "only a cricket")]
FOUND = [("crow", "in a nest at the top of a tree", "I thought that it was a gift from the sky"),
         ("mouse", "in a little hole in the wall",
          "my children were so cold and sad, and it made them happy"),
         ("goat", "behind the hay", "I wanted to eat it, but it did not taste good"),
         ("puppy", "in a deep hole in the ground", "I only wanted to play"),
         ("squirrel", "inside a hollow tree", "I found it on the path and kept it safe"),
         ("duck", "between the reeds at the pond", "it fell into the water and I pulled it out"),
         ("fox", "at the foot of the hill", "it was so pretty that I could not leave it there"),
         ("hedgehog", "under a pile of leaves", "I did not know that it belonged to you")]


def plot_lost(rng):
    animal, where, excuse = rng.choice(FOUND)
    c = hero(rng, not_kind=(animal,))
    c.update(thing=rng.choice(LOST), animal=animal, where=where, excuse=excuse)
    c["Excuse"] = excuse[0].upper() + excuse[1:]
    s = rng.sample(SEARCH, 3)
    k = rng.choice([1, 2, 2, 3])
    p1 = opening(rng, c) + " " + rng.choice([
        "{n} had a% {thing} and took it everywhere.",
                                             "{his} {elder} had given {him} a% {thing}, and {n} loved it very much.",
        "of all {his} things, {n} loved {his} {thing} the most.",
                                             "the best thing that {n} had was a% {thing}."])
    p1 += " " + rng.choice(["but {time}, the {thing} was gone.",
                            "{time}, {n} woke up and could not find it.",
                            "then, {time}, the {thing} was not in its place."])
    p2 = rng.choice(["\"Where is my {thing}?\" [cried|asked] {n}. ",
                     "\"Oh no!\" cried {n}. \"My {thing} is gone!\" ",
                     "{n} was very sad. ", "{n} looked everywhere. "])
    verbs = ["{s} looked %s, but there {he} found %s.", "{s} searched %s and saw %s.", "%s there was %s."]
    for i in range(k):
        v = rng.choice(verbs)
        pre = "" if i == 0 else rng.choice(["then", "after that,", "next,"]) + " "
        p2 += pre + v % s[i] + " "
    p2 += rng.choice(["{n} asked {his} {elder}, but nobody had seen it.",
                      "it was getting late, but {n} did not give up.",
                      "{n} sat down and began to cry.", ""])
    p3 = rng.choice(["then {n} saw [small marks|tiny footprints|a trail of footprints] on the ground. {he} followed them, and they led to a% {animal}.",
                     "suddenly, {n} heard a soft sound. a% {animal} was hiding {where2}.",
                     "just then, a% {animal} came along and said, \"I think I have something of yours.\""])
    c["where2"] = rng.choice(["behind a bush", "behind a tree", "in the grass"])
    p3 += " " + rng.choice(["the {thing} was {where}.", "and there, {where}, was the {thing}."])
    p3 += " " + rng.choice(["\"I am sorry,\" said the {animal}. \"{Excuse}.\"",
                            "\"{Excuse},\" said the {animal}. \"Please do not be angry.\""])
    p4 = rng.choice(["{n} was not angry at all. \"Thank you for telling me,\" {he} said.",
                     "{n} [smiled|laughed]. \"You can [play with it|borrow it|come and see it] [every Sunday|whenever you like],\" {he} said.",
                     "{n} hugged the {thing} and thanked the {animal}.",
                     "{n} took the {thing} home and brought the {animal} [some bread|a warm blanket|some cake] the next day."])
    p4 += " " + closing(rng, "kind")
    return c, [p1, p2, p3, p4]


# ---------------------------------------------------------------------------
# Plot 3: an animal in trouble is rescued and returns the kindness
# ---------------------------------------------------------------------------

RESCUE = [
    ("bird", "its wing was caught in a thorn bush", "{n} carefully bent the thorns aside and set it free",
     [("{n} got lost in the fog", "the bird flew ahead and showed {him} the way home"),
      ("a wolf was coming through the trees", "the bird sang a warning, and {n} had time to hide")]),
    ("bee", "it had fallen into a bucket of water", "{n} held out a leaf and lifted it out of the water",
     [("{n} had nothing sweet for the feast", "the bee led {him} to a tree full of honey"),
      ("the flowers in the garden stopped growing",
       "the bee came with all its sisters, and soon the garden was in bloom")]),
    ("fish", "it lay on the dry sand", "{n} carried it back to the water with both hands",
     [("{n} dropped a ring into the deep water", "the fish brought it back in its mouth"),
      ("{n}'s boat was lost in the dark", "the fish swam ahead and led the boat to the shore")]),
    ("mouse", "it was stuck in a jar", "{n} turned the jar over and gently pulled it out",
     [("{n} was caught in a net", "the mouse came and cut the ropes with its teeth"),
      ("{n} lost the key to the house", "the mouse crept under the door and brought it out")]),
    ("fawn", "it had fallen into a deep hole", "{n} pushed a log into the hole so that it could climb out",
     [("{n} hurt {his} foot in the woods", "the fawn let {him} lean on its back all the way home"),
      ("the snow was so deep that {n} could not find the path", "the fawn made a path through the snow")]),
    ("swan", "its feet were frozen in the ice",
     "{n} broke the ice with a stone and rubbed its feet until they were warm",
     [("the bridge broke and {n} fell into the lake", "the swan pulled {him} to the shore"),
      ("{n} had to cross the lake and had no boat", "the swan pulled {him} across on a raft")]),
    ("lost kitten", "it was sitting alone in the rain", "{n} wrapped it in a scarf and gave it warm milk",
     [("mice came to eat all the grain", "the kitten chased them away"),
      ("{n} was sick and had to stay in bed", "the kitten lay at {his} feet and kept {him} warm")]),
]


def plot_rescue(rng):
    animal, trouble, rescue, returns = rng.choice(RESCUE)
    c = hero(rng, not_kind=(animal.split()[-1], "cat", "kitten", "deer", "mouse"))
    need, back = rng.choice(returns)
    c.update(animal=animal, short=animal.split()[-1], trouble=trouble, rescue=rescue, need=need, back=back,
             job=rng.choice(["to fetch water", "to gather wood", "to pick berries", "to visit a friend",
                             "to look for mushrooms", "to take a walk"]))
    if rng.random() < 0.3:
        p1 = rng.choice(QUICK) + " went out {job}. " + rng.choice(WEATHER)
    else:
        p1 = opening(rng, c) + " {time}, {n} went out {job}. " + rng.choice(WEATHER)
    p2 = rng.choice(["on the way, {he} heard a [small|weak|sad] voice.", "suddenly, {he} heard a cry.",
                     "{he} had not gone far when {he} stopped."])
    p2 += " " + rng.choice(["it was a% {animal}, and {trouble}.",
                            "{he} looked around and saw a% {animal}. {Trouble}.",
                            "there was a% {animal}. {Trouble}."])
    c["Trouble"] = trouble[0].upper() + trouble[1:]
    p2 += " " + rng.choice(["\"Please help me!\" cried the {short}.", "\"Help! Help!\" it cried.",
                            "\"Do not be afraid,\" said {n}.",
                            "{n} felt sorry for the {short}.", "\"You poor thing!\" said {n}."])
    p2 += " {rescue}. " + rng.choice(["\"Thank you,\" said the {short}. \"I will never forget this.\"",
                                      "\"You are very kind,\" said the {short}. \"One day I will help you too.\"",
                                      "the {short} thanked {him} and [was gone|went on its way]."])
    p2 += " " + rng.choice(["{n} smiled. \"How could such a small animal help me?\" {he} thought.", "", ""])
    p3 = rng.choice(["some days later,", "a few weeks later,", "when winter came,", "not long after that,",
                     "the next month,"])
    p3 += " {need}. " + rng.choice(["\"What can I do now?\" [thought|said] {n}.",
                                    "{n} did not know what to do.",
                                    "{n} was [frightened|worried|very unhappy].", ""])
    p3 += " " + rng.choice(["then the {short} came, and {back}.",
                            "but the {short} had not forgotten. {Back}.",
                            "just then, {n} heard a voice that {he} knew. It was the {short}! {Back}."])
    c["Back"] = back[0].upper() + back[1:]
    p4 = rng.choice(["\"You helped me, and now I have helped you,\" said the {short}.",
                     "\"Thank you, my friend,\" said {n}.",
                     "\"Now we are even,\" said the {short} and laughed.", ""]) + " " + closing(rng, "kind")
    return c, [p1, p2, p3, p4]


# ---------------------------------------------------------------------------
# Plot 4: two friends quarrel and make up
# ---------------------------------------------------------------------------

QUARREL = [
    ("the last piece of cake", "it fell on the ground, and a hungry bird ate it",
     "They baked a new cake and cut it into two equal pieces"),
    ("the swing", "the rope broke, and they both fell into the grass",
     "They mended the rope and took turns"),
    ("a big red apple", "it rolled down the hill and into the river",
     "They went to the apple tree and picked one for each"),
    ("a wooden boat", "the wind blew it out onto the lake",
     "They waded in together, pulled it back and sailed it side by side"),
    ("a warm blanket", "it tore into two pieces", "They sewed it together, and it was big enough for both"),
    ("a blue ball", "it flew over the wall and was gone",
     "They climbed over the wall together and found it in the grass"),
    ("a jar of honey", "it tipped over, and the ants came to eat it",
     "They found a new jar and ate from it with two spoons"),
    ("a drum", "it rolled away and got a hole",
     "They mended it, and one played the drum while the other sang"),
    ("a kite", "the string broke, and the kite flew into a tree",
     "Then they fetched a ladder. One held it, and the other climbed up to get the kite"),
]


def plot_quarrel(rng):
    c = hero(rng)
    c.update(friend(rng, c))
    thing, lose, mend = rng.choice(QUARREL)
    c.update(thing=thing, lose=lose, mend=mend, short=re.sub(r"^a (\w+ )*?(?=\w+$)", "the ", thing))
    if thing.startswith("a jar"):
        c["short"] = "the honey"
    if thing.startswith("the last"):
        c["short"] = "the cake"
    p1 = opening(rng, c) + " " + rng.choice([
        "{his} best friend was {fn} the {fkind}.", "{n} had a friend, a% {fkind} [named|called] {fn}.",
        "next door lived {fn}, a% {fkind}, and the two were friends."])
    p1 += " " + rng.choice(["they [played|laughed|worked] together every day.",
                            "they did everything together.", ""])
    p2 = rng.choice(["{time}, they both wanted {thing}.", "but {time}, they began to fight about {thing}.",
                     "{time}, there was trouble, because both of them wanted {thing}."])
    p2 += " " + rng.choice(["\"It is mine!\" said {n}. \"No, it is mine!\" said {fn}.",
                            "\"I saw it first!\" shouted {fn}. \"But I need it more!\" shouted {n}.",
                            "\"Give it to me!\" said {n}. \"Never!\" said {fn}."])
    p2 += " " + rng.choice(["they pulled and pushed, and then {lose}.",
                            "{n} pulled on one side and {fn} pulled on the other. Suddenly, {lose}.",
                            "nobody wanted to give in. In the end, {lose}."])
    p3 = rng.choice(["now neither of them had it.", "they looked at each other and did not say a word.",
                     "{fn} began to cry, and {n} went home alone."])
    p3 += " " + rng.choice(["that evening, {n} felt very lonely.", "{n} could not sleep that night.",
                            "{n} felt [bad|sad and sorry]."])
    p3 += " " + rng.choice(["the next morning, {he} went to {fn}.",
                            "so {he} walked to {fn}'s house and knocked on the door.",
                            "early the next day, {he} went to see {fn}."])
    p3 += " " + rng.choice(["\"I am sorry,\" said {n}. \"I was [unkind|selfish|wrong].\" \"I am sorry too,\" said {fn}.",
                            "\"Can we be friends again?\" {he} asked. \"Of course,\" said {fn} and hugged {him}.",
                            "\"You are more important to me than {short},\" said {n}. {fn} smiled at {him}."])
    p4 = "{mend}. " + rng.choice(["it was much more fun that way.",
                                  "then they [laughed|laughed and laughed].", ""]) + " "
    p4 += closing(rng, "share").replace("{thing}", "{short}")
    return c, [p1, p2, p3, p4]


# ---------------------------------------------------------------------------
# Plot 5: a fear is overcome because someone needs help
# ---------------------------------------------------------------------------

FEARS = [
    ("the dark", "at night {he} always kept a candle burning",
     "the candle went out, and {fn} was lost in the dark woods",
     "{n} walked through the dark, step by step, and called {fn}'s name",
     "the stars gave a little light, and soon {he} could see the trees", "mole badger"),
    ("thunder", "{he} hid under the bed in every storm",
     "a storm came up while {fn} was alone in the field",
     "{n} ran through the rain, although the thunder was loud",
     "the thunder rolled over the hills, but it did not hurt {him}", ""),
    ("high places", "{he} never climbed anything taller than a chair",
     "{fn} was stuck at the top of a tall tree",
     "{n} climbed up, one branch after another, and did not look down",
     "the branches were strong and held {him} well", "squirrel cat kitten monkey dragon"),
    ("deep water", "{he} never went near the lake", "{fn}'s boat began to sink in the middle of the lake",
     "{n} took the old rowing boat and rowed as fast as {he} could",
     "the water rocked the boat, but it was not so bad",
     "otter frog turtle beaver fisherman sailor dragon"),
    ("the old cave", "{he} always took the long way around it",
     "{fn} went into the cave and did not come back",
     "{n} took a lantern and went inside",
     "the cave was full of shining stones, and there was no monster at all", "bear dragon mole"),
    ("strangers", "{he} hid when someone knocked on the door",
     "{fn} was sick and needed medicine from the town",
     "{n} walked to the town and asked a stranger for the way",
     "the stranger was friendly and went along with {him}", "knight"),
    ("ghosts", "{he} was sure that one lived in the old mill", "{fn} was locked in the old mill",
     "{n} went up to the mill and opened the heavy door",
     "something white moved, but it was only an old curtain in the wind", "miller"),
]


def plot_fear(rng):
    fear, sign, crisis, act, see, no = rng.choice(FEARS)
    c = hero(rng, not_kind=no.split())
    c.update(friend(rng, c))
    c.update(fear=fear, sign=sign, crisis=crisis, act=act, see=see)
    c["See"] = see if see.startswith("{") else see[0].upper() + see[1:]
    p1 = opening(rng, c) + " " + rng.choice(["{n} was afraid of {fear}, and {sign}.",
                                             "there was one thing that {n} did not like at all. {He} was afraid of {fear}.",
                                             "but {n} had a secret. {He} was afraid of {fear}."])
    p1 += " " + rng.choice(["\"Will I ever be brave?\" {n} asked {his} {elder}. \"[One day you will|You are braver than you think|Just wait and see],\" said {his} {elder}. {his} best friend was {fn} the {fkind}.",
                            "{his} friend {fn} the {fkind} never laughed at {him} about it.",
                            "the others laughed at {him}, but not {fn} the {fkind}.",
                            "only {his} friend {fn} knew about it."])
    p2 = rng.choice(["then, {time}, {crisis}.", "{time}, {crisis}.",
                     "but {time}, something happened: {crisis}."])
    p2 += " " + rng.choice(["\"Help!\" called {fn}. \"Is anybody there?\"",
                            "there was nobody else who could help.",
                            "{n} looked around, but nobody else was near.", ""])
    p2 += " " + rng.choice(["{n}'s heart beat fast.", "{n} was shaking.", "{n} took a deep breath.",
                            "\"I am afraid,\" thought {n}, \"but {fn} needs me.\"",
                            "\"I must help,\" said {n}."])
    p3 = "{act}. {See}. " + rng.choice(["at last, {he} found {fn}.", "then {he} reached {fn}.",
                                        "and there was {fn}!"])
    p3 += " " + rng.choice(["\"You came!\" said {fn}. \"But you are afraid of {fear}!\" \"I was,\" said {n}, \"but [I forgot to be afraid|you were more important].\"",
                            "\"Thank you, {n}!\" said {fn}. \"You are the bravest {kind} that I know.\"",
                            "{fn} hugged {him} and would not let go.",
                            "together they went home, hand in hand." if c["group"] != "animal" else "together they went home, side by side."])
    return c, [p1, p2, p3, closing(rng, "brave")]


# ---------------------------------------------------------------------------
# Plot 6: a gift or a meal is made, something is missing, a trade helps
# ---------------------------------------------------------------------------

MAKES = [
    ("bake a birthday cake", "cake", "flour", "the miller", "a basket of apples", "It was sweet and soft"),
    ("cook a big pot of soup", "soup", "carrots", "the farmer", "a jar of honey", "It was hot and good"),
    ("sew a warm coat", "coat", "thread", "the tailor", "a dozen eggs", "It was soft and fit very well"),
    ("knit a long scarf", "scarf", "wool", "the shepherd", "a loaf of bread", "It was as red as a rose"),
    ("paint a picture", "picture", "blue paint", "the painter", "a bunch of flowers",
     "It showed the sky and the sea"),
    ("build a chair", "chair", "nails", "the blacksmith", "a bag of nuts", "It was strong and beautiful"),
    ("make a wooden flute", "flute", "good wood", "the woodcutter", "a cheese",
     "It sounded like a bird in spring"),
    ("bake an apple pie", "pie", "sugar", "the baker", "a bucket of milk",
     "It smelled of apples and summer"),
    ("make a paper lantern", "lantern", "paper", "the old teacher", "a pot of jam",
     "It glowed like a little moon"),
]
PRICES = ["mend the fence", "sweep the yard", "carry the water", "feed the hens", "stack the wood",
          "find the lost lamb",
          "wash the windows", "pull the weeds"]


def plot_make(rng):
    make, thing, lack, owner, trade, praise = rng.choice(MAKES)
    c = hero(rng, not_kind=(owner.split()[-1],))
    c.update(make=make, thing=thing, lack=lack, owner=owner, trade=trade, praise=praise,
             price=rng.choice(PRICES))
    c["it"] = "them" if lack in ("carrots", "nails") else "it"
    c["was"] = "were" if c["it"] == "them" else "was"
    who = rng.choice(["{his} {elder}", "{his} {elder}", "{his} best friend {fn}", "the old neighbor",
                      "the new teacher"])
    c.update(friend(rng, c))
    c["who"] = who
    p1 = opening(rng, c) + " " + rng.choice([
        "it was the birthday of {who}, and {n} wanted to {make}.",
                                             "{time}, {n} made up {his} mind to {make} for {who}.",
        "{who} had been sad for days, so {n} wanted to {make} as a surprise.",
        "\"I will {make} for {who2},\" said {n} {time}."])
    c["who2"] = who.replace("{his}", "my")
    p2 = rng.choice(["but when {he} began, there {was} no {lack} in the house.",
                     "everything was ready, but there {was} no {lack} left.",
                     "{he} looked on every shelf, but {he} could not find any {lack}."])
    p2 += " " + rng.choice(["so {n} went to {owner}.", "\"I will ask {owner},\" thought {n}.",
                            "\"Oh dear!\" said {n}. {He} put on {his} hat and went to {owner}."])
    p2 += " " + rng.choice(["\"May I have some {lack}?\" {he} asked.",
                            "\"Could you please give me some {lack}?\" asked {n}."])
    if rng.random() < 0.5:
        p2 += " " + rng.choice(["\"Yes,\" said {owner}, \"if you [will|] {price} for me.\"",
                                "\"Of course, but first you must {price},\" said {owner}."])
        p3 = rng.choice(["{n} worked hard all morning.", "{n} did it gladly and sang a song.",
                         "it was hard work, but {n} did not stop until it was done."])
        p3 += " then {owner} gave {him} the {lack}, and {n} ran home."
    else:
        p2 += " " + rng.choice(["\"I will trade {it} for {trade},\" said {owner}.",
                                "\"If you bring me {trade}, I will give you some,\" said {owner}."])
        p3 = rng.choice(["{n} went home and came back with {trade}.", "luckily, {n} had {trade} at home.",
                         "it took a while, but {n} brought {trade}."])
        p3 += " {owner} was pleased and gave {him} the {lack}."
    p3 += " " + rng.choice(["now {n} could {make}.", "all afternoon {n} worked on the {thing}.",
                            "by evening, the {thing} was finished."]) + " {praise}."
    p4 = rng.choice(["when {who} saw the {thing}, there were tears of joy.",
                     "\"Is that for me?\" asked {who}. \"Yes,\" said {n}.",
                     "{n} gave the {thing} to {who}. \"This is the best {thing} in the world!\" said {who}.",
                     "{who} was so happy that {n} had to laugh."])
    p4 += " " + rng.choice(["they invited {owner} too, and they [all|] sat together until late.", "", ""])
    p4 += " " + closing(rng, "gift")
    return c, [p1, p2, p3, p4]


# ---------------------------------------------------------------------------
# Plot 7: a proud animal loses a contest to a humble one
# ---------------------------------------------------------------------------

CONTESTS = [
    ("race to the old mill", "the fastest",
     "{fn} ran so fast that {fhe} was soon out of sight. {fhe2} lay down under a tree and fell asleep",
     "{n} walked on and on without stopping", "when {fn} woke up, {n} was already at the mill"),
    ("race around the lake", "the fastest",
     "{fn} stopped to look at {fhis} face in the water and forgot the time",
     "{n} kept going, one step after another", "when {fn} looked up, {n} was already at the end"),
    ("singing contest", "the best singer", "{fn} sang so loudly that everyone covered their ears",
     "{n} sang a quiet song about home", "the judges wiped their eyes and gave the prize to {n}"),
    ("cooking contest", "the best cook", "{fn} put everything into one pot, and it smelled terrible",
     "{n} made a simple soup and tasted it with care", "the judges ate every drop of {n}'s soup"),
    ("tower building contest", "the best builder",
     "{fn} built a very high tower, but {fhe} did it in a hurry, and it fell down",
     "{n} laid one stone on top of another with care",
     "in the evening only {n}'s tower was still standing"),
    ("dancing contest", "the best dancer", "{fn} jumped so high and turned so fast that {fhe} fell over",
     "{n} danced with small steps and a happy face", "everyone clapped, and {n} won the golden ribbon"),
    ("riddle contest", "the cleverest of all",
     "{fn} shouted an answer before the riddle was finished, and it was wrong",
     "{n} listened to the end and thought for a long time",
     "\"The answer is the wind,\" said {n}, and it was right"),
]


def plot_contest(rng):
    c = hero(rng, want=("animal",), not_kind=("pony",))
    contest, best, fail, work, win = rng.choice(CONTESTS)
    while True:
        c.update(friend(rng, c))
        # A boast about speed only fits an animal that can run.
        if best != "the fastest" or c["fkind"] not in ("turtle", "mole", "frog", "hedgehog", "mouse",
                                                       "elephant", "piglet"):
            break
    c.update(contest=contest, best=best, fail=fail, work=work, win=win, fhe2=c["fHe"])
    c["Work"] = work
    p1 = opening(rng, c) + " " + rng.choice(["in the same place lived {fn}, a proud {fkind}.",
                                             "not far away lived a proud {fkind} [named|called] {fn}.",
                                             "{n} had a neighbor, a% {fkind} [named|called] {fn}, who was very proud."])
    p1 += " " + rng.choice(["\"I am {best}!\" {fn} said every day.",
                            "{fn} always boasted that {fhe} was {best}.",
                            "\"Nobody is better than I am,\" said {fn}. \"I am {best}.\""])
    p2 = rng.choice(["{time}, there was a% {contest}.", "{time}, the animals held a% {contest}.",
                     "so the old owl called everyone to a% {contest}."])
    p2 += " " + rng.choice(["{n} wanted to take part, and {fn} laughed. \"You? You will never win!\"",
                            "\"I will win without even trying,\" said {fn}. {n} said nothing.",
                            "\"Do you want to lose against me?\" {fn} asked {n}. \"I will do my best,\" said {n}."])
    p2 += " " + rng.choice(["everybody came to watch.", "", WEATHER[0]])
    p3 = rng.choice(["{fail}. But {work}.", "{Work}. {fail}.",
                     "the owl gave the sign, and it began. {fail}. {n} did not laugh. {Work}."])
    c["Win"] = win if win[0] in "{\"" else win[0].upper() + win[1:]
    p3 += " {Win}." if win.startswith(("when", "in the")) else " in the end, {win}."
    p4 = rng.choice(["{fn} [was very quiet|hung {fhis} head|did not know what to say]. \"Well done,\" {fhe} said at last.",
                     "\"How did you do that?\" asked {fn}. \"I [took my time|only did my best|never gave up],\" said {n}.",
                     "everyone cheered for {n}, and {fn} shook {n}'s paw." if c["kind"] not in ("frog",
                                                            "goat", "lamb", "deer", "turtle", "piglet",
                                                            "elephant",
                                                            "dragon") else "everyone cheered for {n}."])
    return c, [p1, p2, p3, p4 + " " + closing(rng, "proud")]


# ---------------------------------------------------------------------------
# Plot 8: a journey
# ---------------------------------------------------------------------------

GOALS = [
    ("see the sea", "the sea", "It was blue and wide, and it had no end"),
    ("see the city", "the city", "There were tall towers and bright shops and music in every street"),
    ("find the end of the rainbow", "the end of the rainbow",
     "There was no gold, but a meadow full of flowers in every color"),
    ("visit the queen", "the palace of the queen",
     "The queen gave {him} a cup of tea and listened to all {his} stories"),
    ("see the snow", "the snow", "It was white and cold, and it danced in the air"),
    ("find the garden of the moon", "the garden of the moon",
     "Silver flowers opened in the night and made soft music"),
    ("meet the old dragon of the north", "the cave of the dragon",
     "The dragon was not wild at all, but only wanted someone to talk to"),
    ("hear the singing trees", "the singing trees",
     "Their leaves sang softly, like a hundred little bells"),
]
MEET = [
    ("a hungry dog", "the dog", "gave it half of {his} bread", "carried {him} over a muddy field",
     "something to eat"),
    ("a tired donkey", "the donkey", "took the heavy sack off its back", "let {him} ride on its back",
     "a rest"),
    ("a lost duckling", "the duckling", "brought it back to its mother",
     "showed {him} a safe way across the pond", "my mother"),
    ("an old woman", "the old woman", "carried her basket up the hill",
     "gave {him} a lantern for the night", "a strong hand"),
    ("a sad giant", "the giant", "told him a funny story", "lifted {him} over the high rocks", "a friend"),
    ("a cold lizard", "the lizard", "put it on a warm stone in the sun", "told {him} the shortest way",
     "some sun"),
    ("a thirsty horse", "the horse", "brought it water from the stream", "took {him} across the wide plain",
     "some water"),
]


def plot_journey(rng):
    goal, place, sight = rng.choice(GOALS)
    no = {"see the sea": ("fisherman", "sailor"), "meet the old dragon of the north": ("dragon", "knight"),
          "visit the queen": ("princess", "prince")}.get(goal, ())
    c = hero(rng, not_kind=no + ("dog", "puppy"))
    if goal == "see the sea" and "sea" in c["in_home"] or "island" in c["in_home"]:
        c["in_home"], c["home"] = "in a green valley", "the valley"
    if goal == "see the city" and c["home"] == "the town":
        c["in_home"], c["home"] = "in a green valley", "the valley"
    m1, m2 = rng.sample(MEET, 2)
    c.update(goal=goal, place=place, sight=sight, a1=m1[0], t1=m1[1], give1=m1[2], back1=m1[3], need1=m1[4],
             a2=m2[0], t2=m2[1], give2=m2[2], back2=m2[3], need2=m2[4])
    p1 = opening(rng, c) + " " + rng.choice(["{n} had never been far from home, and {he} wanted to {goal}.",
                                             "{n} had heard many stories about {place}, and {he} wanted to go there.",
                                             "{his} {elder} often told {him} about {place}. \"One day I will go there,\" said {n}."])
    p1 += " " + rng.choice(["so, {time}, {he} packed some bread and cheese and set out.",
                            "{time}, {n} put on {his} boots and started to walk." if c["group"] != "animal" else "{time}, {n} said goodbye and started to walk.",
                            "{time}, {he} [kissed|hugged] {his} {elder} and went out into the world."])
    p2 = rng.choice(["on the road, {n} met {a1}.", "after an hour, {he} met {a1}.",
                     "soon {n} came to a bridge. There stood {a1}."])
    p2 += " " + rng.choice(["\"Please help me,\" said {t1}. \"I need {need1}.\"",
                            "\"Can you help me?\" asked {t1}. \"I need {need1}.\""])
    p2 += " " + rng.choice(["{n} {give1}.",
                            "{n} did not think twice and {give1}."]) + " " + rng.choice(["{t1} thanked {him} and {back1}.", "to thank {him}, {t1} {back1}."])
    if rng.random() < 0.5:
        p2 += " " + rng.choice(["then {n} met {a2}, who needed {need2b}.",
                                "later, {he} met {a2}, who was looking for {need2b}."]) + " {n} {give2}, and {t2} {back2}."
    c["need2b"] = m2[4].replace("my mother", "its mother")
    p3 = rng.choice(["after three days, {n} came to {place}.", "at last, {n} reached {place}.",
                     "when the sun went down, {n} came to {place}."])
    p3 += " {sight}. " + rng.choice(["\"How beautiful!\" whispered {n}.",
                                     "{n} had never seen anything like it.",
                                     "{n} stood still for a long time.",
                                     "\"I will remember this forever,\" said {n}."])
    p3 += " " + rng.choice(["then {he} went back home and told everyone about it.",
                            "a week later, {n} was home again, and {his} {elder} hugged {him}.",
                            "when {he} came home, {he} told the story again and again."])
    return c, [p1, p2, p3 + " " + closing(rng, "home")]


# ---------------------------------------------------------------------------
# Plot 9: a strange noise or sight has a simple cause
# ---------------------------------------------------------------------------

MYSTERY = [
    ("a strange noise came from the roof", "It sounded like tap, tap, tap",
     "a woodpecker was looking for its breakfast", "a monster with hard shoes"),
    ("a strange light moved between the trees", "It went up and down", "a hundred fireflies were dancing",
     "a ghost with a lamp"),
    ("something moaned in the chimney", "It sounded long and sad",
     "the wind was blowing over an old bottle", "a lonely ghost"),
    ("big footprints were in the snow", "They went all the way around the house",
     "a little hare in very big boots was playing there", "a giant"),
    ("the milk was gone from the bowl", "It was the third time that week",
     "a baby hedgehog was sitting behind the bowl and licking its nose", "a thief"),
    ("something knocked on the window", "It knocked three times and then three times more",
     "a branch of the apple tree was moving in the wind", "a robber"),
    ("a deep voice came out of the well", "It said the same words again and again",
     "it was only an echo of {n}'s own voice", "a water spirit"),
    ("something was moving under the leaves", "It went left and right",
     "a family of mice was carrying nuts to its nest", "a snake"),
]


def plot_mystery(rng):
    odd, more, cause, fear = rng.choice(MYSTERY)
    c = hero(rng, not_kind=("mouse", "hedgehog", "mole"))
    c.update(friend(rng, c))
    c.update(odd=odd, more=more, cause=cause, scare=fear)
    p1 = opening(rng, c) + " " + rng.choice(["one night, {odd}.", "one evening, {odd}.",
                                             "one dark night, {n} woke up, because {odd}." if odd.split()[0] in ("something", "a") else "one morning, {odd}."])
    p1 += " {more}. " + rng.choice(["\"What is that?\" whispered {n}.",
                                    "{n} [stood very still|held {his} breath].",
                                    "{n} [felt cold|pulled the blanket over {his} head]."])
    p2 = rng.choice(["{he} ran to {fn} the {fkind}. \"Come quickly!\" {he} cried. \"I think it is {scare}!\"",
                     "\"It must be {scare},\" thought {n}. {He} woke {his} friend {fn} and told {fhim} about it.",
                     "\"That is {scare}!\" said {his} friend {fn} the {fkind}. \"We must run away!\""])
    p2 += " " + rng.choice(["\"Let us look together,\" said {fn}." if "run away" not in p2 else "\"No,\" said {n}. \"Let us look first.\"",
                            "they took a lantern and a big spoon and went to look." ,
                            "they held on to each other and went to look."])
    p2 += " " + rng.choice(["step by step, they came closer.", "their hearts were beating fast.",
                            "the floor creaked under their feet." if "snow" not in odd and "leaves" not in odd and "trees" not in odd and "well" not in odd else "it was very quiet.", ""])
    p3 = rng.choice(["then they saw it: {cause}!",
                     "{n} lifted the lantern, and they saw that {cause}." if "lantern" in p2 else "{n} looked closely and saw that {cause}.",
                     "and what did they find? {Cause}."])
    c["Cause"] = cause[0].upper() + cause[1:]
    p3 += " " + rng.choice(["\"So that is your {scare2}!\" said {fn}, and they laughed [until their bellies hurt|for a long time].",
                            "they looked at each other and began to laugh.",
                            "\"And we were so afraid!\" said {n}. They both laughed."])
    c["scare2"] = re.sub(r"^a ", "", fear)
    p3 += " " + rng.choice(["then they drank [hot milk|warm tea] and went back to bed." if "footprints" not in odd else "then they went home and drank warm tea.", ""])
    return c, [p1, p2, p3, closing(rng, "calm")]


# ---------------------------------------------------------------------------
# Plot 10: a seed and the virtue of waiting
# ---------------------------------------------------------------------------

SEEDS = [("apple tree", "red apples"), ("cherry tree", "sweet cherries"), ("sunflower", "a golden face"),
         ("rose bush", "white roses"),
         ("bean plant", "long green beans"), ("pear tree", "yellow pears"),
         ("pumpkin plant", "round orange pumpkins")]


def plot_seed(rng):
    c = hero(rng)
    c.update(helper(rng))
    plant, fruit = rng.choice(SEEDS)
    c.update(plant=plant, short=plant.split()[-1], fruit=fruit)
    p1 = opening(rng, c) + " " + rng.choice(["{time}, {a_helper} gave {him} a little seed.",
                                             "{time}, {n} found a little seed on the path.",
                                             "for {his} birthday, {n} got a tiny seed from {his} {elder}."])
    p1 += " " + rng.choice(["\"Plant it and wait,\" said {giver}.",
                            "\"What can come out of such a small thing?\" {n} wondered."])
    c["giver"] = c["helper"] if "a_helper" in p1 else "{his} {elder}" if "birthday" in p1 else "{his} {elder}"
    p2 = rng.choice(["{n} put the seed into the ground and gave it water.",
                     "{n} dug a small hole behind the house and planted the seed."])
    p2 += " " + rng.choice(["the next day, {he} looked, but there was nothing to see.",
                            "every morning {he} ran outside to look, but nothing grew.",
                            "a week went by, and nothing happened."])
    p2 += " " + rng.choice(["\"Grow, little seed!\" said {n}, but the seed did not hurry.",
                            "{n} wanted to dig it up, but {his} {elder} said, \"Give it time.\"",
                            "\"Maybe it is asleep,\" said {his} {elder}. \"Be patient.\"",
                            "{n} sang to it, and still nothing happened."])
    p3 = rng.choice(["then came a night of rain, and in the morning there was a tiny green leaf.",
                     "one warm morning, a small green leaf came out of the ground.",
                     "when spring came, a little green point looked out of the ground."])
    p3 += " " + rng.choice(["{n} jumped for joy.", "\"It is alive!\" cried {n}.",
                            "{n} ran to tell everyone."])
    p3 += " " + rng.choice(["{he} built a little fence around it, so that nobody could step on it.",
                            "when it was cold, {n} put a blanket around it.",
                            "when it was dry, {n} brought water from the well.", ""])
    p3 += " " + rng.choice(["the {short} grew and grew.", "week after week, the {short} grew taller."])
    p4 = rng.choice(["in the end, it was a fine {plant} with {fruit}.",
                     "at last, it was a big {plant} with {fruit}.",
                     "and one day, there stood a% {plant} with {fruit}."])
    p4 += " " + rng.choice(["{n} invited everyone, and they had a little feast.",
                            "{n} shared what {he} had with all the neighbors.",
                            "people came from far away to see it."])
    return c, [p1, p2, p3, p4 + " " + closing(rng, "patience")]


# ---------------------------------------------------------------------------
# Plot 11: a newcomer is lonely
# ---------------------------------------------------------------------------

GAMES = ["hide and seek", "catch", "pirates", "a game with a ball", "knights and dragons", "tag"]
GIFTS = [("could whistle like a bird", "taught them all to whistle"),
         ("knew a hundred stories", "told them a new story every evening"),
         ("could make boats out of paper", "made a paper boat for everyone"),
         ("played the fiddle", "played until everyone danced"),
         ("knew the names of all the stars", "showed them the stars at night"),
         ("could draw wonderful pictures", "drew a picture of every one of them")]


def plot_newcomer(rng):
    c = hero(rng, want=("child", "animal"))
    c.update(friend(rng, c))
    skill, show = rng.choice(GIFTS)
    c.update(skill=skill, show=show, game=rng.choice(GAMES))
    c["others"] = "children" if c["group"] == "child" else "animals"
    p1 = opening(rng, c) + " " + rng.choice(["{time}, a new {fkind} [named|called] {fn} came to live nearby.", "{time}, a stranger arrived. It was {fn}, a% {fkind} from far away."])
    p1 += " " + rng.choice(["{fn} knew nobody and was very lonely.",
                            "{fn} sat alone under a tree and did not speak.",
                            "the other {others} did not want to play with {fhim}."])
    p1 += " " + rng.choice(["\"{fHe} looks different,\" they said.",
                            "\"We do not know {fhim},\" said the others.", ""])
    p2 = rng.choice(["{n} saw how sad {fn} was.", "but {n} thought, \"I would not like to be alone.\"",
                     "\"That is not fair,\" thought {n}."])
    p2 += " " + rng.choice(["{he} walked over and sat down next to {fhim}.",
                            "{he} took two pieces of cake and went over to {fhim}.",
                            "{he} picked a flower and gave it to {fhim}."])
    p2 += " " + rng.choice(["\"Hello, I am {n},\" {he} said. \"Do you want to play {game}?\"",
                            "\"Would you like to play {game} with me?\" {he} asked.",
                            "\"What is your name?\" {he} asked. \"I am {fn},\" said the {fkind} very softly. \"Come and play {game} with me!\" said {n}."])
    p2 += " " + rng.choice(["{fn} smiled for the first time.", "{fn}'s eyes lit up.",
                            "\"Yes, please!\" said {fn}."])
    p3 = rng.choice(["they played all afternoon.", "they played until the sun went down.",
                     "soon they were laughing together."])
    p3 += " then {n} found out that {fn} {skill}. " + rng.choice(["{fhe} {show}.",
                                                            "the next day, {fhe} {show}.",
                                                            "when the other {others} heard about it, they came closer, and {fn} {show}."])
    p3 += " " + rng.choice(["now everybody wanted to be {fhis} friend.",
                            "\"We are sorry,\" said the others. \"Please stay with us.\"",
                            "after that, nobody was alone anymore."])
    return c, [p1, p2, p3, closing(rng, "kind")]


# ---------------------------------------------------------------------------
# Plot 12: a mishap, a lie, and the truth
# ---------------------------------------------------------------------------

MISHAPS = [("broke the blue vase", "the blue vase", "the cat"),
           ("ate all the cookies", "the cookies", "the mice"),
           ("left the gate open, and the sheep ran away", "the open gate", "the wind"),
           ("spilled ink on the big map", "the map", "the dog"),
           ("lost the key to the barn", "the key", "the crow"),
           ("let the fire go out", "the fire", "the rain"),
           ("stepped on the young plants", "the plants", "the goat")]


def plot_truth(rng):
    did, about, blame = rng.choice(MISHAPS)
    c = hero(rng, want=("child", "animal"),
             not_kind=("princess", "prince", "cat", "dog", "goat", "mouse", "kitten", "puppy"))
    c.update(did=did, about=about, blame=blame)
    if rng.random() < 0.25:
        p1 = rng.choice(QUICK) + " was playing [at home|in the house|in the yard]. {he} was in a hurry and {did}."
    else:
        p1 = opening(rng, c) + " " + rng.choice(["{time}, {n} was playing and {did}.",
                                                 "{time}, {n} was not careful and {did}."])
    p1 += " " + rng.choice(["nobody had seen it.", "{n} looked around. Nobody was there.",
                            "\"Oh no!\" said {n}. \"What now?\""])
    p2 = rng.choice(["when {his} {elder} came home and asked about {about}, {n} said, \"It was {blame}.\"",
                     "\"Who did this?\" asked {his} {elder}. {n} looked at the floor. \"It was {blame},\" {he} said.",
                     "in the evening {his} {elder} asked what had happened. \"It was {blame},\" said {n} quickly."])
    p2 += " " + rng.choice(["{his} {elder} said nothing.", "\"Is that so?\" said {his} {elder}.",
                            "\"I see,\" said {his} {elder} quietly."])
    p2 += " " + rng.choice(["but {n} felt a heavy stone in {his} belly.",
                            "but the lie made {n} very unhappy.", "that night, {n} could not sleep."])
    p2 += " " + rng.choice(["even {his} supper did not taste good.",
                            "{he} turned from one side to the other.", "", ""])
    p3 = rng.choice(["at last, {he} got up and went to {his} {elder}.",
                     "in the morning, {n} could not keep quiet any longer.",
                     "then {n} made up {his} mind."])
    p3 += " " + rng.choice(["\"It was not {blame},\" {he} said. \"It was me. I am so sorry.\"",
                            "\"I told you a lie,\" {he} said with tears in {his} eyes. \"It was me.\""])
    p3 += " " + rng.choice(["{his} {elder} hugged {him}. \"Thank you for telling me,\" {said2}.",
                            "\"I knew it,\" said {his} {elder}, \"but I am proud that you told me.\"",
                            "{his} {elder} smiled. \"That was very brave of you,\" {said2}."])
    eh = "he" if c["elder"] in ("father", "grandfather", "uncle") else "she"
    c["said2"] = eh + " said"
    p3 += " " + rng.choice(["together they put everything right again.",
                            "then they drank warm milk together.", "the heavy feeling was gone.", ""])
    return c, [p1, p2, p3 + " " + closing(rng, "truth")]


PLOTS = [plot_wish, plot_wish, plot_wish, plot_lost, plot_rescue, plot_quarrel, plot_fear, plot_make,
         plot_contest, plot_journey, plot_mystery, plot_seed, plot_newcomer, plot_truth]


def story(rng):
    """One story of 80 to 180 words."""
    while True:
        ctx, paragraphs = rng.choice(PLOTS)(rng)
        # Join some paragraphs, so that the layout does not give away the plot.
        text = paragraphs[0]
        for p in paragraphs[1:]:
            text += (" " if rng.random() < 0.35 else "\n") + p
        text = tidy(expand(rng, text, ctx))
        if 80 <= len(text.split()) <= 180:
            return text


# ---------------------------------------------------------------------------
# Tokenizer
# ---------------------------------------------------------------------------

LLAMA3_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_tokenizer(texts):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_SPLIT), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder = decoders.ByteLevel()
    # The whole byte alphabet is in the vocabulary, so any text can be encoded.
    trainer = trainers.BpeTrainer(vocab_size=VOCAB, special_tokens=[BOS, EOS], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(texts, trainer)
    tok.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, tok.token_to_id(BOS))])
    return tok


def save_tokenizer(tok, out):
    tok.save(os.path.join(out, "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS,
              "clean_up_tokenization_spaces": False, "model_max_length": 512,
              "model_input_names": ["input_ids", "attention_mask"],
              "added_tokens_decoder": {
                  str(tok.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False,
                                            "rstrip": False, "single_word": False, "special": True}
                  for t in (BOS, EOS)}}
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")


def pack(encoded, bos, eos):
    """Sequences of SEQ tokens. Each starts with a whole story (BOS ... EOS)
    and is filled with the start of the next ones; a story that does not fit
    is cut there and begins the next sequence again, whole."""
    import numpy as np
    rows, i = [], 0
    while i < len(encoded):
        row, j = [], i
        while len(row) < SEQ and j < len(encoded):
            row += [bos] + encoded[j] + [eos]
            j += 1
        if len(row) < SEQ:
            break
        # The last story of the row was cut unless it ended exactly at SEQ.
        i = j if len(row) == SEQ or j == i + 1 else j - 1
        rows.append(row[:SEQ])
    return np.array(rows, dtype=np.int64)


# ---------------------------------------------------------------------------
# Model
# ---------------------------------------------------------------------------

def make_model(bos, eos):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=192, intermediate_size=512, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32, hidden_act="silu",
        max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_theta=10000.0, attention_bias=False, mlp_bias=False,
        bos_token_id=bos, eos_token_id=eos, use_cache=True)
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config).float()


def save_model(model, tok, out, bos, eos):
    import copy
    import torch
    from transformers import GenerationConfig
    from transformers.utils import logging
    logging.disable_progress_bar()
    os.makedirs(out, exist_ok=True)
    half = copy.deepcopy(model).to(torch.bfloat16).eval()
    half.generation_config = GenerationConfig(bos_token_id=bos, eos_token_id=eos)
    half.save_pretrained(out)
    os.chmod(os.path.join(out, "model.safetensors"), 0o644)
    # Readers of older and newer config layouts both find what they look for.
    path = os.path.join(out, "config.json")
    with open(path) as f:
        config = json.load(f)
    config["rope_theta"] = 10000.0
    config["torch_dtype"] = "bfloat16"
    with open(path, "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")
    save_tokenizer(tok, out)


def evaluate(model, rows):
    import torch
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(rows), BATCH):
            x = torch.from_numpy(rows[i:i + BATCH])
            total += model(input_ids=x, labels=x).loss.item() * len(x)
    model.train()
    return total / len(rows)


def train(out, minutes, steps, peak_lr, save_minutes):
    import numpy as np
    import torch
    torch.set_num_threads(1)
    t0 = time.time()
    rng = random.Random(SEED)
    texts = [story(rng) for _ in range(TRAIN_STORIES)]
    held = [story(random.Random(SEED + 1 + i)) for i in range(HELD_OUT_STORIES)]
    known = set(texts)
    held = [h for h in held if h not in known]
    tok = train_tokenizer(texts[:20000])
    bos, eos = tok.token_to_id(BOS), tok.token_to_id(EOS)
    rows = pack([e.ids for e in tok.encode_batch(texts, add_special_tokens=False)], bos, eos)
    held_rows = pack([e.ids for e in tok.encode_batch(held, add_special_tokens=False)], bos, eos)
    words = sum(len(t.split()) for t in texts)
    print(f"{len(texts)} stories, {words} words, {rows.size} tokens, vocabulary {tok.get_vocab_size()}, "
          f"{time.time() - t0:.0f} s", flush=True)

    model = make_model(bos, eos)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    decay = [p for p in model.parameters() if p.dim() > 1]
    other = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.05},
                             {"params": other, "weight_decay": 0.0}], lr=peak_lr, betas=(0.9, 0.98))
    order = np.random.default_rng(SEED)
    perm, at = order.permutation(len(rows)), 0
    warmup = 100
    start = last_save = time.time()
    step, running = 0, None
    model.train()
    while True:
        # done: 0 at the start, 1 at the end of training
        done = step / steps if steps else (time.time() - start) / (60 * minutes)
        if done >= 1:
            break
        lr = peak_lr * min(1.0, (step + 1) / warmup) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        for g in opt.param_groups:
            g["lr"] = lr
        if at + BATCH > len(perm):
            perm, at = order.permutation(len(rows)), 0
        x = torch.from_numpy(rows[perm[at:at + BATCH]])
        at += BATCH
        loss = model(input_ids=x, labels=x).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running = loss.item() if running is None else 0.95 * running + 0.05 * loss.item()
        step += 1
        if step % 50 == 0 or step == 5:
            print(f"step {step:5d}  loss {running:.4f}  lr {lr:.2e}  {(time.time() - start) / 60:.1f} min",
                  flush=True)
        if time.time() - last_save > 60 * save_minutes:
            save_model(model, tok, out, bos, eos)
            last_save = time.time()
            print(f"saved at step {step}, held-out loss {evaluate(model, held_rows[:64]):.4f}", flush=True)
    loss = evaluate(model, held_rows)
    save_model(model, tok, out, bos, eos)
    print(f"finished: {step} steps, {step * BATCH * SEQ} tokens seen, {(time.time() - start) / 60:.1f} min",
          flush=True)
    print(f"held-out loss {loss:.4f} nats per token, perplexity {math.exp(loss):.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser(description="Make the small story model.")
    ap.add_argument("--out", help="directory for the model")
    ap.add_argument("--minutes", type=float, default=40, help="training time (default 40)")
    ap.add_argument("--steps", type=int, default=0, help="train for this many steps instead")
    ap.add_argument("--lr", type=float, default=2e-3, help="peak learning rate")
    ap.add_argument("--save-minutes", type=float, default=5, help="time between checkpoints")
    ap.add_argument("--show", type=int, default=0, help="print this many stories and stop")
    ap.add_argument("--seed", type=int, default=SEED, help="seed for --show")
    a = ap.parse_args()
    if a.show:
        rng = random.Random(a.seed)
        for _ in range(a.show):
            print(story(rng), "\n\n" + "-" * 60 + "\n")
        return
    if not a.out:
        ap.error("--out is needed")
    train(a.out, a.minutes, a.steps, a.lr, a.save_minutes)


if __name__ == "__main__":
    main()
