//! The words of the synthetic language, written by hand. The long tail is made up in [`super::lexicon`].

/// Topics: a name and its nouns, the most frequent first.
pub(super) const TOPICS: [(&str, &str); 24] = [
    ("home", "house room kitchen door window table garden sofa lamp roof key wall floor bed chair couch shelf mirror"),
    ("food", "food dinner lunch pizza coffee soup bread cheese recipe cake salad rice sauce breakfast apple sandwich oven"),
    ("work", "job meeting boss office email report project deadline team client salary contract desk call shift break"),
    ("school", "class exam teacher homework school paper grade course lecture library book student essay campus quiz"),
    ("sport", "game team match goal coach ball season player race field score stadium run league ticket training"),
    ("music", "song band guitar album concert piano lyrics drum singer show record playlist radio festival chord"),
    ("film", "movie film actor scene series episode trailer director ending cinema plot season script character"),
    ("travel", "trip flight hotel train ticket passport beach map bus airport city bag tour island border station"),
    ("family", "family mom dad sister brother kid baby aunt uncle cousin wedding birthday grandma son daughter"),
    ("health", "doctor hospital flu headache sleep medicine nurse back knee pain tooth diet cough fever clinic"),
    ("weather", "rain snow sun storm wind weather cloud umbrella winter summer cold heat forecast fog ice spring"),
    ("money", "money bank bill rent price loan tax account budget store card cash deal sale insurance coin"),
    ("tech", "phone computer app screen battery update password laptop internet file camera cable router keyboard bug"),
    ("cars", "car engine road traffic tire garage brake license bike truck parking fuel mechanic lane bumper"),
    ("pets", "dog cat puppy vet leash kitten fish bird cage tail fur paw treat hamster bowl shelter"),
    ("nature", "tree river mountain lake forest flower garden seed leaf trail hill sky field stone valley"),
    ("news", "news president vote law country war election government police court protest party leader border speech"),
    ("games", "game level boss console controller quest map player server weapon patch guild raid score skin"),
    ("clothes", "shirt shoes dress jacket coat jeans hat bag size color sock sweater boots skirt belt scarf"),
    ("art", "picture paint photo museum drawing color canvas camera frame sketch gallery brush poster sculpture"),
    ("love", "date love heart girl boy kiss friend text message ring feeling couple crush flower letter"),
    ("party", "party drink beer music friend night bar dance wine crowd club cake toast table hangover"),
    ("books", "book story page chapter author novel poem library ending hero series cover reader word letter"),
    ("fitness", "gym run workout yoga class weight muscle coach bike mile shoes pool stretch push leg routine"),
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
    worry worries worried worrying about | dream dreams dreamed dreaming of | learn learns learned learning - | \
    study studies studied studying for | drive drives drove driving - | carry carries carried carrying - | \
    cook cooks cooked cooking - | draw draws drew drawing - | book books booked booking - | \
    cancel cancels canceled canceling - | return returns returned returning - | follow follows followed following - | \
    enjoy enjoys enjoyed enjoying - | change changes changed changing - | build builds built building - | \
    hide hides hid hiding - | join joins joined joining - | win wins won winning - | spend spends spent spending on";

pub(super) const ADJECTIVES: &str = "good new great little big old nice best bad long whole same last next right small \
    happy free hard real easy cold hot funny pretty cool sweet weird crazy busy late early tired sick ready sure sorry \
    wrong different beautiful amazing awful boring cheap clean dark dead deep dirty empty excited expensive famous fast \
    favorite fresh full glad huge hungry important loud lovely lucky mad nervous perfect poor proud quick quiet rich sad \
    safe scary serious sharp short silly simple slow smart soft special strange strong stupid tall terrible tiny warm \
    wet wild worried worst young ugly broken bright calm careful";

pub(super) const ADVERBS: &str = "really just so very too pretty still totally kind-of almost always never finally \
    probably maybe actually definitely";

/// What follows a whole clause.
pub(super) const TIMES: &str = "tomorrow | today | tonight | this weekend | last night | next week | yesterday | \
    in the morning | after work | right now | again | all day | on monday | on friday | last week | this morning | \
    next month | for a while | at the moment | in the evening | before lunch | every day | on sunday | last summer";

/// Phrases that people type as a whole; `{...}` is filled in.
pub(super) const PHRASES: &str = "how are you | how are you doing today | see you {time} | thank you so much | \
    thanks for the {noun} | what are you doing {time} | i love you | i miss you so much | happy birthday {name} | \
    let me know if you need anything | let me know when you get there | talk to you later | no problem at all | \
    sounds good to me | i will be there in {number} minutes | on my way home | are you free {time} | \
    what do you think about the {noun} | i don't know what to do | i have no idea | that is so {adjective} | \
    can't wait to see you {time} | can you send me the {noun} | good morning | good night {name} | have a great day | \
    have a good weekend | hope you feel better soon | it was nice to see you {time} | where are you now | \
    do you want to come over {time} | i am so proud of you | call me when you can | i will call you {time} | \
    did you see the {noun} {time} | i am on the way to {place} | we should get together {time} | \
    long time no see | i am sorry to hear that | that would be great | what time is the {noun} {time} | \
    i just got back from {place} | it has been a long day | as far as i know | to be honest with you | \
    at the end of the day | a lot of people don't like the {noun} | one of the best {plural} in {place} | \
    the rest of the {noun} | i am looking forward to the {noun}";

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

/// Parts of which made-up words are put together.
pub(super) const ONSETS: &str = "b br c ch cl d dr f fl g gr h j k l m n p pl pr qu r s sh sk sl st t th tr v w z";
pub(super) const NUCLEI: &str = "a e i o u ai ea ee oo ou";
pub(super) const CODAS: &str = "- - - b ck d ff g l ll m n nd ng nt p r rk rt s sh st t x";
