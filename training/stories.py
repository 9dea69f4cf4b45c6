"""Stories for children, told from patterns: the plainest English there is."""

import words
from phrases import fill, pick, say

STORY = ["{He} lived in a {adj} {place} near the {place2}.", "Every morning {he} went to the {place2} to look for {items}.", "{He} had {a_item} that was {adj} and {color}.", "One day {he} met {an_animal2} named {friend}.", "\"Hello,\" said {friend}. \"Do you want to see my {item}?\"", "\"Yes, please,\" said {name}.",
         "They walked through the {place} together.", "The sun was {adj2} and the birds were singing.", "Then it began to rain, and they ran to the {place2}.", "{name} was {adj2}, but {friend} was not.", "They found {a_item} under a tree.", "\"What shall we do with it?\" asked {friend}.", "\"Let us give it to the {animal3},\" said {name}.", "The {animal3} was very happy and thanked them.",
         "In the evening they ate {n} {items} and told stories.", "{He} looked at the stars and thought of the {place2}.", "After {n} days {he} came back to the {place}.", "Nobody knew where the {item} was.", "So {name} and {friend} looked in the {place} and in the {place2}.", "At last they found it behind the door.", "\"Thank you,\" said {friend}. \"You are a good friend.\"", "{name} smiled and said nothing.",
         "The wind was {adj} that night.", "{friend} brought {n} {items} from the {place2}.", "They built a small house with a {color} roof.", "The next day everything was {adj2} again.", "{He} wanted to learn how to swim in the {place2}.", "It was hard at first, but {he} tried again and again.", "\"You can do it,\" said {friend}.", "And {name} did it."]
ENDINGS = ["And they were friends for the rest of their lives.", "In the end everybody went home and slept well.", "From that day on {name} was never alone.", "And that was the end of a good day."]


def story(rng, lines, hero=None):
    hero = hero or words.a(pick(rng, words.ANIMALS))
    name, friend = pick(rng, words.FIRST), pick(rng, words.FIRST)
    he = pick(rng, ["he", "she"])
    out = [say(rng, ["Once upon a time there was {h} named {n}.", "There was once {h} called {n}.", "Once there was {adj} {x} named {n}.", "One day {h} named {n} woke up early."], h=hero, n=name, adj=words.a(pick(rng, words.ADJECTIVES)), x=hero.split()[-1])]
    for _ in range(lines):
        out.append(fill(pick(rng, STORY), {"He": he.capitalize(), "he": he, "name": name, "friend": friend, "adj": pick(rng, words.ADJECTIVES), "adj2": pick(rng, words.ADJECTIVES), "place": pick(rng, words.PLACES), "place2": pick(rng, words.PLACES), "items": words.plural(pick(rng, words.ITEMS)),
                                           "a_item": words.a(pick(rng, words.ITEMS)), "item": pick(rng, words.ITEMS), "color": pick(rng, words.COLORS), "an_animal2": words.a(pick(rng, words.ANIMALS)), "animal3": pick(rng, words.ANIMALS), "n": 2 + int(rng.random() * 12)}))
    out.append(fill(pick(rng, ENDINGS), {"name": name}))
    return " ".join(out)


def story_line(rng, subject):
    return say(rng, "{s} (is|was|looks|seems) {adj} and {adj2}.", s=subject, adj=pick(rng, words.ADJECTIVES), adj2=pick(rng, words.ADJECTIVES))
