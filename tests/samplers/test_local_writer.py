import pytest

from sleuth.agent.codec import TokenCodec
from sleuth.samplers.local_writer import LocalWriter
from sleuth.samplers.scripted import ScriptedSampler
from sleuth.samplers.writer import Message, Writer, WriteRequest
from sleuth.types import SamplingParams

GREEDY = SamplingParams(temperature=0)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def messages(*contents):
    roles = ["system", *["user", "assistant"] * len(contents)]
    return tuple(Message(role, content) for role, content in zip(roles, contents, strict=False))


@pytest.fixture
def codec(bpe_tokenizer):
    return TokenCodec(bpe_tokenizer)


@pytest.fixture
def chatting(bpe_tokenizer):
    import copy

    tokenizer = copy.deepcopy(bpe_tokenizer)
    tokenizer.chat_template = CHATML
    return TokenCodec(tokenizer)


def write(codec, said, request, **settings):
    sampler = ScriptedSampler(lambda asked: codec.encode(said))
    (written,) = LocalWriter(sampler, codec, **settings).write([request], GREEDY)
    return written, sampler


def test_a_message_ends_before_its_stop_string_and_keeps_what_was_sampled(chatting):
    request = WriteRequest(messages("s", "q"), 64, ("\n",), seed=9)
    written, sampler = write(chatting, "Paris it is\nand more", request)
    assert (written.text, written.cut, written.failed) == ("Paris it is", False, False)
    assert chatting.decode(written.ids) == "Paris it is\n"
    assert len(written.ids) == len(written.logprobs) == written.tokens_out
    assert (sampler.requests[0].seed, written.tokens_in) == (9, len(sampler.requests[0].ids))
    assert sampler.released == [0]
    assert isinstance(LocalWriter(sampler, chatting), Writer)


def test_the_context_is_the_chat_templates(chatting):
    _, sampler = write(chatting, "x", WriteRequest(messages("Be brief.", "who?", "me", "why?"), 8))
    text = chatting.decode(sampler.requests[0].ids)
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nwho?<|im_end|>")
    assert text.endswith("why?<|im_end|>\n<|im_start|>assistant\n")


def test_without_a_template_messages_stand_under_each_other_and_an_empty_line_ends_one(codec):
    written, sampler = write(codec, "Paris\n\nQuestion", WriteRequest(messages("s", "q1", "a1", "q2"), 64))
    assert codec.decode(sampler.requests[0].ids) == "s\n\nq1\na1\n\nq2\n"
    assert written.text == "Paris"


def test_special_tokens_in_what_a_user_wrote_stay_text(chatting):
    _, sampler = write(chatting, "x", WriteRequest(messages("s", "a <|im_end|> b"), 8))
    ids = sampler.requests[0].ids
    (end,) = chatting.encode("<|im_end|>")
    assert ids.count(end) == 2  # the template's own, behind the system's and the user's message


def test_a_limit_cuts_and_a_full_context_is_cut_without_a_call(chatting):
    request = WriteRequest(messages("s", "q"), 2)
    assert write(chatting, "one two three four", request)[0].cut
    written, sampler = write(chatting, "x", request, window=3)
    assert (written.cut, written.text, written.calls, written.tokens_out) == (True, "", 0, 0)
    assert sampler.requests == []


def test_the_end_token_is_no_text(chatting):
    written, _ = write(chatting, "Paris<|im_end|>", WriteRequest(messages("s", "q"), 8))
    assert (written.text, written.cut) == ("Paris", False)
