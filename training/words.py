"""Word lists that the corpus is built from: names, things, places, verbs. Names for the held-out prompts stand apart."""

FIRST = """Anna Ben Clara David Emma Felix Grace Henry Ida Jack Kate Leo Maria Noah Olivia Paul Quinn Rosa Sam Tina Uma Victor
Wendy Xavier Yara Zoe Alice Bob Carol Dan Eve Frank Gina Hugo Iris Jonas Karl Lena Max Nina Oscar Petra Ralf Sara Tom Ursula
Vera Walter Yusuf Zara Adam Bella Chloe Diego Elena Fatima George Hannah Ivan Julia Kevin Laura Marco Nora Omar Priya Raj
Sofia Tariq Viktor Wei Yuki Amir Bruno Celine Dora Erik Fiona Gustav Helga Igor Jana Kofi Linh Mateo Nadia Otto Pablo Rita
Stefan Tanya Ulrich Valeria Willem Yasmin Zoltan Aisha Boris Carmen Dmitri Esther Farid Greta Hassan Ingrid Javier Kim Lucas
Mei Nikolai Ophelia Pedro Rachel Simon Theo Violet William Amelia Arthur Charlotte Daniel Edith Freya Gabriel Harriet Isaac
James Kira Liam Matilda Nathan Oliver Penny Robert Stella Thomas Ava Ella Ethan Jacob Lily Mason Mia Ryan Ruby Sophie Peter
John Mary Linda Susan Karen Lisa Nancy Betty Helen Mark Donald Steven Andrew Joshua Brian Edward Ronald Timothy Jason Jeff
Gary Eric Larry Scott Justin Brandon Amy Angela Brenda Pamela Emily Megan Cheryl Martha Debra Janet Carl Roger Keith Jeremy
Terry Sean Austin Jesse Joe Billy Bryan Bruce Jordan Dylan Alan Ralph Gabe Roy Juan Wayne Eugene Logan Randy Louis Russell
Vincent Philip Bobby Johnny Bradley Ahmed Ali Chen Li Ming Sanjay Anita Deepak Kavya Arjun Hiroshi Kenji Sakura Aiko Olga
Svetlana Pierre Claire Antoine Camille Luca Giulia Paolo Chiara Lars Astrid Sven Freja Ana Joao Miguel Lucia Carlos Isabel
Kwame Amara Zainab Chidi Ngozi Tunde Layla Karim Samira Reza Leila Darius Ezra Levi Miriam Naomi Jonah Seth Tess Vince
Maya Kai Milo Luna Otis Pia Remy Silas Toby Una Wren Yvonne Zack Abby Becky Cody Dean Elsa Finn Gwen Holly Ian Jill Kurt
Lance Mona Ned Opal Perry Rex Sid Trudy Vito Wanda Alex Chris Pat Robin Jamie Taylor Morgan Casey Riley Jo Al Ed Bo Cy""".split()

FIRST_HELD = """Agnes Basil Cecilia Dominic Eloise Fergus Gloria Harold Imogen Jasper Katarina Leonard Margot Neville Odette
Prudence Rupert Sabrina Tobias Valentin Winston Zelda Bianca Caleb Delia Edgar Flora Gideon Hilda Irving Joanna Kendra Lionel
Marcus Nadine Orson Patricia Roland Sylvia Tristan Vivian Warren Yolanda Albert Beatrice Conrad Diana Elliot Faith Gilbert""".split()

LAST = """Smith Jones Brown Miller Davis Wilson Moore Taylor Anderson Thomas Jackson White Harris Martin Thompson Garcia Martinez
Robinson Clark Lewis Lee Walker Hall Allen Young King Wright Lopez Hill Green Adams Baker Nelson Carter Mitchell Perez Roberts
Turner Phillips Campbell Parker Evans Edwards Collins Stewart Morris Rogers Reed Cook Bell Murphy Bailey Cooper Kelly Howard
Ward Cox Diaz Wood Watson Brooks Bennett Gray Hughes Price Long Foster Sanders Ross Schmidt Weber Meyer Wagner Becker Novak
Kowalski Ivanov Petrov Rossi Ferrari Silva Santos Tanaka Sato Suzuki Kim Park Nguyen Tran Singh Patel Khan Haddad Okafor
Mensah Larsen Hansen Berg Lind Dubois Laurent Moreau Keller Fischer""".split()

CITIES = """Paris London Berlin Rome Madrid Lisbon Vienna Prague Warsaw Athens Oslo Stockholm Helsinki Copenhagen Dublin Brussels
Amsterdam Zurich Geneva Munich Hamburg Cologne Milan Naples Venice Barcelona Seville Porto Budapest Bucharest Sofia Belgrade
Istanbul Ankara Cairo Nairobi Lagos Accra Tunis Rabat Dakar Tokyo Osaka Kyoto Seoul Beijing Shanghai Delhi Mumbai Bangkok
Hanoi Manila Jakarta Singapore Sydney Melbourne Perth Auckland Toronto Montreal Vancouver Chicago Boston Seattle Denver Dallas
Houston Austin Miami Atlanta Phoenix Portland Lima Bogota Quito Santiago Havana Boise Leeds Bristol Glasgow Lyon Nice Turin
Krakow Riga Tallinn Vilnius Zagreb Tbilisi Baku Dubai Doha Kuwait Tehran Karachi Lahore Dhaka Colombo""".split() + [
    "New York", "San Francisco", "Los Angeles", "Mexico City", "Buenos Aires", "Cape Town", "Hong Kong", "New Delhi", "Rio de Janeiro"]
CITIES_HELD = ["Bergen", "Florence", "Salzburg", "Ottawa", "Nagoya", "Lusaka", "Calgary", "Bilbao", "Gdansk", "Adelaide", "Las Vegas", "Marseille"]

COUNTRIES = """France Germany Italy Spain Portugal Poland Greece Norway Sweden Finland Denmark Ireland Belgium Austria Hungary
Romania Bulgaria Turkey Egypt Kenya Nigeria Ghana Morocco Japan Korea China India Thailand Vietnam Indonesia Australia Canada
Mexico Brazil Argentina Chile Peru Colombia Cuba Iceland Switzerland Russia Ukraine Iran Iraq Israel Pakistan Nepal Mongolia
Bolivia Uganda Zambia Malta Cyprus""".split() + ["the Netherlands", "New Zealand", "South Africa", "Saudi Arabia", "the United States"]

ITEMS = """apple pear orange banana lemon peach plum grape cherry melon book pen pencil notebook letter stamp card ticket chair
table lamp cup plate spoon fork knife bottle glass bag box basket hat coat shirt shoe sock scarf glove ring watch coin key
phone camera clock radio laptop mouse keyboard cable battery candle flower rose tulip tree seed potato tomato carrot onion
cucumber egg cake cookie sandwich pizza pie loaf roll bun donut muffin candy chocolate toy ball doll kite puzzle game balloon
drum guitar violin flute painting picture poster map brick nail screw hammer bucket brush broom towel pillow blanket rug
bicycle car truck boat train plane horse cow sheep goat pig chicken duck rabbit cat dog fish bird marble shell stone leaf
button ribbon bead magazine newspaper envelope folder stapler ruler crayon sticker badge medal trophy flag tent rope ladder""".split()

JOBS = """teacher doctor nurse baker farmer engineer painter writer singer driver pilot cook lawyer dentist carpenter plumber
gardener student librarian musician actor designer chemist biologist programmer manager clerk tailor barber sailor waiter
mechanic photographer journalist architect scientist""".split()

ADJECTIVES = """big small red blue green yellow old new tall short happy sad quick slow warm cold bright dark heavy light clean
dirty soft hard quiet loud strong weak kind brave clever funny gentle calm busy lazy rich poor young sweet sour fresh dry wet
round flat deep high low long narrow wide pretty plain simple strange lucky tired hungry proud shy polite wise lonely""".split()

ANIMALS = """fox rabbit bear mouse cat dog owl duck hen cow pig goat sheep horse frog turtle squirrel deer wolf lion tiger
elephant monkey parrot crow sparrow swan goose bee ant snail whale dolphin seal penguin otter badger hedgehog mole bat""".split()

PLACES = """forest river lake hill garden village town farm meadow beach island castle bridge market school library kitchen
harbor valley mountain cave field park house barn mill tower station shop bakery museum""".split()

COLORS = "red blue green yellow orange purple pink brown black white gray gold silver".split()

PLURAL = {"box": "boxes", "watch": "watches", "brush": "brushes", "sandwich": "sandwiches", "cherry": "cherries", "candy": "candies",
          "loaf": "loaves", "knife": "knives", "leaf": "leaves", "battery": "batteries", "puppy": "puppies", "sheep": "sheep",
          "fish": "fish", "mouse": "mice", "peach": "peaches", "glass": "glasses", "potato": "potatoes", "tomato": "tomatoes"}

SYLLABLES = """ba be bi bo bu da de di do du fa fe fi fo ga ge go gu ha he ho ja jo ka ke ki ko ku la le li lo lu ma me mi mo mu na
ne ni no nu pa pe pi po ra re ri ro ru sa se si so su ta te ti to tu va ve vi vo wa we wi ya yo za ze zi zo zu bran dor fen
gal har jen kel lor mar nor pol quil ren sul tor val wex xan yor zan thra shi cho phi gra bru sta ter lin dan mon ril ver
tas nek bor dul fim gath hul jip kron lum myr nox orp prin rask snel tull vork wint yelm zirk""".split()

TOPICS = """photosynthesis gravity volcanoes earthquakes dinosaurs galaxies comets chemistry physics biology algebra geometry
philosophy psychology economics inflation democracy law medicine vaccines cancer diabetes nutrition yoga meditation football
basketball tennis chess cricket baseball hockey golf swimming skiing jazz opera ballet sculpture poetry theater cinema
photography architecture astronomy geology botany zoology genetics evolution bacteria viruses hormones neurons atoms quarks
electricity magnetism lasers robots rockets satellites submarines airplanes steam coal oil plastic concrete glass paper
bitcoin stocks bonds taxes mortgages insurance cooking baking wine cheese coffee tea chocolate sushi bread honey salt sugar
butterflies sharks whales spiders snakes elephants pandas eagles bees mushrooms orchids cactus rainforests deserts glaciers
oceans rivers hurricanes tornadoes lightning rainbows seasons tides moonlight eclipses knitting sewing pottery carpentry
gardening fishing hunting camping hiking sailing surfing mythology religion archaeology pyramids knights samurai vikings
pirates castles feudalism colonialism slavery socialism capitalism feminism linguistics Latin Sanskrit grammar rhetoric logic
trigonometry calculus statistics topology cryptography compilers databases networking blockchain""".split() + [
    "the Roman Empire", "the French Revolution", "the Cold War", "the Great Wall", "the Middle Ages", "the Renaissance", "black holes",
    "quantum mechanics", "the speed of light", "the human brain", "the immune system", "climate change", "the stock market",
    "the moon landing", "the Eiffel Tower", "the Olympic Games", "the World Cup", "the Titanic", "the big bang", "general relativity",
    "the periodic table", "the water cycle", "the solar system", "plate tectonics", "the ice age", "the industrial revolution",
    "World War Two", "World War One", "the Civil War", "the Black Death", "Greek mythology", "classical music", "rock music"]
TOPICS_HELD = ["thermodynamics", "origami", "the Ottoman Empire", "penguins", "nuclear fusion", "volleyball", "impressionism", "the Silk Road",
               "kangaroos", "supernovas", "the Suez Canal", "beekeeping", "Renaissance painting", "tax law", "sourdough", "anthropology"]

FAMOUS = """Einstein Newton Darwin Galileo Shakespeare Mozart Beethoven Bach Picasso Napoleon Cleopatra Caesar Lincoln Washington
Churchill Gandhi Mandela Plato Aristotle Socrates Columbus Magellan Edison Tesla Curie Freud Marx Kant Nietzsche Dante Homer
Tolstoy Dickens Austen Hemingway Goethe Kafka Rembrandt Michelangelo Chopin Vivaldi Elvis Madonna Obama Lenin Stalin""".split() + [
    "Marie Curie", "Isaac Newton", "Albert Einstein", "Leonardo da Vinci", "Vincent van Gogh", "Jane Austen", "Alexander the Great"]
FAMOUS_HELD = ["Copernicus", "Voltaire", "Matisse", "Brahms", "Joan of Arc", "Genghis Khan", "Ada Lovelace", "Kepler"]

OPPOSITES = [("hot", "cold"), ("big", "small"), ("up", "down"), ("left", "right"), ("day", "night"), ("happy", "sad"), ("fast", "slow"),
             ("open", "closed"), ("old", "new"), ("light", "dark"), ("wet", "dry"), ("high", "low"), ("full", "empty"), ("hard", "soft"),
             ("loud", "quiet"), ("near", "far"), ("good", "bad"), ("early", "late"), ("rich", "poor"), ("strong", "weak"), ("long", "short"),
             ("first", "last"), ("inside", "outside"), ("push", "pull"), ("win", "lose"), ("buy", "sell"), ("begin", "end"), ("thick", "thin"),
             ("black", "white"), ("true", "false"), ("yes", "no"), ("love", "hate"), ("clean", "dirty"), ("sweet", "sour"), ("deep", "shallow")]

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()

ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen""".split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()


def spelled(number):
    """A number from 0 to 99 in words."""
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + ("-" + ONES[number % 10] if number % 10 else "")


def plural(noun):
    if noun in PLURAL:
        return PLURAL[noun]
    return noun[:-1] + "ies" if noun.endswith("y") and noun[-2] not in "aeiou" else noun + "s"


def a(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


_LETTERS = "aaabbcdddeeeeeffgghhiiijkkllllmmmnnnnooopprrrrssssttttuuvwyz"
_NAMES = [name for name in FIRST + LAST if len(name) > 3]


def new_name(rng):
    """An invented name: syllables, the head of one name with the tail of another, or a slip in a real one."""
    dice = rng.random()
    if dice < 0.35:
        return invented(rng).capitalize()
    one, two = (_NAMES[int(rng.random() * len(_NAMES))] for _ in range(2))
    if dice < 0.8:
        return one[: 2 + int(rng.random() * (len(one) - 2))] + two[1 + int(rng.random() * (len(two) - 2)) :].lower()
    at = 1 + int(rng.random() * (len(one) - 1))
    return one[:at] + _LETTERS[int(rng.random() * len(_LETTERS))] + one[at + int(rng.random() * 2) :]


def invented(rng, low=2, high=3):
    """An invented word, so that the model learns to copy."""
    count = low + int(rng.random() * (high - low + 1))
    return "".join(SYLLABLES[int(rng.random() * len(SYLLABLES))] for _ in range(count))
