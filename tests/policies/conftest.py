"""A tiny random model with a real tokenizer and chat template."""

import pytest

TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'] + '\n' + m['content'] + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """A directory with a Llama of 2 layers that writes bytes."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    import tokenizers

    torch.set_num_threads(1)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate(["<s>", "</s>", *alphabet])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        chat_template=TEMPLATE,
    )
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        initializer_range=0.3,  # far from uniform, so that a wrong log-prob shows
        bos_token_id=0,
        eos_token_id=1,
    )
    generator_state = torch.get_rng_state()
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config)
    torch.set_rng_state(generator_state)
    directory = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(directory)
    fast.save_pretrained(directory)
    return directory
