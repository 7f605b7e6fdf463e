"""The model's table as a folder for vLLM: a Llama of one layer that adds nothing. Run in the environment that has
`transformers`: hf_model.py FOLDER."""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script

# One dimension for each token, as a multiple of what kernels want; more tokens than that have none.
SIZE = 512


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    letters, special, pieces = script.vocabulary(script.thoughtful)
    tokens = letters + special + pieces
    ids = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE({letter: ids[letter] for letter in letters}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in pieces])
    assert all(tokenizer.token_to_id(token) == number for token, number in ids.items())
    tokenizer.save(str(folder / "tokenizer.json"))
    end, start = ids[script.END], ids["<|endoftext|>"]
    write_json(folder / "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": script.END, "bos_token": "<|endoftext|>", "pad_token": "<|endoftext|>",
        "model_max_length": 32768, "clean_up_tokenization_spaces": False, "chat_template": script.template(),
    })
    write_json(folder / "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": SIZE, "hidden_size": SIZE, "intermediate_size": SIZE,
        "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "max_position_embeddings": 32768, "rope_theta": 10000.0, "tie_word_embeddings": False,
        "bos_token_id": start, "eos_token_id": end, "torch_dtype": "float32",
    })
    write_json(folder / "generation_config.json", {"eos_token_id": end, "bos_token_id": start, "temperature": 0.0})
    save_file(weights(ids, end), folder / "model.safetensors", {"format": "pt"})


def weights(ids, end):
    """A token's embedding is its own dimension; the output is the table."""
    output = torch.zeros(SIZE, SIZE)
    output[end] = 0.5  # what nothing follows is followed by the end
    for token, successor in script.successors(script.thoughtful):
        output[ids[successor], ids[token]] = 1
    tensors = {"model.embed_tokens.weight": torch.eye(SIZE), "model.norm.weight": torch.ones(SIZE), "lm_head.weight": output}
    layer = "model.layers.0"
    tensors |= {f"{layer}.{name}.weight": torch.ones(SIZE) for name in ("input_layernorm", "post_attention_layernorm")}
    parts = [f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    return tensors | {f"{layer}.{name}.weight": torch.zeros(SIZE, SIZE) for name in parts}


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1))


write(Path(sys.argv[1]))
