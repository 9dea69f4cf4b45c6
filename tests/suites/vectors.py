"""Vectors and ranking with the SDK of Cohere, LlamaIndex and LangChain. Usage: vectors.py ADDRESS

Without /v1: each client adds what its documents say.
"""

import sys

import cohere
from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from langchain_openai import OpenAIEmbeddings
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from openai import BadRequestError, OpenAI

address = sys.argv[1]
TEXTS = ["a yellow bus", "a red train", "the bus is yellow"]


def close(one, other):
    assert len(one) == len(other) > 0
    assert max(abs(a - b) for a, b in zip(one, other)) < 1e-5


client = cohere.ClientV2(api_key="none", base_url=address)
embedded = client.embed(model="omnibus-mini", texts=TEXTS, input_type="search_document", embedding_types=["float"])
vectors = embedded.embeddings.float_
assert len(vectors) == 3
ranked = client.rerank(model="omnibus-mini", query=TEXTS[0], documents=TEXTS, top_n=2)
assert len(ranked.results) == 2 and ranked.results[0].index == 0 and ranked.results[0].relevance_score > 0.999

embeddings = OpenAIEmbeddings(
    model="omnibus-mini", base_url=f"{address}/v1", api_key="none", check_embedding_ctx_length=False
)
for mine, cohere_s in zip(embeddings.embed_documents(TEXTS), vectors):
    close(mine, cohere_s)
close(embeddings.embed_query(TEXTS[1]), vectors[1])
try:
    # What it sends otherwise: tokens of OpenAI's vocabulary.
    OpenAI(base_url=f"{address}/v1", api_key="none").embeddings.create(model="omnibus-mini", input=[[1, 99_999]])
    raise AssertionError("ids of another vocabulary were taken")
except BadRequestError as error:
    assert "check_embedding_ctx_length=False" in str(error), error
reranker = CohereRerank(model="omnibus-mini", client=cohere.ClientV2(api_key="none", base_url=address), top_n=2)
documents = reranker.compress_documents([Document(page_content=text) for text in TEXTS], TEXTS[2])
assert documents[0].page_content == TEXTS[2] and len(documents) == 2

llama = OpenAILikeEmbedding(model_name="omnibus-mini", api_base=f"{address}/v1", api_key="none", embed_batch_size=2)
for mine, cohere_s in zip(llama.get_text_embedding_batch(TEXTS), vectors):
    close(mine, cohere_s)
jina = JinaRerank(model="omnibus-mini", base_url=f"{address}/v1", api_key="none", top_n=3)
nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
best = jina.postprocess_nodes(nodes, query_str=TEXTS[1])
assert best[0].node.text == TEXTS[1] and len(best) == 3

print("vectors: cohere, langchain and llama-index agree")
