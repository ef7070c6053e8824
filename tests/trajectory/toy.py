"""A tokenizer with ambiguous merges and a chat template with special tokens, small enough to check by hand."""

from agentgym.messages import assistant

END = 1
ROLES = {"system": 2, "user": 3, "assistant": 4, "tool": 5}
PIECES = ["a", "b", "c", "aa", "ab", "ba", "bc", "ca", "abc", "aab", "bca"]
IDS = {piece: 10 + index for index, piece in enumerate(PIECES)}
TEXTS = {number: piece for piece, number in IDS.items()}


def greedy(text):
    """The one encoding the renderer uses: the longest piece first."""
    ids = []
    while text:
        piece = max((piece for piece in PIECES if text.startswith(piece)), key=len)
        ids.append(IDS[piece])
        text = text[len(piece) :]
    return ids


def any_encoding(text, choose):
    """Some encoding of the text; `choose(options)` picks each piece."""
    ids = []
    while text:
        piece = choose([piece for piece in PIECES if text.startswith(piece)])
        ids.append(IDS[piece])
        text = text[len(piece) :]
    return ids


def render(conversation, encode=greedy):
    """The prompt for the next reply."""
    ids = []
    for message in conversation:
        ids += [ROLES[message.role], *encode(message.content), END]
    if conversation and conversation[-1].role == "assistant":
        return tuple(ids[:-1])  # a prefill: the reply goes on where it ends
    return (*ids, ROLES["assistant"])


def decode(ids):
    """Messages as (role number, text) pairs; the last one may be unfinished."""
    messages = []
    for token in ids:
        if token in ROLES.values():
            messages.append((token, ""))
        elif token != END:
            role, text = messages[-1]
            messages[-1] = (role, text + TEXTS[token])
    return messages


def plain(messages):
    """What `decode` gives for these messages."""
    return [(ROLES[message.role], message.content) for message in messages]


def answered(conversation, text):
    """The conversation with a reply, a prefill continued."""
    if conversation and conversation[-1].role == "assistant":
        return (*conversation[:-1], assistant(conversation[-1].content + text))
    return (*conversation, assistant(text))
