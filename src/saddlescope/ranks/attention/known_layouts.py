"""Layouts of the attention modules of published libraries, by the names of their layers."""

from saddlescope.ranks.attention.head_modules import HeadModules
from saddlescope.ranks.attention.layouts import (
    AttentionLayout,
    Fused,
    HeadTensors,
    Interleaved,
    KeyValue,
    Latent,
    Separate,
    TorchMultihead,
)

_SEPARATE = (  # keys, queries, values, and possible outputs
    ("key query value", "output"),  # saddlescope's ViT
    ("self.key self.query self.value", "output.dense"),  # BERT and its relatives
    ("self.key_proj self.query_proj self.value_proj", "output.dense"),  # DeBERTa
    ("self.key self.query self.value", "output"),  # BigBird-Pegasus
    ("attention.projection_key attention.projection_query attention.projection_value", "output.dense"),
    ("att.key att.query att.value", "output.dense"),  # LXMERT's cross-attention
    ("project_k project_q project_v", "attention_out"),  # CPM-Ant
    ("attention.key attention.query attention.value", "output.dense"),  # Transformers' ViT until 4
    ("key query value", "dense out_proj proj out"),  # ALBERT; OpenAI's Whisper
    # Llama, Mistral, Qwen, Gemma; OPT, BART, CLIP, GPT-Neo, GPT-J; Phi; ModernBERT's decoder; torchtune; timm's EVA;
    # InternVL's and Janus' images; NeoMME
    ("k_proj q_proj v_proj", "o_proj out_proj dense Wo output_proj proj proj_out projection projection_layer "
                             "output_projection.o_proj linear_out c_proj"),
    ("key_proj query_proj value_proj", "out_proj output_proj"),  # ProphetNet
    ("k_lin q_lin v_lin", "out_lin"),  # DistilBERT
    ("linear_k linear_q linear_v", "linear_out"),  # wav2vec2-BERT, conformers
    ("wk wq wv", "wo proj"),  # Meta's Llama, torchtitan; timm's CrossViT
    ("Wk Wq Wv", "dense Wo"),  # CTRL
    ("c_k c_q c_v", "c_proj"),  # nanochat
    ("k q v", "o proj out out_proj proj_out"),  # T5; timm's CaiT
    ("to_k to_q to_v", "to_out to_out.0"),  # x-transformers, without and with gated outputs; Diffusers
)  # fmt: skip
_FUSED = (  # queries with keys and values, and possible outputs
    ("c_attn", "c_proj"),  # GPT-2, nanoGPT
    ("attn", "proj"),  # litgpt until 0.5
    ("qkv", "proj"),  # timm, SAM, Qwen-VL's images, litgpt, TransformerEngine
    ("layernorm_qkv", "proj"),  # TransformerEngine
    ("attention.qkv", "output.dense"),  # TimeSformer
    ("qkv", "projection out_proj out to_out o_proj dense"),  # BLIP
    ("qkv_proj", "o_proj out_proj proj"),  # Phi-3; OpenELM, CodeGen, fairseq2
    ("in_proj", "out_proj"),
    ("Wqkv", "Wo out_proj"),  # ModernBERT; MPT, DBRX, flash-attn
    ("wqkv", "wo"),  # torchtune's and gpt-fast's Llama, InternLM
    ("to_qkv", "to_out to_out.0"),  # vit-pytorch
    ("att_proj", "out_proj attn_out"),  # Bark; OLMo's own code
)
_HEADS = ("key query value", "W_key W_query W_value", "k q v", "k_proj q_proj v_proj")  # modules of their own

LAYOUTS: tuple[AttentionLayout, ...] = (
    TorchMultihead(),
    HeadTensors(),  # XLNet
    Latent(),  # DeepSeek-V2 and V3
    Latent(query=("q_proj",)),  # DeepSeek-V2 Lite
    *(Separate(key, query, value, output) for names, outputs in _SEPARATE for key, query, value in [names.split()]
      for output in outputs.split()),
    KeyValue("c_attn", "q_attn", "c_proj"),  # cross-attention of GPT-2; before Fused, which has two of its names
    KeyValue("kv", "q", "proj"),  # timm's pyramid transformers
    KeyValue("to_kv", "to_q", "to_out"),
    KeyValue("to_kv", "to_q", "to_out.0"),  # vit-pytorch
    KeyValue("kv_proj", "q_proj", "o_proj"),
    KeyValue("kv_proj", "q_proj", "out_proj"),
    KeyValue("linear_kv", "linear_q", "linear_proj", interleaved=True),  # Megatron's cross-attention
    KeyValue("key_value", "query_layer", "proj"),  # TransformerEngine's cross-attention
    KeyValue("key_value", "layernorm_query", "proj"),
    *(Fused(qkv, output) for qkv, outputs in _FUSED for output in outputs.split()),
    Interleaved("query_key_value", "dense"),  # GPT-NeoX, Pythia, Bloom, Falcon, Persimmon; sequential in ChatGLM, Ling
    Interleaved("self.query_key_value", "output.dense"),
    Interleaved("linear_qkv", "linear_proj"),  # Megatron
    Interleaved("self.in_proj", "output.dense"),  # DeBERTa's first version
    *(HeadModules(key, query, value, output) for key, query, value in map(str.split, _HEADS)
      for output in ("proj", "out_proj", "o_proj", "output", "out", "W_o")),
)  # fmt: skip
