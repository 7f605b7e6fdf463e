"""The model's table as a GGUF file for llama.cpp. Run in the environment that has `gguf`: gguf_model.py FILE."""

import sys
from pathlib import Path

import gguf
import numpy

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import script

# One dimension for each token, as a multiple of what kernels want.
SIZE = 512


def write(path):
    letters, special, pieces = script.vocabulary()
    tokens = letters + special + pieces
    kinds = ([gguf.TokenType.NORMAL] * len(letters) + [gguf.TokenType.CONTROL] * len(special)
             + [gguf.TokenType.USER_DEFINED] * len(pieces))
    ids = {token: number for number, token in enumerate(tokens)}
    end = ids[script.END]
    file = gguf.GGUFWriter(path, "llama")
    file.add_name("scripted")
    file.add_context_length(32768)
    file.add_embedding_length(SIZE)
    file.add_block_count(1)
    file.add_feed_forward_length(SIZE)
    file.add_head_count(8)
    file.add_head_count_kv(8)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(SIZE // 8)
    file.add_vocab_size(len(tokens))
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list(tokens)
    file.add_token_types(kinds)
    file.add_token_merges(["Ġ Ġ"])  # llama.cpp wants one; without a token for the pair it changes nothing
    file.add_bos_token_id(ids["<|endoftext|>"])
    file.add_eos_token_id(end)
    file.add_add_bos_token(False)
    file.add_chat_template(script.template())
    for name, values in weights(ids, len(tokens), end).items():
        file.add_tensor(name, values)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def weights(ids, count, end):
    """A token's embedding is its own dimension; the only layer adds nothing; the output is the table."""
    nothing, ones = numpy.zeros((SIZE, SIZE), numpy.float32), numpy.ones(SIZE, numpy.float32)
    embedding = numpy.eye(count, SIZE, dtype=numpy.float32)
    output = numpy.zeros((count, SIZE), numpy.float32)
    output[end] = 0.5  # what nothing follows is followed by the end
    for token, successor in script.successors():
        output[ids[successor], ids[token]] = 1
    layer = {"blk.0.attn_norm.weight": ones, "blk.0.ffn_norm.weight": ones}
    layer |= {f"blk.0.{name}.weight": nothing for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")}
    return {"token_embd.weight": embedding, "output_norm.weight": ones, "output.weight": output} | layer


write(sys.argv[1])
