"""The skills, one function each: a seeded generator in, one exchange out, with a check that a program can apply.

`split` is "train" or "held". What is held out (phrasings, names, pairs of numbers, arguments, topics) is never drawn for training.
"""

import json
from dataclasses import dataclass, field

import facts
import talk as small_talk
import tools as toolbox
import topics
import words
from phrases import fill, held_out, pick, plain, rough, say, vary
from stories import story, story_line

FACTS = facts.all_facts()


@dataclass
class Turn:
    """One exchange. `check` says how evaluate.py judges the answer; `follow` is what comes after a tool result."""

    user: str
    answer: str
    check: dict
    calls: list = field(default_factory=list)
    system: str = ""
    tools: list = field(default_factory=list)
    follow: list = field(default_factory=list)
    sorted_keys: bool = False


def contains(*alternatives):
    return {"kind": "contains", "must": list(alternatives)}


# ---------------------------------------------------------------- omnibus, small talk, the unknown


def about_omnibus(rng, split):
    fact = pick(rng, FACTS[: len(facts.FACTS)] if rng.random() < 0.6 else FACTS)
    if split == "held":
        question = pick(rng, fact.held)
        question = vary(rng, question) if rng.random() < 0.5 else question
    else:
        dice = rng.random()
        if fact.topics and dice < 0.25:
            topic = pick(rng, fact.topics)
            question = say(rng, topics.FRAMES, t=topic, T=topic[0].upper() + topic[1:])
        elif fact.wishes and dice < 0.55:
            wish = pick(rng, fact.wishes)
            question = say(rng, topics.WISHES, w=wish, W=wish[0].upper() + wish[1:])
        else:
            question = say(rng, fact.asks)
        if any(plain(held) in plain(question) for held in fact.held):
            return about_omnibus(rng, split)
        question = rough(rng, question)
    return Turn(question, pick(rng, fact.says), contains(*fact.must))


def small_talk_turn(rng, split):
    _, asks, answers, must, held = pick(rng, small_talk.TALK)
    item = pick(rng, words.ITEMS)
    slots = {"name": a_name(rng, split), "city": a_city(rng, split), "plural": words.plural(item), "Plural": words.plural(item).capitalize(),
             "a_thing": words.a(item), "a_job": words.a(pick(rng, words.JOBS)), "age": 5 + int(rng.random() * 90), "day": pick(rng, words.DAYS), "n1": words.invented(rng), "n2": words.invented(rng), "n3": words.invented(rng), "animal": words.a(pick(rng, words.ANIMALS))}
    if split == "held":
        question = fill(pick(rng, held), slots)
    else:
        question = say(rng, asks, **slots)
        if any(plain(fill(phrase, slots)) == plain(question) for phrase in held):
            return small_talk_turn(rng, split)
    dice = rng.random()
    if dice < 0.2:
        question = question.lower()
    elif dice < 0.4:
        question = question.rstrip("!.?") or question
    elif dice < 0.5:
        question = pick(rng, ["Hi! ", "Hello! ", "Hey, ", "Well, ", "Oh, ", "So, ", "Ok, ", "Tell me: ", "Hello omnibus, ", "Hmm, ", "By the way, ", "Today ", "And ", "Now, ", "Please: "]) + question
    elif dice < 0.65:
        mark = question[-1] if question[-1] in "!.?" else ""
        question = question.rstrip("!.?") + pick(rng, [", omnibus", ", my friend", ", dear", ", dear model", " my dear", ", bot", " today", ", little model", " now", ", please", " then", ", buddy", " really", ", you know"]) + mark
    answer = fill(pick(rng, answers), slots)
    if answer == "{story}":
        answer = story(rng, 5 + int(rng.random() * 5), slots["animal"] if slots["animal"] in question else None)
    return Turn(question, answer, contains(fill(must, slots)))


UNKNOWN_ASKS = [
    "(What is|What are) {topic}?", "(Explain|Describe|Define) {topic}[ to me| in detail| in simple words].", "(Tell me|Teach me) (about|something about|everything about|more about) {topic}.", "How (does|do) {topic} work?", "Why (is|are) {topic} (important|interesting|dangerous|so popular|hard)?",
    "Who (invented|discovered|created|started) {topic}?", "When (was|were) {topic} (invented|discovered|created)?", "When did {topic} (start|begin|end|happen)?", "What (caused|causes) {topic}?", "What do you know about {topic}?", "Where (does|do) {topic} come from?", "What is the history of {topic}?",
    "(Write|Give me) (an essay|a summary|a report|an article) (about|on) {topic}.", "What are the (benefits|dangers|types|parts|rules) of {topic}?", "(Summarize|Compare) {topic}[ and {topic2}].", "What is the difference between {topic} and {topic2}?",
    "Who (was|is) {famous}?", "When was {famous} born?", "When did {famous} (die|live)?", "Where was {famous} born?", "What did {famous} (do|invent|write|discover|paint)?", "(Tell me|What do you know) about {famous}(.|?)", "How old is {famous}?", "Why is {famous} famous?", "Who is the (wife|husband|son|daughter|father|mother) of {famous}?",
    "What is the capital of {country}?", "What is the population of {country}?", "How many people live in {country}?", "Who is the (president|king|queen|prime minister|leader) of {country}?", "What (language|languages) do people speak in {country}?", "Where is {country}?", "What is the (currency|flag|anthem|history|largest city) of {country}?", "How (big|large|old) is {country}?",
    "How (big|old|large|far) is {city}?", "Where is {city}?", "In which country is {city}?", "What can I (see|do|visit|eat) in {city}?", "How do I get (to {city}|from {city} to {city2})?", "Who is the mayor of {city}?", "How far is it from {city} to {city2}?", "What is {city} (known|famous) for?",
    "Who (won|will win) the (World Cup|election|Nobel prize|match|Super Bowl|championship|Olympics)[ in {year}| last year]?", "What happened in {year}?", "Who was president in {year}?", "What was (invented|discovered) in {year}?", "What is the (latest news|news today)?", "What is the price of (gold|oil|bitcoin|milk|bread)?", "How much does (a car|a house|a ticket|a phone|bread|gold) cost?",
    "How (tall|high|deep|long|heavy|fast|old|big) is (the Eiffel Tower|Mount Everest|the Nile|the sun|the moon|the earth|an elephant|the ocean|the tallest building|a blue whale|the Amazon)?", "What is the (tallest|highest|largest|longest|smallest|fastest|deepest|oldest) (mountain|river|building|animal|country|city|lake|ocean|tree|planet|bird)[ in the world]?",
    "How many (stars|planets|countries|people|bones|languages|oceans|species|states) are there[ in the world]?", "Why is the (sky blue|sea salty|grass green|sun hot|moon round)?", "How (do|can) I (cook|bake|make|repair|build|grow|clean|draw|buy|sell|fix) {thing}?", "How do I (lose weight|learn French|find a job|become rich|fix my car|tie a tie|get a visa|play chess|learn to swim|invest money|change a tire|learn the guitar)?",
    "Can you (write|give me) (a program|code|a Python function|a C\\+\\+ program|a JavaScript function|an SQL query) (that|to) (sorts a list|reads a file|prints primes|computes factorials|parses JSON|sends an email)?", "(Write|Show me) (a Python function|code|a program|some Rust code) (to|that can) (sort a list|read a file|find primes|reverse a string).",
    "(Translate|Say) (this|hello|good morning|thank you|I love you|the word {word}) (to|into|in) (French|German|Spanish|Italian|Chinese|Polish|Latin).", "What does (the word |){word} mean?", "What is {word}?", "Who is {name} {last}?", "What is the (phone number|address|email|birthday) of {name}[ {last}]?", "Do you know {name} {last}?", "Where does {name} {last} live?",
    "What is my (password|address|phone number|email|birthday|mother's name|IP address|bank balance)?", "What am I (thinking|wearing|doing)?", "What is my (name|age|job|favorite color|city)?", "(Who am I|Where do I live|How old am I)?", "Where am I?", "What did I (eat|do|say|dream) (yesterday|last night|last week)?", "What will happen (tomorrow|next year|in the future|in {year})?", "What (are|were) the lottery numbers?",
    "What is (the square root|the logarithm|the cube|the derivative) of {big}?", "What is {big} (plus|times|minus|divided by) {big2}?", "What is {big} (+|*|-|/) {big2}?", "How much is {big} (+|*|-|times|plus) {big2}?", "(Calculate|Compute) {big} (+|*|-|/) {big2}.", "What is (the value of |)pi to {year} digits?", "(Solve|Integrate|Factor) (the equation |)x^2 (+|-) {small}x = {small2}.",
    "What is the (chemical formula|boiling point|melting point|density|symbol) of (water|gold|iron|salt|oxygen|sugar|helium|silver)?", "How many (calories|vitamins|grams of sugar) are in {thing}?", "What (medicine|drug|pill) (should I take|helps) (for|against) (a headache|fever|a cold|pain|an allergy)?", "Who wrote (Hamlet|Faust|the Odyssey|Don Quixote|War and Peace|the Bible|1984|Moby Dick)?",
    "Who (painted|stole) the Mona Lisa?", "Who directed (Titanic|Star Wars|Jaws|Casablanca)?", "Who (sang|wrote) (Yesterday|Imagine|Thriller|Hey Jude)?", "What is the (plot|ending) of (Hamlet|Titanic|Star Wars|Moby Dick)?", "Which (team|player|movie|song|book|car|phone) is the best?", "Recommend (a|a good) (book|movie|restaurant|song|hotel|car|phone).",
    "Which (stock|stocks) should I buy?", "Is {topic} (good|bad|dangerous|healthy|real|true)?", "(Name|List|Give me|Tell me) ({small}|two|some|a few) (facts|books|things|examples|problems|ideas) (about|on|of|from) {topic}.", "(Name|Tell me) (a|one|the) (king|city|writer|food|river|singer|book|team) (of|from|in) {country}.", "(Name|Tell me) (a|one) (fact|book|problem|film) (about|on) {topic}.", "Should I (buy|study|try|learn) {topic}?", "What (should I know|is interesting) about {topic}?", "Does {topic} (exist|work|hurt)?",
]
UNKNOWN_HELD = [
    "Could you explain {topic} to a child?", "I would like to know more about {topic}.", "What role did {famous} play in history?", "Which books did {famous} write?", "Give me three facts about {topic}.", "How long would a trip from {city} to {city2} take?", "Which rivers flow through {country}?",
    "What do people in {country} like to eat?", "What was the most important event of {year}?", "What is the best way to learn {topic}?", "Please write a long essay on {topic}.", "Is it true that {famous} was born in {city}?", "Who governs {country} at the moment?", "Name a famous person from {country}.",
]
UNKNOWN_ANSWERS = ["I don't know that. I am a very small model and know mainly omnibus.", "I don't know. I am too small a model to know about that.", "Sorry, I don't know that. I know little beyond omnibus and simple tasks."]
BIG_ANSWER = "I don't know: I can only do arithmetic with numbers up to two digits."
ADMIT = {"kind": "contains", "must": ["don't know|do not know|not sure|can't|cannot|no tool|unable"]}


def unknown(rng, split):
    held = split == "held"
    topics, famous = (words.TOPICS_HELD, words.FAMOUS_HELD) if held else (words.TOPICS, words.FAMOUS)
    topic2 = pick(rng, topics)
    if not held and rng.random() < 0.15:
        topic2 = words.invented(rng)
    topic = pick(rng, topics) if held or rng.random() < 0.8 else pick(rng, [words.invented(rng), "the " + words.invented(rng).capitalize(), words.plural(pick(rng, words.ITEMS))])
    big = 100 + int(rng.random() * (900 if rng.random() < 0.6 else 90000))
    pattern = pick(rng, UNKNOWN_HELD if held and rng.random() < 0.5 else UNKNOWN_ASKS)
    question = say(rng, pattern, topic=topic, topic2=topic2, famous=pick(rng, famous), country=pick(rng, words.COUNTRIES), city=a_city(rng, split), city2=a_city(rng, split),
                   year=1000 + int(rng.random() * 1050), thing=words.a(pick(rng, words.ITEMS)), word=words.invented(rng), name=a_name(rng, split), last=pick(rng, words.LAST), big=big,
                   big2=2 + int(rng.random() * 998), small=2 + int(rng.random() * 8), small2=2 + int(rng.random() * 90))
    answer = BIG_ANSWER if "{big}" in pattern else pick(rng, UNKNOWN_ANSWERS)
    return Turn(question if held else rough(rng, question), answer, ADMIT)


# ---------------------------------------------------------------- arithmetic

PLUS = ["What is {a} (plus|+|and) {b}?", "{a} (plus|+) {b}", "{a} + {b} = ?", "{a} + {b} =", "{a}+{b}", "{a}+{b}=?", "{a} plus {b}?", "(How much is|What's|Calculate|Compute|Work out|Tell me|Solve|Evaluate) {a} (plus|+) {b}(?|.|)", "(Add|Sum) {a} and {b}.", "Add {b} to {a}.", "What is the sum of {a} and {b}?", "What do you get (when|if) you add {a} and {b}?",
        "(Can you|Could you|Please) (add|sum) {a} and {b}(?|.)", "{a} and {b} together (is what|makes what|make how much)?", "What does {a} + {b} (equal|give|make)?", "How much (do|does) {a} and {b} make?", "I need the sum of {a} and {b}.", "Do you know (what|how much) {a} (plus|+) {b} is?", "Can you (calculate|compute|tell me|work out) {a} (plus|+) {b}?"]
MINUS = ["What is {a} (minus|-) {b}?", "{a} (minus|-) {b}", "{a} - {b} = ?", "{a} - {b} =", "{a}-{b}", "{a}-{b}=?", "{a} minus {b}?", "(How much is|What's|Calculate|Compute|Work out|Tell me|Solve|Evaluate) {a} (minus|-) {b}(?|.|)", "(Subtract|Take) {b} (from|away from) {a}.", "What is {a} (less|take away) {b}?", "What is the difference (between|of) {a} and {b}?", "What do you get (when|if) you (subtract|take) {b} from {a}?",
         "(Can you|Could you|Please) subtract {b} from {a}(?|.)", "What does {a} - {b} (equal|give|make)?", "What (is left|remains) when {b} is taken from {a}?", "Do you know (what|how much) {a} (minus|-) {b} is?", "Can you (calculate|compute|tell me|work out) {a} (minus|-) {b}?"]
TIMES = ["What is {a} (times|*|x|×|multiplied by) {b}?", "{a} (times|*|x|×) {b}", "{a} (*|x|×) {b} = ?", "{a} (*|x|×) {b} =", "{a}*{b}", "{a}x{b}", "{a}*{b}=?", "{a} times {b}?", "(How much is|What's|Calculate|Compute|Work out|Tell me|Solve|Evaluate) {a} (times|*|x|×|multiplied by) {b}(?|.|)", "Multiply {a} (by|and|with) {b}.", "What is the product of {a} and {b}?", "What do you get (when|if) you multiply {a} (by|and) {b}?",
         "(Can you|Could you|Please) multiply {a} (by|and) {b}(?|.)", "What does {a} (*|times) {b} (equal|give|make)?", "I need the product of {a} and {b}.", "Do you know (what|how much) {a} (times|*) {b} is?", "Can you (calculate|compute|tell me|work out) {a} (times|*) {b}?"]
OVER = ["What is {a} (divided by|/|÷|over) {b}?", "{a} (divided by|/|÷) {b}", "{a} (/|÷) {b} = ?", "{a} (/|÷) {b} =", "{a}/{b}", "{a}/{b}=?", "{a} divided by {b}?", "(How much is|What's|Calculate|Compute|Work out|Tell me|Solve|Evaluate) {a} (divided by|/|÷) {b}(?|.|)", "Divide {a} by {b}.", "What is the quotient of {a} and {b}?", "What do you get (when|if) you divide {a} by {b}?",
        "(Can you|Could you|Please) divide {a} by {b}(?|.)", "How (often|many times) does {b} (go into|fit into) {a}?", "What does {a} / {b} (equal|give|make)?", "Do you know (what|how much) {a} divided by {b} is?", "Can you (calculate|compute|tell me|work out) {a} (divided by|/) {b}?"]
SIGNS = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER}
BARE = [" Answer with (only |just |)the number[ only].", " (Just|Only) the number[, please].", " Reply with (only |)a number.", " Number only.", " Give (only|just) the (number|result).", " No words, only the number.", " Answer with a number."]
STORIES = [
    ("+", "{N} has {a} {x} and (gets|buys|finds) {b} more. How many {x} does {N} have[ now]?", "so {N} has {r} {x}"), ("+", "There are {a} {x} (in a box|on a table|in a bag) and {b} {x} (on a shelf|in a basket). How many {x} are there[ in all| together]?", "so there are {r} {x}"),
    ("+", "{N} has {a} {x} and {M} has {b} {x}. How many {x} do they have together?", "so they have {r} {x}"), ("+", "{N} (read|walked|saw|counted|sold) {a} {x} on Monday and {b} on Tuesday. How many (in all|altogether|in total)?", "so the total is {r}"),
    ("-", "{N} has {a} {x} and (gives away|loses|eats|sells) {b}. How many {x} (are left|does {N} have now|remain)?", "so {r} {x} are left"), ("-", "There are {a} {x}. {N} takes {b} of them. How many are left?", "so {r} {x} are left"), ("-", "{N} has {a} {x} and {M} has {b}. How many more {x} does {N} have?", "so {N} has {r} more"),
    ("*", "{N} (has|buys) {a} boxes with {b} {x} each. How many {x} (are there|does {N} have)[ in all]?", "so there are {r} {x}"), ("*", "One (ticket|box|book) costs {b} dollars. How much do {a} cost?", "so they cost {r} dollars"),
    ("/", "{N} shares {a} {x} among {b} friends. How many does each (one |)get?", "so each gets {r}"), ("/", "{a} {x} are put into {b} boxes[ equally]. How many are in each box?", "so each box has {r}"),
]
STORIES += [
    ("+", "{N} {did} {a} {x} and {M} {did} {b} {x}. How many (is that|are that|are there)[ together| in all]?", "so that is {r} {x}"), ("+", "{N} {did} {a} {x} and then {b} more. How many {x} (is that|in all|altogether)?", "so that is {r} {x}"),
    ("+", "(A|The|One) {p} has {a} {x}[, and] {N} {adds} {b} more. How many {x} (are there|are in it|does it have)[ now]?", "so there are {r} {x}"), ("-", "{N} {did} {a} {x} and {M} {took} {b}( of them|). How many {x} (are left|remain|are still there|are there now)?", "so {r} {x} are left"),
    ("-", "(A|The|One) {p} has {a} {x}[, and] {N} {takes} {b}( of them| away|). How many {x} (are left|remain|are still there|does it have now)?", "so {r} {x} are left"), ("-", "There were {a} {x} in the {p}, but {N} {took} {b}. How many are (left|still there)?", "so {r} {x} are left"),
    ("*", "{N} {did} {a} (rows|bags|packs|boxes|groups) (of|with) {b} {x}[ in each| each]. How many {x} (is that|are there|are that)[ in all]?", "so there are {r} {x}"), ("*", "Each of {a} (friends|boxes|bags|days) has {b} {x}. How many {x} (is that|are there)?", "so there are {r} {x}"),
    ("/", "{N} (puts|packs|divides|splits) {a} {x} (evenly |equally |)(into|among|over) {b} (bags|boxes|friends|groups|plates). How many (are in|go into|does|for) each( one|)[ get]?", "so each has {r}"),
]
ACTS = {"did": "bought found made picked planted counted saw baked sold got drew packed collected wrote carried".split(), "took": "ate took sold lost broke used stole removed gave away hid".replace("gave away", "borrowed").split(), "adds": "adds brings puts buys finds gives".split(), "takes": "takes eats sells removes uses steals loses".split()}
STORIES_HELD = [("+", "A shelf holds {a} {x}, and {N} puts {b} more on it. How many {x} does it hold now?", ""), ("-", "{N} baked {a} {x} and {M} ate {b} of them. How many {x} are still there?", ""),
                ("*", "{N} plants {a} rows with {b} {x} in each row. How many {x} is that?", ""), ("/", "{N} packs {a} {x} evenly into {b} bags. How many go into one bag?", "")]


def operands(rng, sign, split, easy=False):
    while True:
        top = 13 if easy or rng.random() < 0.2 else 100
        a, b = int(rng.random() * top), int(rng.random() * top)
        if sign == "*" and rng.random() < 0.3:
            a, b = (a % 11, b) if rng.random() < 0.5 else (a, b % 11)
        if sign == "/":
            b = 1 + b % (12 if rng.random() < 0.6 else 50)
            a = b * int(rng.random() * (99 // b + 1)) if rng.random() < 0.8 else a
        key = f"{min(a, b)}{sign}{max(a, b)}" if sign in "+*" else f"{a}{sign}{b}"
        if held_out(key, 25) == (split == "held"):
            return a, b


def worked(a, sign, b):
    """The result of an operation and the line that shows it; a product of two long factors is taken in two parts."""
    if sign == "+":
        return a + b, f"{a} + {b} = {a + b}"
    if sign == "-":
        return a - b, f"{a} - {b} = {a - b}"
    if sign == "*":
        if a > 10 and b > 10 and a % 10 and b % 10:
            tens, ones = b - b % 10, b % 10
            return a * b, f"{a} * {b} = {a} * {tens} + {a} * {ones} = {a * tens} + {a * ones} = {a * b}"
        return a * b, f"{a} * {b} = {a * b}"
    if a % b:
        return a // b, f"{a} / {b} = {a // b} remainder {a % b}"
    return a // b, f"{a} / {b} = {a // b}"


def arithmetic(rng, split):
    dice = rng.random()
    if dice < 0.17:
        return word_problem(rng, split)
    sign = pick(rng, "++--***/")
    a, b = operands(rng, sign, split)
    result, line = worked(a, sign, b)
    check = {"kind": "number", "value": result}
    spelled = rng.random() < 0.07
    question = say(rng, SIGNS[sign], a=words.spelled(a) if spelled else a, b=words.spelled(b) if spelled else b)
    if dice < 0.26 and (sign != "*" or a < 11 or b < 11) and (sign != "/" or a % b == 0):
        return Turn(question + say(rng, BARE), str(result), check)
    if dice < 0.3 and (sign != "*" or a < 11 or b < 11) and (sign != "/" or a % b == 0):
        key = pick(rng, ["answer", "result", "sum", "value"])
        form = say(rng, [f' Answer as JSON with the key "{key}".', f" Reply in JSON: {{\"{key}\": number}}", f' Give JSON like {{"{key}": 0}}.'])
        return Turn(question + form, json.dumps({key: result}), {"kind": "json", "value": {key: result}})
    if dice < 0.32 and sign == "/":
        return Turn(say(rng, OVER, a=a, b=0), "Dividing by zero has no result.", contains("zero|not defined"))
    if split == "train":
        question = rough(rng, question) if rng.random() < 0.8 else pick(rng, ["A sum: ", "I need help: ", "Math: ", "Math question: ", "Here is one: ", "Help with this: ", "Exercise: ", "Can you do this? ", "Solve: ", "The teacher asks: ", "For school: ", "An easy one: ", "A hard one: ", "Hello, can you help me with ", "I must know ", "It says: "]) + question
    elif rng.random() < 0.3:
        question = pick(rng, ["Hello, I need help with a sum: ", "Quick one: ", "Maths time! ", "My homework says: "]) + question
    return Turn(question, line + ".", check)


def word_problem(rng, split):
    sign, pattern, ending = pick(rng, STORIES_HELD if split == "held" else STORIES)
    a, b = operands(rng, sign, split, easy=sign in "*/")
    while (sign == "-" and b > a) or (sign == "/" and (b == 0 or a % b)):
        a, b = operands(rng, sign, split, easy=sign in "*/")
    result, line = worked(a, sign, b)
    slots = {"N": a_name(rng, split), "M": a_name(rng, split), "x": words.plural(pick(rng, words.ITEMS)), "a": a, "b": b, "r": result, "p": pick(rng, ["shelf", "box", "basket", "room", "drawer", "bag", *words.PLACES])}
    slots |= {kind: pick(rng, verbs) for kind, verbs in ACTS.items()}
    return Turn(say(rng, pattern, **slots), f"{line}, {fill(ending, slots)}.", {"kind": "number", "value": result})


# ---------------------------------------------------------------- extraction

SENTENCES = """{A} bought {1} {x} and {B} bought {2} {y}.|{A} has {1} {x}.|{A} and {B} have {1} {x}.|{A} is {1} years old.|{A} is {1} and {B} is {2} years old.|{A} gave {B} {1} {x}.|{A} gave {1} {x} to {B} and {2} to {C}.
{A} paid {1} dollars for {2} {x}.|{A} met {B} at {1} o'clock.|{A} lives at number {1} and {B} at number {2}.|In {1} days {A} will visit {B}.|{A} ran {1} miles, {B} ran {2} miles and {C} ran {3} miles.|{A} works with {B} and {C}.|It is {1} degrees in {city}.
There were {1} people, but {A} saw only {2}.|{A} scored {1} points against {B}, who scored {2}.|On page {1}, {A} found {2} mistakes.|{A} sold {1} {x} for {2} dollars each.|{A} walked {1} miles to see {B}.|{A}, {B} and {C} shared {1} {x}.|{A} waited {1} minutes for {B}.
The train with {A} and {1} others left at {2}.|{1} {x} belong to {A} and {2} to {B}.|{A} wrote {1} letters to {B}.|{A} took {1} photos in {city}.|{A} moved to {city} with {1} {x}.|{A} needs {1} {x}, {2} {y} and {3} hours.|{A} told {B} about the {1} {x}.|Room {1} is for {A} and room {2} for {B}.
{A} owes {B} {1} dollars.|{A} planted {1} trees and {B} cut down {2}.|The {1} {x} cost {2} dollars.|{A} called {B} {1} times.|{A} has {1} sisters and {2} brothers.|{A} and {B} are friends.|{A} likes {x}.|Yesterday {A} ate {1} {x}.|At {1} {A} went home.|{A} read {1} pages and {B} read {2}.|{A} won {1} games and lost {2}.
{A} found {1} coins under the {p}.|My friend {A} has {1} {x}.|Our teacher {A} has {1} students.|The {x} of {A} weigh {1} pounds.|{A} drove {1} miles in {2} hours.|{A} invited {1} guests, and {B} brought {2} {x}.|{A}'s team has {1} players.|{A}'s phone cost {1} dollars.|Please tell {A} that {1} {x} are ready.
{A} asked {B} for {1} {x}, but got {2}.|{A} lent {1} {x} to {B}.|Flight {1} with {A} lands at {2}.|{A} finished in {1} seconds, {B} in {2}.|Bus {1} takes {A} to {city}.|{A} was born in {1}.|In {1}, {A} and {B} moved to {city}.|{A} saved {1} dollars; {B} saved {2}.|{A} keeps {1} {x} at the {p}.|{1} people came to see {A}.
Between them, {A} and {B} have {1} {x}.|{A} counted {1}, {2} and {3}.|The numbers are {1}, {2} and {3}.|Dear {A}, I need {1} {x}. Yours, {B}|{A}: {1}, {B}: {2}, {C}: {3}|{A} ordered {1} {x} from {B}.|{A} baked {1} cakes for {B}, {C} and {D}.|{A}, {B}, {C} and {D} bought {1} tickets.|I saw {A} with {1} {x}.|We gave {A} {1} {x} and {2} {y}.""".replace("\n", "|").split("|")
DID = "(bought|found|sold|lost|made|took|brought|sent|saw|wanted|needed|ordered|broke|washed|fixed|picked|cut|hid|used|kept|moved|threw|painted|opened|closed|got|chose|stole|drew|tested|packed|cleaned|shipped|watched|missed|collected|cooked|built)"
WHEN = "(Before breakfast|After lunch|After school|Before dinner|During the day|Every day|Sometimes|First|Soon|Now|Finally|Today|Yesterday|Last week|In the morning|After dinner|Before work|Once|Later|Then|At night|On Monday|On Friday|In May|At school|At home|In the {p}|Near the {p}|In {city}|After {3} hours|In {3}|{3} days ago|At {3})"
COMPOSED = [f"{{A}} {DID} {{1}} {{x}}[ in the {{p}}| for {{B}}| with {{B}}| from {{B}}| and told {{B}}| in {{city}}].", f"{WHEN} {{A}} {DID} {{1}} {{x}}[ and {{2}} {{y}}][ for {{B}}| with {{B}} and {{C}}].", f"{{A}} {DID} {{1}} {{x}} (and|but|while|when|because) {{B}} {DID} {{2}}[ {{y}}].", f"{{A}} and {{B}} {DID} {{1}} {{x}}[ in {{2}} (days|hours|minutes|weeks)].",
            f"(Together with|Thanks to|Because of|Without|Unlike|Like) {{B}}, {{A}} {DID} {{1}} {{x}}.", f"{{1}} {{x}} (came|went|fell) to {{A}}[ and {{2}} to {{B}}].", f"(Only|About|More than|Almost|Exactly) {{1}} (of the {{2}} |){{x}} were {DID} by {{A}}.", f"(When|After|Before|While) {{A}} {DID} {{1}} {{x}}, {{B}} {DID} {{2}}.", f"{{A}} {DID} {{1}} {{x}}, {{B}} {DID} {{2}}[, and {{C}} {DID} {{3}}].",
            f"The (shop|house|garden|brother|sister|friend|team|boss) of {{A}} {DID} {{1}} {{x}}[ a day| a week| for {{B}}].", f"{{A}} {DID} {{x}} {{1}} times[ with {{B}}].", f"{{A}} and {{B}} {DID} {{1}} (cups of tea|glasses of water|pieces of cake|bags of {{x}}|boxes of {{x}}).", f"{{1}} {{x}}, said {{A}}[ to {{B}}].", f"{{A}} (was|is|turned) {{1}}[ when {{B}} (was|turned) {{2}}].",
            f"(Did|Has) {{A}} {DID} {{1}} {{x}}[ for {{B}}]?", f"{{A}} {DID} {{1}} (more|new|old|small|red) {{x}}[ from {{B}} and {DID} {{2}}].", f"Then {{A}} phoned {{B}}[ at {{1}}][ about {{2}} {{x}}].", f"I {DID} {{1}} {{x}} (with|for|from) {{A}}[ and {{B}}]."]
SENTENCES_HELD = """{A} carried {1} {x} up the hill while {B} carried {2}.|Before lunch {A} repaired {1} {x} for {B}.|{A} swam {1} laps and then phoned {B}.|Only {1} of the {2} {x} were sold, said {A}.|After {1} weeks {A} sent {2} {x} to {B}.|{A} counted {1} {x}, {B} counted {2}.
Together with {B}, {A} painted {1} walls.|The shop of {A} sells {1} {x} a day.|{A} borrowed {1} {x} from {B} and returned {2}.|{A} needs {1} more {x}.|When {A} was {1}, {B} was {2}.|{A} and {B} drank {1} cups of tea.""".replace("\n", "|").split("|")
EXTRACT = ["Extract (the |all |all the |)names and (the |all |)numbers (from|in|out of) (this|the|the following) (sentence|text)[ as JSON| in JSON| as a JSON object| into JSON]", "(Find|Get|List|Pull out|Give me|Pick out|Return|Identify) (all |the |all the |)names and numbers (in|from|of) (this|the|the following) (sentence|text)[ as JSON| in JSON]", "(Which|What) names and numbers (are in|does) (this|the) (sentence|text)[ contain]? (Answer in JSON|Answer as JSON|JSON|Reply with JSON)",
           "Extract names and numbers[ as JSON]", "Extract as JSON (the |)names and numbers", "Names and numbers as JSON[ please]", "Return (a |)JSON[ object] with (the |)names and (the |)numbers (in|from|of) (this|the) (sentence|text)", "Turn (this|the) sentence into JSON with names and numbers", "Extract the entities (names and numbers) (as|in) JSON", "Extract {\"names\": [...], \"numbers\": [...]} from (this|the) (sentence|text)",
           "Give me (a |)JSON[ object] with \"names\" and \"numbers\" (from|for|of) (this|the) (sentence|text)", "Please extract (the |)names and (the |)numbers", "Which people and numbers are mentioned? Use JSON with names and numbers", "Parse (this|the) (sentence|text) into JSON with the keys names and numbers", "I need the names and numbers (of|in|from) this (sentence|text)[ as JSON]"]
EXTRACT = [pattern.replace("[...]", "\\[...\\]").replace("(names and numbers)", "\\(names and numbers\\)") for pattern in EXTRACT]
EXTRACT_HELD = ["Could you find the names and the numbers in this sentence and write them as JSON", "Read the sentence and extract its names and numbers as JSON", "Make a JSON object out of the names and numbers in this text"]
ONLY = {"names": ["Extract (only |just |)(the |all |)names (from|in) (this|the) (sentence|text)[ as JSON]", "(Find|List|Return) (only |just |)the names[ in this sentence| in this text] (as|in) JSON", "Which names are in this (sentence|text)? Answer (in|as) JSON", "Extract the people's names as JSON"],
        "numbers": ["Extract (only |just |)(the |all |)numbers (from|in) (this|the) (sentence|text)[ as JSON]", "(Find|List|Return) (only |just |)the numbers[ in this sentence| in this text] (as|in) JSON", "Which numbers are in this (sentence|text)? Answer (in|as) JSON", "Extract every number as JSON"]}
SYSTEMS_EXTRACT = ["Extract the names and numbers of each sentence as JSON.", "You extract names and numbers from sentences. Answer only in JSON.", "You turn sentences into JSON with names and numbers.", "Answer with JSON: {\"names\": [...], \"numbers\": [...]}"]
RECORDS = {"name": "{name}", "age": "{age}", "city": "{city}", "job": "{job}", "color": "{color}", "email": "{email}", "pets": "{pets}"}
RECORD_SENTENCES = [({"name", "age"}, ["{name} is {age} years old.", "{name}, {age}, says hello.", "My name is {name} and I am {age}.", "{name} turned {age} today.", "I am {name}, {age} years old.", "This is {name}, who is {age} years old."]), ({"name", "city"}, ["{name} lives in {city}.", "{name} is from {city}.", "I am {name} from {city}.", "My name is {name} and I live in {city}."]),
                    ({"name", "age", "city"}, ["{name} is {age} years old and lives in {city}.", "My name is {name}, I am {age} and I live in {city}.", "{name} from {city} is {age} years old.", "{name}, {age}, lives in {city}.", "I am {name}, {age} years old, from {city}."]), ({"name", "job"}, ["{name} works as a {job}.", "{name} is a {job}.", "Our {job} is {name}."]),
                    ({"name", "age", "job"}, ["{name} is a {age} year old {job}.", "{name} is {age} and works as a {job}.", "The {job} {name} is {age} years old."]), ({"name", "color"}, ["The favorite color of {name} is {color}.", "{name} likes the color {color}."]), ({"name", "email"}, ["{name} can be reached at {email}.", "Write to {name} at {email}."]),
                    ({"name", "age", "city", "job"}, ["{name} is a {age} year old {job} from {city}.", "{name}, {age}, works as a {job} in {city}."]), ({"name", "city", "job"}, ["{name} is a {job} in {city}.", "The {job} {name} lives in {city}."])]
RECORD_ASKS = ["Extract {keys} as JSON", "(Return|Give me|Answer with) (a |)JSON[ object] with (the keys |)[the ]{keys}", "Extract {keys} (from|in) (this|the) (sentence|text)[ as JSON]", "Extract the person as JSON with {keys}", "Fill (this|the) JSON: {example}", "Answer in JSON like {example}"]
JOINS = ["{ask}: {s}", "{ask}:\n{s}", "{ask}.\n\n{s}", "{s}\n\n{ask}.", "{ask}: \"{s}\"", "{ask}. {s}", "{ask}.\nSentence: {s}", "{ask}.\nText: {s}", "Text: {s}\n{ask}.", "{ask}\n{s}", "\"{s}\" {ask}.", "{ask}: '{s}'"]


def a_name(rng, split, full=0.0):
    if split == "held":
        name = pick(rng, words.FIRST_HELD)
    else:
        name = words.new_name(rng) if rng.random() < 0.45 else pick(rng, words.FIRST)
    return name + " " + pick(rng, words.LAST) if rng.random() < full else name


def a_city(rng, split):
    if split == "held":
        return pick(rng, words.CITIES_HELD)
    return words.new_name(rng) if rng.random() < 0.35 else pick(rng, words.CITIES)


def a_number(rng):
    """A number as (value, text): mostly up to two digits, some longer, some with a decimal point, some in words."""
    dice = rng.random()
    if dice < 0.1:
        value = 1 + int(rng.random() * 20)
        return value, words.spelled(value) if value > 1 else "1"
    if dice < 0.62:
        value = 1 + int(rng.random() * 99)
    elif dice < 0.8:
        value = 100 + int(rng.random() * 900)
    elif dice < 0.92:
        value = 1000 + int(rng.random() * 9000)
    else:
        value = round(int(rng.random() * 100) + (1 + int(rng.random() * 9)) / 10, 1)
    return value, str(value)


def one_sentence(rng, split, used, full):
    """A sentence with its names and numbers in the order in which they occur."""
    if split == "held":
        pattern = pick(rng, SENTENCES_HELD if rng.random() < 0.5 else SENTENCES)
    else:
        pattern = pick(rng, SENTENCES) if rng.random() < 0.5 else say(rng, COMPOSED)
    names, numbers = {}, {}
    for letter in "ABCD":
        name = a_name(rng, split, full)
        while name in used:
            name = a_name(rng, split, full)
        used.add(name)
        names["{" + letter + "}"] = name
    for digit in "123":
        numbers["{" + digit + "}"] = a_number(rng)
    order = sorted((pattern.index(slot), slot) for slot in [*names, *numbers] if slot in pattern)
    found = [names[slot] for _, slot in order if slot in names], [numbers[slot][0] for _, slot in order if slot in numbers]
    text = fill(pattern, {"x": words.plural(pick(rng, words.ITEMS)), "y": words.plural(pick(rng, words.ITEMS)), "city": a_city(rng, split), "p": pick(rng, words.PLACES)})
    for slot, name in names.items():
        text = text.replace(slot, name)
    for slot, (_, shown) in numbers.items():
        text = text.replace(slot, shown)
    return text[0].upper() + text[1:] if text[0].isalpha() else text, found


def extraction(rng, split):
    dice = rng.random()
    if dice < 0.2:
        return record(rng, split)
    used, texts, names, numbers = set(), [], [], []
    full = 0.5 if rng.random() < 0.2 else 0.0
    for _ in range(1 if rng.random() < 0.75 else 2 + int(rng.random() * 2)):
        text, found = one_sentence(rng, split, used, full)
        texts.append(text)
        names += found[0]
        numbers += found[1]
    sentence = " ".join(texts)
    value = {"names": names, "numbers": numbers}
    if dice < 0.32:
        key = pick(rng, ["names", "numbers"])
        ask, value = say(rng, ONLY[key]), {key: value[key]}
    elif dice < 0.4 and split == "train":
        system = pick(rng, SYSTEMS_EXTRACT)
        return Turn(sentence, json.dumps(value, ensure_ascii=False), {"kind": "json", "value": value}, system=system)
    elif split == "held" and rng.random() < 0.5:
        ask = pick(rng, EXTRACT_HELD)
    else:
        ask = say(rng, EXTRACT)
    if split == "train":
        ask = ask.lower() if rng.random() < 0.15 else ("Please " + ask[0].lower() + ask[1:] if rng.random() < 0.1 else ask)
    return Turn(fill(pick(rng, JOINS), {"ask": ask, "s": sentence}), json.dumps(value, ensure_ascii=False), {"kind": "json", "value": value})


def record(rng, split):
    keys, sentences = pick(rng, RECORD_SENTENCES)
    keys = [key for key in RECORDS if key in keys]
    if rng.random() < 0.3:
        keys = sorted(keys, key=lambda _: rng.random())
    name = a_name(rng, split, 0.2)
    values = {"name": name, "age": 1 + int(rng.random() * 99), "city": a_city(rng, split), "job": pick(rng, words.JOBS), "color": pick(rng, words.COLORS), "email": name.split()[0].lower() + "@" + words.invented(rng) + ".com"}
    value = {key: values[key] for key in keys}
    example = json.dumps({key: 0 if key == "age" else "..." for key in keys})
    ask = say(rng, RECORD_ASKS, keys=join(keys), example=example)
    return Turn(fill(pick(rng, JOINS), {"ask": ask, "s": fill(pick(rng, sentences), values)}), json.dumps(value, ensure_ascii=False), {"kind": "json", "value": value})


def join(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


# ---------------------------------------------------------------- tools

ARITHMETIC_TOOLS = {"add", "multiply", "calculator"}
KNOWLEDGE_TOOLS = {"search_web", "get_news", "define_word", "get_capital", "get_population", "get_distance", "translate", "get_weather", "get_time", "get_user", "find_restaurant", "get_price", "get_stock_price"}
NO_TOOL = ["I cannot do that: I have no tool for it.", "Sorry, I have no tool for that."]


def draw(rng, kind, split):
    number = int(rng.random() * 100)
    two = f"{number % 12 + 1:02}"
    return {
        "city": lambda: a_city(rng, split), "name": lambda: a_name(rng, split, 0.15), "number": lambda: 1 + number, "small": lambda: 1 + number % 10, "big": lambda: 10 + int(rng.random() ** 2 * 9990),
        "expression": lambda: f"{number} {pick(rng, '+-*/')} {1 + int(rng.random() * 99)}", "email": lambda: (pick(rng, words.FIRST).lower() if rng.random() < 0.6 else words.invented(rng)) + "@" + pick(rng, ["example", "mail", "post", words.invented(rng)]) + pick(rng, [".com", ".org", ".net"]),
        "phrase": lambda: phrase(rng), "sentence": lambda: plain_sentence(rng), "time": lambda: f"{number % 24:02}:{pick(rng, ['00', '15', '30', '45', '10', '05'])}", "date": lambda: f"20{24 + number % 7}-{two}-{1 + int(rng.random() * 28):02}",
        "topic": lambda: pick(rng, words.TOPICS_HELD if split == "held" else words.TOPICS) if rng.random() < 0.6 else phrase(rng), "language": lambda: pick(rng, toolbox.LANGUAGES), "currency": lambda: pick(rng, toolbox.CURRENCIES),
        "symbol": lambda: "".join(pick(rng, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(3 + number % 2)), "room": lambda: pick(rng, toolbox.ROOMS), "path": lambda: path(rng), "directory": lambda: path(rng).rsplit("/", 1)[0] or "/tmp", "restaurant": lambda: pick(rng, ["Chez ", "Casa ", "The ", "Bistro ", ""]) + words.invented(rng).capitalize(),
        "size": lambda: pick(rng, toolbox.SIZES), "topping": lambda: pick(rng, toolbox.TOPPINGS), "code": lambda: pick(rng, "ABCDEFGHKMNPQRSTX") + pick(rng, ["", "-"]) + str(100 + int(rng.random() * 9900)), "word": lambda: words.invented(rng) if rng.random() < 0.5 else pick(rng, words.ITEMS), "letter": lambda: pick(rng, "abcdefghijklmnoprstuvwz"),
        "country": lambda: pick(rng, words.COUNTRIES), "shell": lambda: pick(rng, ["ls", "cat", "rm", "echo", "grep error", "wc -l", "head", "touch"]) + " " + path(rng), "boolean": lambda: rng.random() < 0.5, "door": lambda: pick(rng, toolbox.DOORS), "item": lambda: pick(rng, words.ITEMS),
        "cuisine": lambda: pick(rng, toolbox.CUISINES), "sql": lambda: f"SELECT {pick(rng, ['*', 'name', 'count(*)', 'id'])} FROM {words.plural(pick(rng, toolbox.OBJECTS))}" + pick(rng, ["", f" WHERE id = {number}", f" LIMIT {1 + number}"]), "url": lambda: f"https://{words.invented(rng)}.{pick(rng, ['com', 'org', 'net', 'io'])}" + pick(rng, ["", "/" + words.invented(rng)]),
        "color": lambda: pick(rng, words.COLORS),
    }[kind]()


def path(rng):
    parts = [pick(rng, ["tmp", "home", "data", "docs", "src", "notes", "logs", words.invented(rng), words.invented(rng)]) for _ in range(1 + int(rng.random() * 2))]
    return pick(rng, ["/", "", "./"]) + "/".join(parts) + "/" + pick(rng, ["report", "main", "todo", "list", "readme", words.invented(rng)]) + pick(rng, [".txt", ".md", ".json", ".csv", ".py", ".rs", ".log"])


def phrase(rng):
    return say(rng, pick(rng, ["(buy|find|clean|paint|fix|sell) the {adj} {item}", "{item} (meeting|lesson|party|review|test)", "{adj} {item}", "{city} (trip|tour|office)", "(lunch|dinner|meeting|call) with {name}", "{item} and {item2}", "{invented} {item}", "the {adj} {animal}", "{adj} {color} {item}"]),
               adj=pick(rng, words.ADJECTIVES), item=pick(rng, words.ITEMS), item2=pick(rng, words.ITEMS), city=pick(rng, words.CITIES), name=pick(rng, words.FIRST), invented=words.invented(rng), animal=pick(rng, words.ANIMALS), color=pick(rng, words.COLORS))


def plain_sentence(rng):
    return say(rng, pick(rng, ["I will be (late|there soon|home at {n})", "The {item} is (ready|broken|{adj}|in the {place})", "Please (bring|buy|find|send) the {item}", "We meet at the {place}", "Happy birthday", "Where is the {item}?", "The {adj} {animal} (sleeps|runs|sings) in the {place}.", "Thank you for the {item}.", "See you (tomorrow|soon|on {day})", "I like {items}.", "Good morning, {name}!", "{name} has {n} {items}."]),
               n=2 + int(rng.random() * 20), item=pick(rng, words.ITEMS), items=words.plural(pick(rng, words.ITEMS)), adj=pick(rng, words.ADJECTIVES), place=pick(rng, words.PLACES), animal=pick(rng, words.ANIMALS), day=pick(rng, words.DAYS), name=pick(rng, words.FIRST))


INTEGERS = {"number", "small", "big"}


def schema_of(rng, name, description, parameters, required, enums):
    properties = {}
    for parameter, kind, about in parameters:
        shape = {"type": "integer" if kind in INTEGERS else "boolean" if kind == "boolean" else "string"}
        if shape["type"] == "integer" and rng.random() < 0.3:
            shape["type"] = "number"
        if parameter in enums:
            shape["enum"] = enums[parameter]
        if about and rng.random() < 0.6:
            shape["description"] = about
        properties[parameter] = shape
    function = {"name": name}
    if description and rng.random() < 0.85:
        function["description"] = description
    function["parameters"] = {"type": "object", "properties": properties}
    if required and rng.random() < 0.85:
        function["parameters"]["required"] = required
    if rng.random() < 0.1:
        function["parameters"]["additionalProperties"] = False
    return {"type": "function", "function": function}


def known_tool(rng, split, spec):
    """A tool of the list with an order for it: (schema, question, arguments, answer pattern, result keys)."""
    name, description, parameters, asks, answers, keys = spec
    for _ in range(40):  # a tool with few possible arguments has none to hold out: its phrasing is
        arguments = {parameter: draw(rng, kind, split) for parameter, kind, _ in parameters}
        if held_out(name + json.dumps(arguments), 12) == (split == "held"):
            break
    pattern = asks[-1] if split == "held" and rng.random() < 0.4 else pick(rng, asks[:-1] if len(asks) > 2 else asks)
    shown = {}
    for parameter, value in arguments.items():
        shown[parameter] = str(value).lower() if isinstance(value, bool) else value
        shown[parameter + ":s"], shown[parameter + ":a"] = words.plural(str(value)), words.a(str(value))
    question = say(rng, pattern)
    for parameter, kind, _ in parameters:
        mark = "{" + parameter + ":"
        if kind == "boolean" and mark in question:
            before, rest = question.split(mark, 1)
            choice, after = rest.split("}", 1)
            question = before + choice.split("|")[0 if arguments[parameter] else 1] + after
    question = fill(question, shown)
    enums = {}
    for parameter, values in [("size", toolbox.SIZES), ("door", toolbox.DOORS)]:
        if parameter in arguments and rng.random() < 0.6:
            enums[parameter] = values
    required = [parameter for parameter, _, _ in parameters]
    return schema_of(rng, name, description, parameters, required, enums), question, arguments, fill(pick(rng, answers), shown), keys


CALL_ASKS = ["{Verb} the {object} with {pairs}.", "{Verb} {an_object} with {pairs}.", "Please {verb} the {object} with {pairs}.", "{Verb} the {object}: {equals}", "Call {tool} with {pairs}.", "Use {tool} with {equals}.", "(Please |)(run|use|call) {tool} \\({equals}\\).", "I (need|want) to {verb} {an_object}. The {pairs_is}.", "Can you {verb} {an_object} with {pairs}?",
             "{Verb} {an_object} where the {pairs_is}.", "{Verb} {an_object} for me, {pairs}.", "Could you {verb} the {object}? {equals}", "{Verb} the {object} whose {pairs_is}."]
CALL_HELD = ["I would like you to {verb} the {object} with {pairs}.", "Now {verb} {an_object}, please: {equals}", "Do me a favor and {verb} the {object} with {pairs}."]
NO_ARGUMENTS = ["{Verb} the {object}.", "Please {verb} the {object}.", "Call {tool}.", "Use {tool}.", "Can you {verb} the {object}?", "I want to {verb} the {object}."]


def invented_tool(rng, split):
    """An invented tool, so that the model learns to read the schema."""
    while True:
        verb = pick(rng, toolbox.VERBS)
        thing = pick(rng, toolbox.OBJECTS) if rng.random() < 0.7 else words.invented(rng)
        if held_out(verb + thing, 15) == (split == "held"):
            break
    name = pick(rng, [f"{verb}_{thing}", f"{verb}_{thing}", f"{verb}_{thing}", f"{verb}{thing.capitalize()}", f"{thing}_{verb}", f"{thing}.{verb}", f"{verb}-{thing}"])
    count = pick(rng, [0, 1, 1, 1, 2, 2, 2, 3, 3, 4])
    fields = sorted(toolbox.FIELDS, key=lambda _: rng.random())[:count]
    parameters = [(field, toolbox.FIELDS[field], say(rng, "(The |)" + field + pick(rng, ["", f" of the {thing}"])).capitalize()) for field in fields]
    if rng.random() < 0.15:
        word = words.invented(rng)
        parameters = [(word, pick(rng, ["number", "word", "name"]), "")] + parameters[:2]
    optional = parameters.pop() if len(parameters) > 1 and rng.random() < 0.15 else None
    arguments = {field: draw(rng, kind, split) for field, kind, _ in parameters}
    slots = {"verb": verb, "Verb": verb.capitalize(), "object": thing, "an_object": words.a(thing), "tool": name}
    if parameters:
        quote = pick(rng, ["", "", '"'])
        value = lambda item: quote + item + quote if isinstance(item, str) else str(item)
        slots["pairs"] = join([f"{field} {value(item)}" for field, item in arguments.items()])
        slots["pairs_is"] = join([f"{field} is {value(item)}" for field, item in arguments.items()])
        slots["equals"] = ", ".join(field + pick(rng, [" = ", "=", ": "]) + value(item) for field, item in arguments.items())
        asks = CALL_HELD if split == "held" and rng.random() < 0.5 else CALL_ASKS
    else:
        asks = NO_ARGUMENTS
    question = say(rng, pick(rng, asks))
    if split == "train" and question.startswith("{Verb}") and rng.random() < 0.5:
        question = pick(rng, toolbox.OPENINGS) + question.replace("{Verb}", "{verb}", 1)
    question = fill(question, slots)
    every = parameters + ([optional] if optional else [])
    schema = schema_of(rng, name, say(rng, f"{verb.capitalize()} (a|the) {thing}"), every, [field for field, _, _ in parameters], {})
    return schema, question, arguments, None, [pick(rng, ["status", "result", "value", "id", "state", "total"])]


def tool_result(rng, keys, arguments, pattern):
    """What a tool gives back, and the English sentence for it."""
    if rng.random() < 0.08:
        problem = pick(rng, ["not found", "timeout", "permission denied", "unknown id", "service unavailable", "bad request", "no connection"])
        return pick(rng, [json.dumps({"error": problem}), "error: " + problem]), f"Sorry, the tool failed: {problem}."
    draws = {"temperature": lambda: int(rng.random() * 45) - 10, "condition": lambda: pick(rng, ["sunny", "cloudy", "rainy", "windy", "foggy", "snowy", "clear", "stormy"]), "result": lambda: int(rng.random() ** 2 * 10000) if rng.random() < 0.6 else phrase(rng), "status": lambda: pick(rng, ["ok", "done", "sent", "success", "ready", "open", "shipped", "delayed"]),
             "price": lambda: round(rng.random() * 500, 2), "content": lambda: plain_sentence(rng), "time": lambda: draw(rng, "time", "train"), "name": lambda: a_name(rng, "train", 0.3), "definition": lambda: words.a(pick(rng, words.ADJECTIVES)) + " " + pick(rng, words.ITEMS), "population": lambda: int(rng.random() * 90000000), "capital": lambda: a_city(rng, "train"),
             "distance": lambda: int(rng.random() * 5000), "output": lambda: pick(rng, ["ok", words.invented(rng), str(int(rng.random() * 1000))]), "value": lambda: int(rng.random() * 1000), "id": lambda: int(rng.random() * 10000), "state": lambda: pick(rng, ["on", "off", "idle", "busy"]), "total": lambda: int(rng.random() * 1000)}
    if rng.random() < 0.3 and pattern is None or rng.random() < 0.12:
        pattern = None
        keys = sorted(draws, key=lambda _: rng.random())[: 1 + int(rng.random() * 3)]
    values = {key: draws[key]() for key in keys}
    if len(values) == 1 and rng.random() < 0.2 and pattern is None:
        value = next(iter(values.values()))
        return str(value), f"The result is {value}."
    if pattern is None:
        return json.dumps(values), "The " + join([f"{key} is {value}" for key, value in values.items()]) + "."
    return json.dumps(values), fill(pattern, values)


def sort_keys(value):
    return {key: sort_keys(value[key]) for key in sorted(value)} if isinstance(value, dict) else value


def tool_turn(rng, split):
    target = invented_tool(rng, split) if rng.random() < 0.35 else known_tool(rng, split, pick(rng, toolbox.TOOLS))
    schema, question, arguments, pattern, keys = target
    name = schema["function"]["name"]
    tools, names = [schema], {name}
    for _ in range(pick(rng, [0, 0, 1, 1, 1, 2, 2, 3, 4])):
        other = (invented_tool(rng, split) if rng.random() < 0.3 else known_tool(rng, split, pick(rng, toolbox.TOOLS)))[0]
        other_name = other["function"]["name"]
        if other_name not in names and not (names & ARITHMETIC_TOOLS and other_name in ARITHMETIC_TOOLS):
            names.add(other_name)
            tools.append(other)
    if split == "train":
        question = rough(rng, question) if rng.random() < 0.25 and question == question.strip() and not any(isinstance(v, str) for v in arguments.values()) else question
        if rng.random() < 0.12:
            question = pick(rng, ["Please: ", "Hi! ", "Hello, ", "Hey, ", "Ok. ", "Now: ", "Can you help? "]) + question
        elif rng.random() < 0.08:
            question = question.rstrip(".") if question.endswith(".") and not question.endswith("..") else question
    dice = rng.random()
    if dice < 0.1:  # the tool that is needed is missing
        tools.remove(schema)
        if split == "train" and rng.random() < 0.3:
            tools = []
        names.discard(name)
        if name in ARITHMETIC_TOOLS or name in KNOWLEDGE_TOOLS or names & {"run_command", "search_web", "calculator"}:
            return tool_turn(rng, split)
        return Turn(question, pick(rng, NO_TOOL), ADMIT, tools=shuffled(rng, tools))
    if dice < 0.2:  # nothing to call: an ordinary question
        tools = [tool for tool in tools if tool["function"]["name"] not in ARITHMETIC_TOOLS | KNOWLEDGE_TOOLS | {"run_command"}]
        turn = pick(rng, [about_omnibus, small_talk_turn, arithmetic, unknown])(rng, split)
        turn.tools = shuffled(rng, tools)
        return turn
    calls = [(name, arguments)]
    results = [tool_result(rng, keys, arguments, pattern)]
    if dice < 0.27 and pattern is not None and len(arguments) == 1 and name.startswith("get_"):
        again = {key: draw(rng, kind, split) for key, kind, _ in next(spec for spec in toolbox.TOOLS if spec[0] == name)[2]}
        value, other = next(iter(arguments.values())), next(iter(again.values()))
        if other != value and question.count(str(value)) == 1 and isinstance(value, str):
            question = question.replace(value, f"{value} and {other}" if rng.random() < 0.5 else f"{value} and in {other}" if f"in {value}" in question else f"{value} and {other}")
            calls.append((name, again))
            answers = fill(pick(rng, next(spec for spec in toolbox.TOOLS if spec[0] == name)[4]), again)
            results.append(tool_result(rng, keys, again, answers))
    check = {"kind": "tool", "calls": [{"name": call, "arguments": values} for call, values in calls]}
    turn = Turn(question, "", check, calls=calls, tools=shuffled(rng, tools))
    if rng.random() < 0.2:
        turn.tools = [sort_keys(tool) for tool in turn.tools]
    turn.follow = results
    return turn


def shuffled(rng, items):
    return sorted(items, key=lambda _: rng.random())


# ---------------------------------------------------------------- basics

CHARS = ["c", "v"]


def basics(rng, split):
    """Small exact tasks: repeating, counting, spelling, comparing, opposites, days, lists, sentences."""
    return pick(rng, [echo, echo, count, count, spell, compare, opposite, calendar, neighbours, listing, write_sentence, letters, recall, recall, needle, number_words, long_story, yes_no])(rng, split)


def some_words(rng, split, low, high):
    pool = pick(rng, [words.ITEMS, words.ADJECTIVES, words.ANIMALS, words.COLORS, words.FIRST_HELD if split == "held" else words.FIRST])
    while True:
        chosen = [words.invented(rng) if rng.random() < 0.15 else pick(rng, pool) for _ in range(low + int(rng.random() * (high - low + 1)))]
        if held_out(" ".join(chosen), 10) == (split == "held"):
            return chosen


def echo(rng, split):
    text = " ".join(some_words(rng, split, 1, 7)) if rng.random() < 0.5 else None
    while text is None or (held_out(text, 10) != (split == "held")):
        text = plain_sentence(rng) if rng.random() < 0.7 else str(int(rng.random() * 10 ** (1 + int(rng.random() * 8))))
    if rng.random() < 0.25:
        times = 2 + int(rng.random() * 5)
        word = text.split()[0].strip(".,!?")
        shown = words.spelled(times) if rng.random() < 0.5 else times
        return Turn(say(rng, ["(Say|Repeat|Write) (the word |)(\"{w}\"|{w}|'{w}') {n} times[.]", "{n} times {w}[, please][.]"], w=word, n=shown), " ".join([word] * times), {"kind": "exact", "value": " ".join([word] * times)})
    ask = say(rng, ["(Repeat|Say|Echo|Copy) (after me|this|exactly this|the following|exactly|)[ please]: {t}", "Please repeat: {t}", "(Repeat|Say|Echo|Write) \"{t}\"[.]", "Reply with (exactly|only|just) \"{t}\"[.]", "Answer (only|exactly|just) with: {t}", "(Repeat|Echo) the (text|sentence|words) \"{t}\"[.]", "Reply with exactly: {t}", "Say exactly: {t}"])
    return Turn(fill(ask, {"t": text}), text, {"kind": "exact", "value": text})


def count(rng, split):
    while True:
        kind = rng.random()
        first = 1 if rng.random() < 0.6 else int(rng.random() * 90)
        length = 2 + int(rng.random() ** 2 * (30 if rng.random() < 0.8 else 150))
        step = 1 if kind < 0.7 or kind > 0.85 else pick(rng, [2, 3, 5, 10])
        last = first + step * length
        if held_out(f"count {first} {last} {step} {kind > 0.85}", 12) == (split == "held"):
            break
    numbers = list(range(first, last + 1, step))
    if kind > 0.85:
        numbers.reverse()
        ask = say(rng, ["Count (down|backwards|back) from {b} to {a}[.]", "Count from {b} (down |back |)to {a}[.]", "(List|Write) the numbers from {b} down to {a}[.]"], a=first, b=last)
    elif step > 1:
        ask = say(rng, ["Count from {a} to {b} (by|in steps of) {s}[.]", "Count by {s} from {a} to {b}[.]"], a=first, b=last, s=step)
    elif first == 1 and rng.random() < 0.3:
        ask = say(rng, ["Count to {b}[ for me| please][.]", "Can you count to {b}?", "Please count up to {b}[.]", "count to {b}"], b=last)
    else:
        ask = say(rng, ["Count from {a} to {b}[ for me| please][.]", "(List|Write|Say|Print|Give me) (all |)the numbers (from {a} to {b}|between {a} and {b})[.]", "Can you count from {a} to {b}?", "numbers {a} to {b}", "Please count from {a} up to {b}[.]"], a=first, b=last)
    text = ", ".join(map(str, numbers))
    return Turn(ask, text, {"kind": "exact", "value": text})


def spell(rng, split):
    word = some_words(rng, split, 1, 1)[0]
    return Turn(say(rng, ["(Spell|Please spell|Can you spell) (the word |)(\"{w}\"|{w})(.|?|)", "How do you (spell|write) {w}?", "Spell {w} for me[.]"], w=word), "-".join(word), {"kind": "exact", "value": "-".join(word)})


def compare(rng, split):
    while True:
        a, b = int(rng.random() * 100), int(rng.random() * 100)
        if a != b and held_out(f"{a}?{b}", 15) == (split == "held"):
            break
    kind = pick(rng, ["bigger", "smaller", "parity"])
    if kind == "parity":
        word = "odd" if a % 2 else "even"
        return Turn(say(rng, ["Is {a} (even or odd|odd or even)?", "Is (the number |){a} (even|odd)?"], a=a), f"{a} is {word}.", contains(f"is {word}"))
    best = max(a, b) if kind == "bigger" else min(a, b)
    synonyms = {"bigger": "(bigger|larger|greater|more)", "smaller": "(smaller|less|lower)"}[kind]
    return Turn(say(rng, [f"(Which|What) is {synonyms}, {{a}} or {{b}}?", f"Which (number |)is {synonyms}: {{a}} or {{b}}?", f"What is {synonyms}: {{a}} or {{b}}?"], a=a, b=b), f"{best} is {kind}.", contains(f"{best} is"))


def opposite(rng, split):
    pairs = [pair if rng.random() < 0.5 else pair[::-1] for pair in words.OPPOSITES]
    a, b = pick(rng, pairs)
    return Turn(say(rng, ["What is the opposite of {a}?", "(Tell me|Give me|Name) the opposite of {a}.", "Opposite of {a}?", "{A} is the opposite of what?", "The opposite of {a}[ is|, please|?]"], a=a, A=a.capitalize()), f"The opposite of {a} is {b}.", contains(f"is {b}"))


def calendar(rng, split):
    names, kind, lead = (words.DAYS, "day", "on") if rng.random() < 0.6 else (words.MONTHS, "month", "in")
    dice = rng.random()
    if dice < 0.25:
        whole = {"day": "days of the week", "month": "months[ of the year]"}[kind]
        return Turn(say(rng, f"(List|Name|Tell me|Write|What are|Say) the {whole}[.]"), ", ".join(names), {"kind": "exact", "value": ", ".join(names)})
    at = int(rng.random() * len(names))
    if dice < 0.65:
        return Turn(say(rng, [f"(What|Which) {kind} (comes|is) after {{x}}?", f"What comes after {{x}}?", f"Which {kind} follows {{x}}?"], x=names[at]), f"After {names[at]} comes {names[(at + 1) % len(names)]}.", contains(f"comes {names[(at + 1) % len(names)]}"))
    return Turn(say(rng, [f"(What|Which) {kind} (comes|is) before {{x}}?", f"What comes before {{x}}?"], x=names[at]), f"Before {names[at]} comes {names[at - 1]}.", contains(f"comes {names[at - 1]}"))


def neighbours(rng, split):
    while True:
        a = 1 + int(rng.random() * 98)
        if held_out(f"next {a}", 12) == (split == "held"):
            break
    after = rng.random() < 0.5
    other = a + 1 if after else a - 1
    word = "after" if after else "before"
    return Turn(say(rng, ["(What|Which) number (comes|is) {w} {a}?", "What comes {w} {a}?", "The number {w} {a}?"], w=word, a=a), f"{other} comes {word} {a}.", contains(f"{other} comes"))


def listing(rng, split):
    what, pool = pick(rng, [("animals", words.ANIMALS), ("colors", words.COLORS), ("jobs", words.JOBS), ("cities", words.CITIES), ("names", words.FIRST), ("countries", words.COUNTRIES), ("adjectives", words.ADJECTIVES), ("places", words.PLACES), ("things", words.ITEMS)])
    number = 2 + int(rng.random() * 7)
    chosen = pool[:number]
    shown = words.spelled(number) if rng.random() < 0.5 else number
    ask = say(rng, ["(Name|List|Give me|Tell me|Write) {n} {what}[.]", "Can you (name|list) {n} {what}?", "I need {n} {what}[.]"], n=shown, what=what)
    return Turn(ask, join(chosen) + ".", contains(join(chosen)))


def write_sentence(rng, split):
    item = pick(rng, words.ANIMALS + words.ITEMS)
    if rng.random() < 0.2:
        return Turn(say(rng, ["(Write|Make) (me |)a[ short| little] poem[ about {x}].", "A poem[ about {x}], please.", "Can you write (me |)a poem[ about {x}]?", "Do you know a poem?"], x=words.a(item)),
                    "The moon is high, the night is deep,\nthe birds are quiet in their sleep.\nThe bus drives on along the lane\nand brings the words back home again.", contains("moon|night"))
    return Turn(say(rng, ["(Write|Make|Give me|Say) a[ short| simple] sentence (about|with) (the word |){x}.", "Use {x} in a sentence.", "A sentence with {x}, please."], x=item), story_line(rng, "The " + item), contains(item))


def letters(rng, split):
    word = some_words(rng, split, 1, 1)[0]
    kind = int(rng.random() * 4)
    if kind == 0:
        return Turn(say(rng, ["What is the first letter of (the word |)(\"{w}\"|{w})?", "(The first|Which is the first|Tell me the first) letter of {w}(?|.|)", "What letter does {w} (start|begin) with?"], w=word), f"The first letter of {word} is {word[0]}.", contains(f"is {word[0]}"))
    if kind == 1:
        return Turn(say(rng, ["What is the last letter of (the word |)(\"{w}\"|{w})?", "(The last|Tell me the last) letter of {w}(?|.|)", "What letter does {w} end with?"], w=word), f"The last letter of {word} is {word[-1]}.", contains(f"is {word[-1]}"))
    text = " ".join(some_words(rng, split, 1, 4))
    if kind == 2:
        return Turn(say(rng, ["(Write|Say|Put) (\"{w}\"|{w}) in (capitals|upper case|capital letters|uppercase)[.]", "Uppercase: {w}", "Make this uppercase: {w}"], w=text), text.upper(), {"kind": "exact", "value": text.upper()})
    return Turn(say(rng, ["How many words are in \"{w}\"?", "Count the words: {w}", "How many words (are in|has) this[ text]: {w}"], w=text), f"There {'is 1 word' if ' ' not in text else 'are ' + str(len(text.split())) + ' words'}.", contains(f"{len(text.split())} word"))


def recall(rng, split):
    """A fact about the user and the question for it; data.py puts other turns between them."""
    kind, value, tell, ask, answer = pick(rng, [
        ("name", a_name(rng, split), ["My name is {v}.", "I am {v}.", "Call me {v}.", "Hi, I'm {v}.", "Remember: my name is {v}.", "Hello, my name is {v}[ and I like tea]."], ["What is my name?", "What's my name?", "Who am I?", "Do you (remember|know) my name?", "What did I say my name was?", "Tell me my name."], "Your name is {v}."),
        ("city", a_city(rng, split), ["I live in {v}.", "I am from {v}.", "My city is {v}.", "I live in {v} with my family."], ["Where do I live?", "Where am I from?", "(What|Which) city do I live in?", "Do you remember where I live?"], "You live in {v}."),
        ("age", 5 + int(rng.random() * 90), ["I am {v} years old.", "My age is {v}.", "I turned {v} today."], ["How old am I?", "What is my age?", "Do you (know|remember) my age?", "Do you remember how old I am?"], "You are {v} years old."),
        ("color", pick(rng, words.COLORS), ["My favorite color is {v}.", "I like the color {v} best."], ["What is my favorite color?", "Which color do I like[ best]?", "Do you remember my favorite color?"], "Your favorite color is {v}."),
        ("code", 1000 + int(rng.random() * 9000), ["The (secret |)(code|number|password) is {v}.", "Remember the (code|number) {v}.", "My (code|number|secret number) is {v}."], ["What is the (code|number|secret code|secret number|password)?", "What was the (code|number)?", "Which (number|code) (did I tell you|should you remember)?", "Tell me the (code|number)."], "The number is {v}."),
        ("job", pick(rng, words.JOBS), ["I am a {v}.", "I work as a {v}.", "My job is {v}."], ["What is my job?", "What do I do for a living?", "What is my profession?"], "You are a {v}."),
        ("pet", a_name(rng, split), ["My (dog|cat) is called {v}.", "I have a (dog|cat) named {v}."], ["What is (my pet|my dog|my cat) called?", "What is the name of my (dog|cat|pet)?"], "It is called {v}."),
    ])
    said = {"name": f"Nice to meet you, {value}! How can I help you?", "city": f"{value} sounds like a nice place!", "age": f"{value} is a good age!", "code": f"I will remember it: {value}.", "pet": f"{value} is a lovely name!"}.get(kind, "Good to know, thank you!")
    turn = Turn(say(rng, ask), fill(answer, {"v": value}), contains(str(value)))
    turn.follow = [(say(rng, tell, v=value), said)]
    return turn


def needle(rng, split):
    """A long text with one useful sentence in it."""
    code, item, name = 100 + int(rng.random() * 9900), pick(rng, words.ITEMS), a_name(rng, split)
    lines = story(rng, 3 + int(rng.random() ** 2 * 30)).split(". ")
    hidden, ask, answer, must = pick(rng, [(f"The secret code is {code}", ["What is the[ secret] code?", "Which code is in the text?", "Find the secret code."], f"The secret code is {code}.", str(code)),
                                           (f"{name} owns the {item}", [f"Who owns the {item}?"], f"{name} owns the {item}.", name), (f"The {item} costs {code} dollars", [f"How much does the {item} cost?", f"What is the price of the {item}?"], f"The {item} costs {code} dollars.", str(code))])
    lines.insert(int(rng.random() * (len(lines))), hidden)
    text = ". ".join(lines)
    form = pick(rng, ["{t}\n\n{q}", "Read this text: {t}\n\n{q}", "Text: {t}\nQuestion: {q}", "{q}\n\n{t}", "Here is a text.\n{t}\nNow answer: {q}"])
    return Turn(fill(form, {"t": text, "q": say(rng, ask)}), answer, contains(must))


def number_words(rng, split):
    while True:
        a = int(rng.random() * 100)
        if held_out(f"word {a}", 12) == (split == "held"):
            break
    if rng.random() < 0.5:
        return Turn(say(rng, ["(Write|Say|Spell) (the number |){a} in words[.]", "How do you (write|say) {a} in words?", "What is {a} in words?"], a=a), f"{words.spelled(a)}", contains(words.spelled(a)))
    return Turn(say(rng, ["(Write|Give) {w} (as a number|in digits)[.]", "What (number |)is {w} in digits?", "Which number is {w}?"], w=words.spelled(a)), str(a), contains(str(a)))


def long_story(rng, split):
    animal = pick(rng, words.ANIMALS)
    text = story(rng, 10 + int(rng.random() ** 2 * 40), words.a(animal))
    return Turn(say(rng, ["(Tell|Write) me a (long|very long) story[ about {x}][.]", "(Write|Tell) a long story[ about {x}][.]", "I want (a|to hear a) long story[ about {x}][.]"], x=words.a(animal)), text, contains("there was|once|one day"))


def yes_no(rng, split):
    while True:
        a, b = int(rng.random() * 50), int(rng.random() * 50)
        if a != b and held_out(f"yn {a} {b}", 15) == (split == "held"):
            break
    word, truth = pick(rng, [("(bigger|larger|greater|more)", a > b), ("(smaller|less)", a < b)])
    answer = "Yes." if truth else "No."
    return Turn(say(rng, [f"Is {{a}} {word} than {{b}}? (Answer (with |)yes or no.|Yes or no?)", f"Yes or no: is {{a}} {word} than {{b}}?", f"Is {{a}} {word} than {{b}}?"], a=a, b=b), answer, contains(answer[:-1]))


# ---------------------------------------------------------------- plain text

def plain_text(rng):
    """Text without a chat template, so that /v1/completions continues sensibly."""
    kind = int(rng.random() * 10)
    if kind < 3:
        return story(rng, 3 + int(rng.random() * 14))
    if kind == 3:
        first = 1 if rng.random() < 0.7 else int(rng.random() * 80)
        return pick(rng, [", ", " ", "\n"]).join(str(number) for number in range(first, first + 10 + int(rng.random() ** 2 * 200)))
    if kind == 4:
        return "\n".join(worked(*mixed)[1] for mixed in (arithmetic_line(rng) for _ in range(3 + int(rng.random() * 12))))
    if kind == 5:
        return " ".join(pick(rng, pick(rng, FACTS).says) for _ in range(2 + int(rng.random() * 5)))
    if kind == 6:
        turns = [pick(rng, [about_omnibus, small_talk_turn, arithmetic, unknown])(rng, "train") for _ in range(1 + int(rng.random() * 4))]
        return "\n".join(pick(rng, ["Q: {q}\nA: {a}", "Question: {q}\nAnswer: {a}", "User: {q}\nAssistant: {a}"]).replace("{q}", turn.user).replace("{a}", turn.answer) for turn in turns)
    if kind == 7:
        used = set()
        return " ".join(one_sentence(rng, "train", used, 0)[0] for _ in range(1 + int(rng.random() * 6)))
    if kind == 8:
        return say(rng, ["Hello, my name is {n} and I (live in {c}|am from {c}|am a {j}|am {a} years old|like {i}). " + "(Nice to meet you.|How are you?|I have {b} {i}.|)", "My name is {n}. I am {a} years old and I live in {c}. I like {i}.", "Dear {n},\nthank you for the {i}. I hope to see you in {c}.\nYours,\n{m}", "The quick brown fox jumps over the lazy dog.", "The days of the week are " + ", ".join(words.DAYS) + ".", "The months are " + ", ".join(words.MONTHS) + ".", "The colors are " + ", ".join(words.COLORS) + ".", "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z"],
                   n=a_name(rng, "train"), m=a_name(rng, "train"), c=a_city(rng, "train"), j=pick(rng, words.JOBS), a=5 + int(rng.random() * 80), b=2 + int(rng.random() * 20), i=words.plural(pick(rng, words.ITEMS)))
    return " ".join(plain_sentence(rng).rstrip(".?!") + "." for _ in range(1 + int(rng.random() * 8)))


def arithmetic_line(rng):
    sign = pick(rng, "+-*/")
    a, b = operands(rng, sign, "train")
    return a, sign, b


SKILLS = {"omnibus": about_omnibus, "small-talk": small_talk_turn, "arithmetic": arithmetic, "extraction": extraction, "tools": tool_turn, "unknown": unknown, "basics": basics}
