"""Tokenizers over a handful of words, made in memory."""

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

WORDS = ("<pad>", "</s>", "<unk>", "the", "cat", "sat")
WHISPER_WORDS = ("the", "cat", "sat", "<unk>")
WHISPER_TOKENS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|en|>",
    "<|de|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startofprev|>",
    "<|notimestamps|>",
)


def text_tokenizer() -> PreTrainedTokenizerFast:
    """pad 0, eos 1, unk 2; eos stands after every text."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def whisper_tokenizer() -> PreTrainedTokenizerFast:
    """Words 0 to 3, then special tokens from <|endoftext|>, 4, on."""
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WHISPER_WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(WHISPER_TOKENS))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", unk_token="<unk>")
