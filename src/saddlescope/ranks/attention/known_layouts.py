"""Layouts of the attention modules of published libraries, by the names of their layers."""

from itertools import product

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

LAYOUTS: tuple[AttentionLayout, ...] = (
    TorchMultihead(),
    HeadTensors(),  # XLNet
    Latent(),  # DeepSeek-V2 and V3
    Latent(query=("q_proj",)),  # DeepSeek-V2 Lite
    Separate("key", "query", "value", "output"),  # saddlescope's ViT
    Separate("self.key", "self.query", "self.value", "output.dense"),  # BERT and its relatives
    Separate("self.key_proj", "self.query_proj", "self.value_proj", "output.dense"),  # DeBERTa
    Separate("self.key", "self.query", "self.value", "output"),  # BigBird-Pegasus
    Separate("attention.projection_key", "attention.projection_query", "attention.projection_value", "output.dense"),
    Separate("att.key", "att.query", "att.value", "output.dense"),  # LXMERT's cross-attention
    Separate("project_k", "project_q", "project_v", "attention_out"),  # CPM-Ant
    Separate("attention.key", "attention.query", "attention.value", "output.dense"),  # Transformers' ViT until 4
    Separate("key", "query", "value", "dense"),  # ALBERT
    Separate("key", "query", "value", "out_proj"),
    Separate("key", "query", "value", "proj"),
    Separate("key", "query", "value", "out"),  # OpenAI's Whisper
    Separate("k_proj", "q_proj", "v_proj", "o_proj"),  # Llama, Mistral, Qwen, Gemma, Transformers' ViT from 5
    Separate("k_proj", "q_proj", "v_proj", "out_proj"),  # OPT, BART, CLIP, GPT-Neo, GPT-J, Whisper
    Separate("k_proj", "q_proj", "v_proj", "dense"),  # Phi-1, Phi-2
    Separate("k_proj", "q_proj", "v_proj", "Wo"),  # ModernBERT's decoder
    Separate("k_proj", "q_proj", "v_proj", "output_proj"),  # torchtune
    Separate("k_proj", "q_proj", "v_proj", "proj"),  # timm's EVA
    Separate("k_proj", "q_proj", "v_proj", "proj_out"),
    Separate("k_proj", "q_proj", "v_proj", "projection"),
    Separate("k_proj", "q_proj", "v_proj", "projection_layer"),  # InternVL's and Janus' images
    Separate("k_proj", "q_proj", "v_proj", "output_projection.o_proj"),  # NeoMME
    Separate("k_proj", "q_proj", "v_proj", "linear_out"),
    Separate("k_proj", "q_proj", "v_proj", "c_proj"),
    Separate("key_proj", "query_proj", "value_proj", "out_proj"),  # ProphetNet
    Separate("key_proj", "query_proj", "value_proj", "output_proj"),
    Separate("k_lin", "q_lin", "v_lin", "out_lin"),  # DistilBERT
    Separate("linear_k", "linear_q", "linear_v", "linear_out"),  # wav2vec2-BERT, conformers
    Separate("wk", "wq", "wv", "wo"),  # Meta's Llama, torchtitan
    Separate("wk", "wq", "wv", "proj"),  # timm's CrossViT
    Separate("Wk", "Wq", "Wv", "dense"),  # CTRL
    Separate("Wk", "Wq", "Wv", "Wo"),
    Separate("c_k", "c_q", "c_v", "c_proj"),  # nanochat
    Separate("k", "q", "v", "o"),  # T5
    Separate("k", "q", "v", "proj"),  # timm's CaiT
    Separate("k", "q", "v", "out"),
    Separate("k", "q", "v", "out_proj"),
    Separate("k", "q", "v", "proj_out"),
    Separate("to_k", "to_q", "to_v", "to_out"),  # x-transformers
    Separate("to_k", "to_q", "to_v", "to_out.0"),  # Diffusers; x-transformers with gated outputs
    KeyValue("c_attn", "q_attn", "c_proj"),  # cross-attention of GPT-2; before Fused, which has two of its names
    KeyValue("kv", "q", "proj"),  # timm's pyramid transformers
    KeyValue("to_kv", "to_q", "to_out"),
    KeyValue("to_kv", "to_q", "to_out.0"),  # vit-pytorch
    KeyValue("kv_proj", "q_proj", "o_proj"),
    KeyValue("kv_proj", "q_proj", "out_proj"),
    KeyValue("linear_kv", "linear_q", "linear_proj", interleaved=True),  # Megatron's cross-attention
    KeyValue("key_value", "query_layer", "proj"),  # TransformerEngine's cross-attention
    KeyValue("key_value", "layernorm_query", "proj"),
    Fused("c_attn", "c_proj"),  # GPT-2, nanoGPT
    Fused("attn", "proj"),  # litgpt until 0.5
    Fused("qkv", "proj"),  # timm, SAM, Qwen-VL's images, litgpt, TransformerEngine
    Fused("layernorm_qkv", "proj"),  # TransformerEngine
    Fused("attention.qkv", "output.dense"),  # TimeSformer
    Fused("qkv", "projection"),  # BLIP
    Fused("qkv", "out_proj"),
    Fused("qkv", "out"),
    Fused("qkv", "to_out"),
    Fused("qkv", "o_proj"),
    Fused("qkv", "dense"),
    Fused("qkv_proj", "o_proj"),  # Phi-3
    Fused("qkv_proj", "out_proj"),  # OpenELM, CodeGen, fairseq2
    Fused("qkv_proj", "proj"),
    Fused("in_proj", "out_proj"),
    Fused("Wqkv", "Wo"),  # ModernBERT
    Fused("Wqkv", "out_proj"),  # MPT, DBRX, flash-attn
    Fused("wqkv", "wo"),  # torchtune's and gpt-fast's Llama, InternLM
    Fused("to_qkv", "to_out"),
    Fused("to_qkv", "to_out.0"),  # vit-pytorch
    Fused("att_proj", "out_proj"),  # Bark
    Fused("att_proj", "attn_out"),  # OLMo's own code
    Interleaved("query_key_value", "dense"),  # GPT-NeoX, Pythia, Bloom, Falcon, Persimmon; sequential in ChatGLM, Ling
    Interleaved("self.query_key_value", "output.dense"),
    Interleaved("linear_qkv", "linear_proj"),  # Megatron
    Interleaved("self.in_proj", "output.dense"),  # DeBERTa's first version
    *(  # heads that are modules of their own, in lectures
        HeadModules(*names, output)
        for names, output in product(
            (
                ("key", "query", "value"),
                ("W_key", "W_query", "W_value"),
                ("k", "q", "v"),
                ("k_proj", "q_proj", "v_proj"),
            ),
            ("proj", "out_proj", "o_proj", "output", "out", "W_o"),
        )
    ),
)
