"""What each fact is about, in a few words, and frames that turn those words into many questions.

A row is `topics / wishes`: noun phrases and things that a user wants to do, separated by `|`. They teach the model to
listen for the words that matter, so that it understands questions that are in no list.
"""

FRAMES = ["{t}", "{T}?", "What about {t}?", "(Tell me|Say|Explain|Write) (more |something |a bit |)about {t}.", "(Can|Could|Would) you (please |)(explain|describe|tell me about|say something about|help me with) {t}?",
          "I (have a question|want to know|need to know|would like to know|need information|am asking|wonder|want to learn) about {t}.", "Where (do|can|could) I (find|see|look for|read about|get) {t}?", "What (do I need to know|should I know|can you say|can you tell me|do you know) about {t}?", "How does omnibus (handle|do|treat|deal with) {t}?", "How (is|are) {t} (handled|done|made)?",
          "Please (explain|describe) {t}.", "(Help|Help me|I need help) with {t}.", "Is there (anything|something) (on|about|like) {t}?", "(Explain|Describe) {t} (to me|for a beginner|in short|in simple words|in detail).", "I (don't|do not) understand {t}.", "{T} in omnibus", "(Does|Do) {t} (work|exist)[ in omnibus]?", "What is (the point|the idea|the story|the meaning|the use) of {t}?", "What (do|does) {t} mean?",
          "What do you mean by {t}?", "Who needs {t}?", "Why {t}?", "{T}, how does that work?", "I heard about {t}.", "I am (curious|interested|confused) about {t}.", "(What is|What are|What's) {t}?", "(Is there|Are there) {t}[ in omnibus]?", "(Show|Give) me {t}.", "What can omnibus do (about|with|for) {t}?", "What would {t} be?", "Could you (say|tell me) what {t} (is|are|means|mean)?", "I want to (understand|know) {t}."]
WISHES = ["How (would|could|can|do|should|might|may) I {w}?", "(Is there|Do you know|Does omnibus have|I need|I am looking for) (a|some|any) way to {w}?", "Is it possible to {w}?", "(Can|Could|May) (I|we|one) {w}?", "What (must|should|can|do|could|would) I do (to|so that I can|if I want to|in order to) {w}?", "I (want|need|would like|have|am trying|plan|wish|must learn|hope) to {w}.", "I'd like to {w}.", "What is (the|a) (best|right|proper|easiest|good|correct|usual) way to {w}?",
          "(Tell|Show) me (how|the way) to {w}.", "(Can|Could|Would) you (please |)(tell|show) me how (to|I can|I could|I would) {w}?", "How to {w}?", "{W}.", "How does one {w}?", "What do I (type|use|need|run|call|have to do) to {w}?", "Does omnibus (let me|allow me to|help me) {w}?", "(Help|Please help) me (to |){w}.", "My goal is to {w}.", "Explain how to {w}.", "I (don't|do not) know how to {w}.", "How would I go about it if I wanted to {w}?", "How is it possible to {w}?", "What (helps|is needed|is there) to {w}?", "With omnibus, how do I {w}?", "{W}, how?", "I cannot {w}, what now?", "How can (a user|somebody|anyone) {w}?"]

ROWS = """
what: omnibus|mlx-omnibus|the omnibus server|this server|this project|this thing called omnibus|the omnibus program / know what omnibus is|understand omnibus|learn what omnibus does
language: the programming language of omnibus|the language omnibus is written in|the language of the code|Rust in omnibus / know which language omnibus is written in
mlx: MLX|the MLX library|libmlx|the array library|MLX from Apple / know what MLX is
who: your name|who you are|what you are|yourself|the model I am talking to|which model answers me|omnibus-mini|the embedded model|the model that answers / know who you are|know your name|know which model you are
size: your size|how big you are|the number of your parameters|the size of omnibus-mini|how many megabytes you take / know how large you are
abilities: your abilities|what you can do|your skills|the things you can do|what I can ask you|your talents / know what you can do|see what you are able to do
limits: your limits|your weaknesses|your mistakes|what you cannot do|whether I can trust you / know your limits|know what you are bad at
maker: your maker|who made you|who trained you|how you were trained|your training|your training data|the people who made you / know who made you|know how you were trained
start: starting omnibus|launching the server|the start command|the first steps|running omnibus|getting started|starting the server / start omnibus|run the server|launch omnibus|get omnibus running|start the server|try omnibus|begin with omnibus|get going
install: the installation|installing omnibus|building omnibus|compiling omnibus|building from source / install omnibus|build omnibus|compile omnibus|build it from source|set up omnibus on my machine
needs: the requirements|the dependencies|the prerequisites|what must be installed|what I need to build omnibus|the things I need first / know what I need to install|prepare my machine
test: the tests|the test suite|testing omnibus|running the tests / run the tests|run the test suite|test omnibus|check that everything works
address: the address|the base URL|the URL of the server|where the server listens|the server address / find the server|know the address|reach the server|know the base URL
port: the default port|the port number|the port of omnibus|the number of the port / know the port|know which port it uses
change-port: another port|a different port|port 9000|changing the port|a port that is taken / change the port|use another port|listen on port 8080|pick a port|run the server on a different port
own-model: my own model|a bigger model|another model|a larger model|a model on my disk|serving my model|other models / use my own model|serve a larger model|load another model|run a bigger model|serve a model from a folder|use the model I downloaded|choose the model|switch to another model
several: several models|two models at once|a pool of models|the model pool|many models / serve two models|run several models at once|serve three models|have more than one model
no-model: the default model|no model|serving without a model|the built-in model|trying omnibus without a download / try omnibus without a download|start without a model|use the default model
apis: the APIs|the supported APIs|the HTTP API|the interfaces|the API of omnibus / know which APIs there are|call omnibus from a program|talk to omnibus over HTTP|use the API
openai: OpenAI compatibility|the OpenAI API|the OpenAI client|the OpenAI SDK|my OpenAI app|OpenAI clients / use the OpenAI client|connect an OpenAI app|use omnibus from Python|point my OpenAI client at omnibus
anthropic: Anthropic compatibility|the Anthropic API|the messages API|the Anthropic client|Anthropic clients / use the Anthropic client|connect an Anthropic app|call the Anthropic API
curl: a curl example|curl|an example request|a sample request|a request by hand|a curl command / send a request with curl|try it with curl|send my first request|see an example request|write a request
key: API keys|an API key|authentication|security|a password for the server|access control / set an API key|protect the server|keep strangers out|require a key|let in only clients with a key
platforms: the platforms|supported machines|supported systems|Mac and Linux|Linux|a Mac|my laptop|the hardware|the operating systems / run omnibus on a Mac|run omnibus on Linux|use omnibus on my laptop|run it on my machine
gpu: a GPU|no GPU|running without a GPU|a machine without a GPU|a missing graphics card / run without a GPU|use omnibus on a CPU only|use omnibus without a graphics card|still use omnibus when my computer has no GPU
device: the device|choosing the device|CPU or GPU / choose the device|force the CPU|make omnibus use the CPU|make omnibus use the GPU
stream: streaming|streamed answers|server-sent events|token by token answers|a stream of tokens|SSE / stream the answer|get the answer token by token|receive tokens as they come|turn on streaming|see the answer while it is written
websocket: WebSocket|WebSockets|the WebSocket|a WebSocket connection / use a WebSocket|connect over WebSocket|chat over a WebSocket
tools: tool calling|function calling|tools|tool calls|functions for the model|my tools / call tools|give the model a tool|use function calling|let the model use my functions|let the model call functions|define tools
schema: JSON schema|structured output|JSON mode|JSON answers|valid JSON|a schema for the answer / get JSON|force JSON output|get answers that follow a schema|make the model answer in JSON|have structured answers
images: images|pictures|vision|image input|photos|multimodal models / send an image|ask about a picture|use images|show the model a photo
speculative: speculative decoding|a draft model|draft models|the draft model / decode speculatively|use a draft model|speed things up with a draft model
prefix: the prefix cache|prefix caching|prompt caching|shared prefixes|a shared system prompt / reuse a prompt|share a system prompt|cache prompts
disk-cache: the cache on disk|the disk cache|the cache directory|the cache after a restart / keep the cache on disk|save the cache across restarts|store the cache in a directory
sessions: sessions|session ids|a session id|the session_id field / use a session|keep a conversation in memory|list the sessions|end a session
scheduler: the scheduler|scheduling|the job of the scheduler|how requests are scheduled|the work of the scheduler / understand the scheduler|know what the scheduler does
policies: scheduling policies|the schedules|the policies|the choice of schedules / choose a policy|change the scheduling policy|pick a schedule
fair: the fair policy|fair scheduling|the fair schedule / understand the fair policy
fcfs: fcfs|the fcfs policy|first come first served / understand fcfs
static: the static policy|static scheduling|the static schedule / understand the static policy
split: the split policy|split scheduling|the split schedule / understand the split policy
batching: continuous batching|batching|many clients at once|many users at the same time|concurrent requests|the packed batch / serve many clients|answer many requests at once|work on many requests at the same time
bus: the name omnibus|the name|the bus|the word omnibus|the picture of the bus / know where the name comes from|understand the name
metrics: metrics|Prometheus|monitoring|Prometheus metrics|the monitoring of omnibus|statistics of the server / monitor omnibus|scrape metrics|watch the server|see metrics
health: the health check|health|whether the server is alive|the health route|whether the server runs|the health of the server / check whether the server is alive|see if the server is up|know that the server runs|find out whether the engine is stuck
quantize: quantization|quantizing a model|4 bits|a 4-bit model|8-bit weights|smaller models / quantize a model|make a model smaller|turn a model into 4 bits|compress a model|convert to 8 bits
batch-files: batch files|a batch job|a file of requests|a jsonl file|the batch format / process a file of prompts|run a batch|answer many prompts from a file|run a whole file of requests
bench: benchmarks|the speed of omnibus|performance|throughput|latency numbers|measuring speed / measure the speed|benchmark the server|see how fast it is|measure latency
chat: a terminal chat|chatting in the terminal|a conversation in the shell|the chat command / chat in the terminal|talk to a model in my shell|have a conversation without a server
generate: a single completion|one answer on the command line|generating text in the shell|one prompt / generate text|run a single prompt|get one completion|complete a prompt in the shell
doctor: a problem|problems with omnibus|an error at start|a broken setup|troubleshooting|when omnibus does not run|something that does not work / fix a problem|find out what is wrong|diagnose my machine|check my machine|make omnibus work again
models: supported models|supported architectures|the list of architectures|model families|the architectures omnibus supports / see the supported models|know if my model is supported|list the architectures
list-models: the loaded models|the served models|the list of served models|the models that are loaded|the models on the server / list the served models|see which model is loaded|see the models over HTTP
load: loading a model at run time|unloading a model|loading and unloading|a running server and models / load a model at run time|unload a model|remove a model from the running server|free the memory of a model
pull: downloading a model|a model download|fetching models|pulling a model / download a model|pull a model|fetch weights from the hub
completions: shell completion|tab completion|shell completions|completions for bash|completions for zsh / complete commands with tab|have tab completion|set up completions for my shell
settings: settings|the configuration|the config file|omnibus.toml|environment variables|flags and environment variables|the order of settings|which setting wins / configure omnibus|change settings|use a config file|know which setting wins|write a configuration file
print-config: all values of the configuration|the current settings|where settings come from|the effective configuration / print the configuration|see all settings|know where a value comes from
exit: exit codes|the exit code|the meaning of the exit codes|exit status / understand the exit codes
stop: stopping the server|shutdown|a clean shutdown|Ctrl-C|SIGTERM|shutting down / stop the server|shut omnibus down|end the server|quit omnibus|stop it cleanly
busy: error 429|too many requests|a full queue|overload|a busy server|status 429|the queue / handle too many requests|understand error 429|know why I get 429
errors: errors|error messages|bad requests|a wrong field|invalid input|the shape of errors|an invalid request / understand an error|know what a bad request gives
cancel: cancelling a request|a running request|stopping a generation|aborting|a request that runs too long / cancel a request|stop a running request|abort a generation|end a request that runs|see what is running
crash: a crash|a crash of the engine|crashes|when the engine dies|a dead engine|my request after a crash / survive a crash|know what happens in a crash
seed: seeds|a seed|reproducible answers|the same answer twice|repeatable text|deterministic answers|determinism / get the same answer again|make answers reproducible|get repeatable results|have deterministic answers|set a seed
crates: the crates|the code structure|the architecture|the source code|the parts of omnibus|the design of omnibus|how the code is organized / understand the code|know the crates|find my way in the source
life: the life of a request|what happens to my request|how omnibus works inside|the way of a request|the inner workings|what the server does with a request / understand how omnibus works|follow a request
thread: the engine thread|the thread that owns the arrays|threads / know which thread owns the arrays
context: your context|the context length|the context window|your context size|long texts / know your context length|set the context length
embeddings: embeddings|text embeddings|vectors of texts|the embeddings route / get embeddings|embed a text|make vectors
rerank: reranking|rerank|scoring documents|the order of documents / rerank documents|score documents|sort documents by relevance
tokenize: token counts|the tokens of my text|counting tokens|how many tokens my text has|tokenizing|detokenizing / count the tokens of my text|tokenize a text|find out how many tokens a text has|turn tokens into text
kv: the KV cache|KV blocks|block tables|keys and values|cache blocks / understand the KV cache
memory: memory|memory use|too much memory|low memory|out of memory|the memory limit / use less memory|limit the memory|save memory|reduce memory use
responses: the responses API|stored responses|the OpenAI responses API / use the responses API|store a response
adapter: LoRA|adapters|LoRA adapters|a LoRA adapter / use a LoRA adapter|serve an adapter|load LoRA weights
logs: logs|logging|JSON logs|the log format|the place of the logs|the format of the logs / see the logs|get logs as JSON|change the log format|find the logs
timeout: timeouts|a time limit|the request timeout|slow requests|the time of a request / limit the time of a request|set a timeout
latency: TTFT|TPOT|time to first token|time per output token|latency goals|ttft and tpot / set a latency goal|know what ttft is
usage: token usage|cached tokens|the usage field|the number of cached tokens|how many tokens were used|how many tokens were cached / see how many tokens I used|find the number of cached tokens|know how many tokens came from the cache
request-id: the request id|x-request-id|the id of my request|the header with the id / find the id of my request|find a request in the logs
reasoning: reasoning models|thinking models|the reasoning format|thoughts of a model / run a reasoning model|split reasoning from the answer
offline: privacy|my data|working offline|no internet|my private data|what leaves my computer|the cloud / use omnibus offline|keep my data private|work without internet|know whether anything leaves my machine
network: other computers|my local network|another machine|the host|access from outside / reach the server from another computer|share the server|let other machines use my server|listen on all interfaces
families: blueprints|a new model family|adding a model|model families in the code / add a new architecture|add a model family|support a new model
unsafe: unsafe code|the unsafe crates / know where unsafe code is
async: async code|the async crates / know where async is used
prompt-cache: prompt caches|a prompt cache file|saved prompts / save a prompt cache|keep a prompt cache in a file|list prompt caches
perplexity: perplexity|the perplexity command / measure perplexity|compute the perplexity of a model
hub: hub ids|a hub id|the hub|Hugging Face models / load a model from the hub|use a Hugging Face model
fields: sampling parameters|sampling options|top_k and min_p|extra fields|request fields|temperature and top_p / set the sampling parameters|change sampling|set top_k|set the temperature
greedy: the temperature|temperature 0|greedy decoding|the effect of the temperature / get greedy answers|understand the temperature
token: a token|tokens|the word token|what a token is / know what a token is
llm: an LLM|language models|a language model|large language models|what an LLM is / understand language models|know what an LLM is
simulator: the simulator|tests of the scheduler|the simulation / test the scheduler
engine: the engine|the engine of omnibus|the engine loop / understand the engine
embed: in-process mode|--in-process|omnibus inside my program|the engine in one process / embed omnibus in a program|run the engine in one process
"""


def table():
    """key: (topics, wishes)."""
    rows = {}
    for line in ROWS.strip().splitlines():
        key, rest = line.split(": ", 1)
        topics, wishes = rest.split(" / ", 1)
        rows[key] = (topics.split("|"), wishes.split("|"))
    return rows
