"""A tokenizer of one token a byte, saved into a model's folder, for engines that want text."""

from pathlib import Path

from benches.single_node.random_model import SPECIAL_TOKENS

CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


def add_tokenizer(model: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    if (model / "tokenizer.json").exists():
        return
    specials = ["<pad>", "<s>", "</s>"]
    assert len(specials) == SPECIAL_TOKENS
    words = specials + sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=bytewise, pad_token=specials[0], bos_token=specials[1], eos_token=specials[2]
    )
    wrapped.chat_template = CHAT_TEMPLATE
    wrapped.save_pretrained(model)
