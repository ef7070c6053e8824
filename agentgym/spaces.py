"""The two spaces of this package: any text, and a conversation.

They subclass `gymnasium.Space`, not `Text`: `Text` knows a closed alphabet and fixed-size buffers, and fails under
shared memory at the first other character. The functions registered at the end make both work in `SyncVectorEnv` and
`AsyncVectorEnv` with gymnasium's default arguments.

In an `AsyncVectorEnv` made with ``copy=False`` the batch is a lazy view on the buffers instead of a tuple; it reads
like a tuple but is not contained in the batched space.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Tuple
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector.utils import (
    batch_differing_spaces,
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from agentgym.messages import ROLES, Message
from agentgym.messages import Conversation as Messages

T = TypeVar("T")

# What `sample` draws from: short and printable, with a few characters that break code assuming ASCII.
_SAMPLE_ALPHABET = np.array(list("abcdefghijklmnopqrstuvwxyz ABC 0123456789\n.,:;!?<>{}[]\"'éß中文🙂"))


class UnicodeText(Space[str]):
    """Any text up to a length, the empty one included. Lone surrogates are refused: they cannot be encoded.

    Args:
        max_length: most characters a text may have.
        seed: for `sample`.
    """

    def __init__(self, max_length: int = 1 << 24, *, seed: int | np.random.Generator | None = None) -> None:
        if max_length < 0:
            raise ValueError(f"expected max_length >= 0, got {max_length}")
        self.max_length = max_length
        super().__init__(None, None, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A short random text; masks mean nothing here."""
        if mask is not None or probability is not None:
            raise ValueError("UnicodeText.sample takes no mask or probability")
        length = int(self.np_random.integers(0, min(self.max_length, 32) + 1))
        return "".join(self.np_random.choice(_SAMPLE_ALPHABET, size=length))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a text of allowed length that can be encoded."""
        return isinstance(x, str) and len(x) <= self.max_length and encodable(x)

    @property
    def is_np_flattenable(self) -> bool:
        """Text has no fixed-size array form."""
        return False

    def __repr__(self) -> str:
        return f"UnicodeText({self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText) and self.max_length == other.max_length

    __hash__ = None  # type: ignore[assignment]  # spaces are mutable through their seed

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(dict(state))


class Conversation(Space[Messages]):
    """A tuple of frozen `agentgym.messages.Message`.

    Args:
        max_messages: most messages a conversation may have.
        max_length: most characters of one message.
        seed: for `sample`.
    """

    def __init__(
        self,
        max_messages: int = 1 << 16,
        max_length: int = 1 << 24,
        *,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        if max_messages < 0 or max_length < 0:
            raise ValueError(f"expected bounds >= 0, got {max_messages} messages of {max_length} characters")
        self.max_messages = max_messages
        self.max_length = max_length
        self._text = UnicodeText(max_length)
        super().__init__(None, None, seed)

    def sample(self, mask: Any = None, probability: Any = None) -> Messages:
        """A few random messages; masks mean nothing here."""
        if mask is not None or probability is not None:
            raise ValueError("Conversation.sample takes no mask or probability")
        count = int(self.np_random.integers(0, min(self.max_messages, 4) + 1))
        self._text._np_random = self.np_random
        return tuple(Message(str(self.np_random.choice(ROLES)), self._text.sample()) for _ in range(count))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a tuple of messages within the bounds."""
        if not isinstance(x, tuple) or len(x) > self.max_messages:
            return False
        return all(isinstance(m, Message) and m.role in ROLES and self._text.contains(m.content) for m in x)

    @property
    def is_np_flattenable(self) -> bool:
        """A conversation has no fixed-size array form."""
        return False

    def __repr__(self) -> str:
        return f"Conversation({self.max_messages}, {self.max_length})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Conversation):
            return False
        return (self.max_messages, self.max_length) == (other.max_messages, other.max_length)

    __hash__ = None  # type: ignore[assignment]

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(dict(state))


def encodable(text: str) -> bool:
    """Whether the text holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------
# Vector environments


class _Buffers:
    """Shared memory for values without a size bound: one file per environment in a folder both sides know.

    The folder belongs to the process that made it and goes with it; folders whose maker was killed are swept by the
    next one that makes a folder.
    """

    def __init__(self, n: int) -> None:
        root = _root()
        _sweep(root)
        self.folder = Path(tempfile.mkdtemp(prefix=f"agentgym-{_pid_namespace()}-{os.getpid()}-", dir=root))
        self.n = n
        owner = os.getpid()
        self._finalizer = weakref.finalize(self, _remove_if_owner, self.folder, owner)

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "n": self.n}  # a child that unpickles this does not own the folder

    def write(self, index: int, payload: bytes) -> None:
        (self.folder / str(index)).write_bytes(payload)

    def read(self, index: int) -> bytes | None:
        try:
            return (self.folder / str(index)).read_bytes()
        except FileNotFoundError:
            return None


def _root() -> Path:
    return Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())


def _remove_if_owner(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits the finalizer but not the folder
        shutil.rmtree(folder, ignore_errors=True)


def _pid_namespace() -> int:
    """A number for the set of processes this one can see; 0 where the system does not tell."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _sweep(root: Path) -> None:
    namespace = _pid_namespace()
    if not namespace:
        return  # nothing here says who is alive
    # Containers may share /dev/shm and not their process numbers: only folders of our own namespace are judged.
    for folder in root.glob(f"agentgym-{namespace}-*-*"):
        pid = folder.name.split("-")[2]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(folder)


class LazyBatch(Sequence[T], Generic[T]):
    """The current values of all environments, read from the buffers when looked at.

    `AsyncVectorEnv` asks for this once, when it is made, and deep-copies it at every step; the copy is an ordinary
    tuple of that moment's values.
    """

    def __init__(self, buffers: _Buffers, empty: T) -> None:
        self._buffers = buffers
        self._empty = empty

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a batch of {len(self)}")
        payload = self._buffers.read(index % len(self))
        return self._empty if payload is None else pickle.loads(payload)

    def __iter__(self) -> Iterator[T]:
        return (self[index] for index in range(len(self)))

    def __len__(self) -> int:
        return self._buffers.n

    def __deepcopy__(self, memo: dict[int, Any]) -> tuple[T, ...]:
        return tuple(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@create_shared_memory.register(UnicodeText)
@create_shared_memory.register(Conversation)
def _create_shared_memory(space: Space[Any], n: int = 1, ctx: Any = None) -> _Buffers:
    return _Buffers(n)


@read_from_shared_memory.register(UnicodeText)
def _read_texts(space: UnicodeText, shared_memory: _Buffers, n: int = 1) -> LazyBatch[str]:
    return LazyBatch(shared_memory, "")


@read_from_shared_memory.register(Conversation)
def _read_conversations(space: Conversation, shared_memory: _Buffers, n: int = 1) -> LazyBatch[Messages]:
    return LazyBatch(shared_memory, ())


@write_to_shared_memory.register(UnicodeText)
@write_to_shared_memory.register(Conversation)
def _write(space: Space[Any], index: int, value: Any, shared_memory: _Buffers) -> None:
    shared_memory.write(index, pickle.dumps(value, pickle.HIGHEST_PROTOCOL))


def _batch_differing(spaces: Sequence[Space[Any]]) -> Tuple[Any]:
    return Tuple(tuple(spaces))


for _space in (UnicodeText, Conversation):  # dispatched on the first item of the sequence
    batch_differing_spaces.register(_space, _batch_differing)


@is_space_dtype_shape_equiv.register(UnicodeText)
@is_space_dtype_shape_equiv.register(Conversation)
def _equivalent(space_1: Space[Any], space_2: Space[Any]) -> bool:
    return type(space_1) is type(space_2)  # bounds may differ: text carries no shape
