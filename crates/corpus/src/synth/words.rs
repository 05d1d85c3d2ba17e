//! The hand-written words of the synthetic language. [`super::lexicon`] derives the long tail from them.

/// What a topic has of its own.
pub(super) struct Topic {
    /// Its name.
    pub(super) name: &'static str,
    /// What one does with its things, the most frequent first; all of them are in [`VERBS`].
    pub(super) verbs: &'static str,
    /// Its things, the most frequent first. `~` after a word: it has no plural and no `a`. `tooth/teeth`: its plural.
    pub(super) nouns: &'static str,
}

const fn topic(name: &'static str, verbs: &'static str, nouns: &'static str) -> Topic {
    Topic { name, verbs, nouns }
}

/// Topics, each with its verbs and its nouns.
pub(super) const TOPICS: [Topic; 24] = [
    topic(
        "home",
        "clean fix open sell move paint build",
        "house room kitchen door window table garden sofa lamp roof key wall floor bed chair couch shelf/shelves mirror",
    ),
    topic(
        "food",
        "eat make cook order love share burn",
        "dinner lunch pizza coffee~ soup bread~ cheese~ recipe cake salad rice~ sauce breakfast apple sandwich oven egg",
    ),
    topic(
        "work",
        "finish need work miss send check leave",
        "job meeting boss office email report project deadline team client salary contract desk call shift break",
    ),
    topic(
        "school",
        "study pass miss read fail finish start",
        "class exam teacher homework~ school paper grade course lecture library book student essay campus quiz/quizzes",
    ),
    topic(
        "sports",
        "watch win play lose miss enjoy join",
        "game team match goal coach ball season player race field score stadium run league ticket final",
    ),
    topic(
        "music",
        "play listen hear love sing write record",
        "song band guitar album concert piano lyric drum singer show record playlist radio festival chord",
    ),
    topic(
        "movies",
        "watch see love finish hate start enjoy",
        "movie film actor scene show episode trailer director ending cinema plot season script character",
    ),
    topic(
        "travel",
        "book take miss plan cancel need enjoy",
        "trip flight hotel train ticket passport beach map bus airport city bag tour island border station",
    ),
    topic(
        "family",
        "call visit meet miss love thank help",
        "mom dad sister brother kid baby aunt uncle cousin wedding birthday grandma son daughter family",
    ),
    topic(
        "health",
        "need see call hate take skip ask",
        "doctor hospital flu~ headache sleep~ medicine~ nurse back knee tooth/teeth pill diet cough fever clinic",
    ),
    topic(
        "weather",
        "hate love enjoy expect miss hear see",
        "rain~ snow~ sun storm wind weather~ cloud umbrella winter summer heat~ forecast fog~ ice~ spring cold",
    ),
    topic(
        "money",
        "pay spend need lose save check count",
        "money~ bank bill rent~ price loan tax account budget store card cash~ deal sale insurance~ coin",
    ),
    topic(
        "technology",
        "use fix charge install buy update lose",
        "phone computer app screen battery update password laptop internet~ file camera cable router keyboard bug",
    ),
    topic(
        "cars",
        "drive fix park sell clean need follow",
        "car engine road traffic~ tire garage brake license bike truck spot fuel~ mechanic lane bumper",
    ),
    topic(
        "pets",
        "feed walk love pet watch follow find",
        "dog cat puppy vet leash kitten fish/fish bird cage tail fur~ paw treat hamster bowl shelter",
    ),
    topic(
        "nature",
        "see climb cross find follow walk photograph",
        "tree river mountain lake forest flower garden seed leaf/leaves trail hill sky field stone valley",
    ),
    topic(
        "news",
        "hear read follow watch trust support blame",
        "news~ president vote law country war election government police~ court protest party leader border speech",
    ),
    topic(
        "games",
        "play beat finish win lose start try",
        "game level boss console controller quest map player server weapon patch guild raid score skin",
    ),
    topic(
        "clothes",
        "wear buy wash return try choose need",
        "shirt shoe dress jacket coat hat bag size color sock sweater boot skirt belt scarf/scarves",
    ),
    topic(
        "art",
        "draw paint take show hang share copy",
        "picture photo museum drawing color canvas camera frame sketch gallery brush poster sculpture print",
    ),
    topic(
        "love",
        "miss love meet want kiss forget write",
        "date heart girl boy kiss friend text message ring feeling couple crush flower letter promise",
    ),
    topic(
        "parties",
        "join plan leave enjoy start remember miss",
        "party drink beer friend night bar dance wine~ crowd club cake toast table hangover playlist",
    ),
    topic(
        "books",
        "read write finish love start borrow return",
        "book story page chapter author novel poem library ending hero/heroes series/series cover reader word letter",
    ),
    topic(
        "fitness",
        "skip finish need start love plan join",
        "gym run workout yoga~ class weight muscle coach bike mile pool stretch leg routine plan",
    ),
];

/// Verbs as base, third person, past, -ing and the preposition that follows (or `-`), the most frequent first.
pub(super) const VERBS: &str = "get gets got getting - | see sees saw seeing - | make makes made making - | \
    need needs needed needing - | want wants wanted wanting - | like likes liked liking - | find finds found finding - | \
    buy buys bought buying - | love loves loved loving - | look looks looked looking at | wait waits waited waiting for | \
    think thinks thought thinking about | talk talks talked talking about | take takes took taking - | \
    try tries tried trying - | watch watches watched watching - | leave leaves left leaving - | \
    bring brings brought bringing - | miss misses missed missing - | lose loses lost losing - | \
    pay pays paid paying for | fix fixes fixed fixing - | read reads read reading - | eat eats ate eating - | \
    use uses used using - | send sends sent sending - | forget forgets forgot forgetting about | \
    hear hears heard hearing about | start starts started starting - | finish finishes finished finishing - | \
    hate hates hated hating - | keep keeps kept keeping - | listen listens listened listening to | \
    play plays played playing - | write writes wrote writing - | clean cleans cleaned cleaning - | \
    pick picks picked picking up | show shows showed showing - | work works worked working on | \
    help helps helped helping with | ask asks asked asking about | move moves moved moving - | \
    break breaks broke breaking - | check checks checked checking - | order orders ordered ordering - | \
    plan plans planned planning - | sell sells sold selling - | open opens opened opening - | \
    share shares shared sharing - | choose chooses chose choosing - | care cares cared caring about | \
    worry worries worried worrying about | dream dreams dreamed dreaming of | learn learns learned learning about | \
    study studies studied studying for | drive drives drove driving - | carry carries carried carrying - | \
    cook cooks cooked cooking - | draw draws drew drawing - | book books booked booking - | \
    cancel cancels canceled canceling - | return returns returned returning - | follow follows followed following - | \
    enjoy enjoys enjoyed enjoying - | change changes changed changing - | build builds built building - | \
    hide hides hid hiding - | join joins joined joining - | win wins won winning - | spend spends spent spending - | \
    call calls called calling - | visit visits visited visiting - | meet meets met meeting - | wear wears wore wearing - | \
    feed feeds fed feeding - | walk walks walked walking - | sing sings sang singing - | paint paints painted painting - | \
    burn burns burned burning - | pass passes passed passing - | fail fails failed failing - | \
    record records recorded recording - | thank thanks thanked thanking - | skip skips skipped skipping - | \
    expect expects expected expecting - | save saves saved saving - | count counts counted counting - | \
    charge charges charged charging - | install installs installed installing - | update updates updated updating - | \
    park parks parked parking - | pet pets petted petting - | climb climbs climbed climbing - | \
    cross crosses crossed crossing - | photograph photographs photographed photographing - | \
    trust trusts trusted trusting - | support supports supported supporting - | blame blames blamed blaming - | \
    beat beats beat beating - | wash washes washed washing - | hang hangs hung hanging - | copy copies copied copying - | \
    kiss kisses kissed kissing - | remember remembers remembered remembering - | borrow borrows borrowed borrowing -";

/// What a thing can be.
pub(super) const ADJECTIVES: &str = "good new great little big old nice bad long small free hard real easy cold hot \
    funny pretty cool sweet weird crazy late early wrong different beautiful amazing awful boring cheap clean dark dead \
    deep dirty empty expensive famous fast fresh full huge important loud lovely lucky perfect poor quick quiet rich sad \
    safe scary serious sharp short silly simple slow smart soft special strange strong stupid tall terrible tiny warm wet \
    wild young ugly broken bright calm noisy heavy light modern ancient narrow wide secret public fancy plain rough";

/// What a person can be, after `am`, `is` or `are`.
pub(super) const STATES: &str = "tired happy busy sorry sick ready sure late hungry sad excited mad glad nervous proud \
    worried early bored scared alone lucky confused fine lost cold awake jealous careful calm sleepy serious stressed";

pub(super) const ADVERBS: &str = "really just so very too pretty still totally kind-of almost always never finally \
    probably maybe actually definitely";

/// What follows a whole clause about the past.
pub(super) const PAST_TIMES: &str = "yesterday | last night | today | last week | this morning | again | all day | \
    on monday | after work | for a while | last summer | in the evening | on friday | two days ago | last weekend | \
    for the first time | at the same time | on the way home | in the middle of the night | a year ago";

/// What follows a whole clause about what is or will be.
pub(super) const COMING_TIMES: &str = "tomorrow | today | tonight | this weekend | right now | next week | \
    in the morning | after work | again | every day | on friday | all day | next month | at the moment | on sunday | \
    before lunch | in the evening | as soon as possible | at the same time | next summer";

/// Phrases that people type as a whole; `{...}` is filled in.
pub(super) const PHRASES: &str = "hello {name} | how are you | how are you doing today | see you {soon} | thank you so much | \
    thanks for the {noun} | what are you doing {soon} | i love you | i miss you so much | happy birthday {name} | \
    let me know if you need anything | let me know when you get there | talk to you later | no problem at all | \
    sounds good to me | i will be there in {number} minutes | on my way home | are you free {soon} | \
    what do you think about the {noun} | i don't know what to do | i have no idea | that is so {adjective} | \
    can't wait to see you {soon} | can you send me the {noun} | good morning | good night {name} | have a great day | \
    have a good weekend | hope you feel better soon | it was nice to see you {before} | where are you now | \
    do you want to come over {soon} | i am so proud of you | call me when you can | i will call you {soon} | \
    did you see the {noun} {before} | i am on the way to {place} | we should get together {soon} | \
    long time no see | i am sorry to hear that | that would be great | what time is the {noun} {soon} | \
    i just got back from {place} | it has been a long day | as far as i know | to be honest with you | \
    at the end of the day | a lot of people don't like the {noun} | one of the best {plural} in {place} | \
    the rest of the {noun} was {adjective} | i am looking forward to the {noun} | how much is the {noun} | \
    there is no {noun} in {place} | there are {number} {plural} in {place} | i have never been to {place} | \
    say hi to {name} for me | did {name} tell you about the {noun} | {name} and i are going to {place} {soon} | \
    what happened to the {noun} | meet me in {place} {soon} | i went to {place} with {name} {before}";

pub(super) const OPENERS: &str = "well | so | and | but | anyway | also | okay | honestly | by the way | of course | \
    i think | i guess | i hope | you know | to be fair | in my opinion | at least | for now";

/// Slang as standard form and short form; the standard form may be any word.
pub(super) const SLANG: &str = "you u | are r | your ur | please pls | people ppl | because cuz | tomorrow tmrw | \
    tonight 2nite | thanks thx | really rly | okay k | about abt | with w | love luv | great gr8 | before b4 | for 4 | \
    to 2 | what wut | the da | something smth | good gud | night nite | though tho | probably prolly | want wanna | \
    message msg | weekend wknd | birthday bday | favorite fav | right rite | friend fren | just jus | know kno | \
    like liek | girl gurl | brother bro | going goin | doing doin | why y | see c | that dat | this dis | definitely def";

pub(super) const FILLERS: &str = "lol | haha | omg | tbh | ngl | lmao | idk | btw | yeah | yep | nah | hey | hmm | ugh | \
    wow | bruh | dude | fr | imo | smh";

pub(super) const EMOJI: &str = "😂 ❤ 😍 😭 😊 🙏 💕 😘 👍 😅 👏 😁 🔥 💔 💖 😢 🤔 😆 🙄 💪 😉 👌 🤗 💜 😔 😎 😇 🌹 🎉 💙 \
    🎶 😱 ✨ ☀ 🍕 🎂 :) :d ;) <3";

/// Names of people; more are made up.
pub(super) const NAMES: &str = "anna ben chris dana emma frank grace henry ivy jack kate leo mia nick olivia paul quinn \
    rose sam tina uma victor wendy alex yara zoe maria david laura tom nina omar priya ravi sofia hugo lena marco";

/// Ends that make a rarer thing of a thing: `songbook`, `doorstand`.
pub(super) const COMPOUNDS: &str = "shop book box lover room case night bag maker stand time house day show work fan song \
    club line park side board light land story talk";

/// Ends that make a rarer adjective of a thing: `coffeeish`, `paperless`.
pub(super) const QUALITIES: &str = "less like free proof ish ready sized shaped";

/// Parts of which the names of people and places are put together.
pub(super) const ONSETS: &str = "b br c ch cl d dr f fl g gr h j k l m n p pl pr r s sh sl st t th tr v w";
pub(super) const NUCLEI: &str = "a e i o u a e o ai ea";
/// How the names of places end.
pub(super) const PLACE_ENDS: &str = "ton ford bury ham ville field port wick burg dale more stead";
/// How the made-up names of people end.
pub(super) const NAME_ENDS: &str = "na lo ra mi n l s ka den vin lia rin ti ro";
