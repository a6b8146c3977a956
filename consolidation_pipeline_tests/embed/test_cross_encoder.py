"""Cross-encoder in a local file: its scores, limits and error messages, with a stand-in for the ONNX runtime."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from consolidation_pipeline.embed.cross_encoder import MAX_TOKENS, CrossEncoder, hash_model
from consolidation_pipeline.errors import UsageError

WORDS = "[UNK] [PAD] the cache is full empty".split()
Feed = Mapping[str, npt.NDArray[np.int64]]
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Session:
    """Stand-in for an ONNX session: logits from the inputs."""

    def __init__(self, logits: Callable[[Feed], npt.NDArray[np.float32]], inputs: tuple[str, ...]) -> None:
        self.feeds: list[Feed] = []
        self._logits = logits
        self._inputs = inputs

    def get_inputs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=name) for name in self._inputs]

    def run(self, _: object, feed: Feed) -> list[npt.NDArray[np.float32]]:
        self.feeds.append(feed)
        return [self._logits(feed)]


def equal_sides(feed: Feed) -> npt.NDArray[np.bool_]:
    """Return True for each pair whose sides have the same tokens."""
    return np.array(
        [
            list(ids[(mask == 1) & (side == 0)]) == list(ids[(mask == 1) & (side == 1)])
            for ids, mask, side in zip(*(feed[name] for name in INPUTS), strict=True)
        ]
    )


def one_logit(feed: Feed) -> npt.NDArray[np.float32]:
    return np.where(equal_sides(feed), 4.0, -4.0).astype(np.float32)[:, None]


def two_logits(feed: Feed) -> npt.NDArray[np.float32]:
    return np.concatenate([-one_logit(feed), one_logit(feed)], axis=1)


def entailment_first(feed: Feed) -> npt.NDArray[np.float32]:
    return np.concatenate([one_logit(feed), -one_logit(feed), -one_logit(feed)], axis=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with a model file and its tokenizer, which pads with token 1."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.enable_padding(pad_id=1, pad_token="[PAD]")
    tokenizer.enable_truncation(4)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "judge.onnx").write_bytes(b"model")
    return tmp_path


@pytest.fixture
def use_session(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Function that makes the ONNX runtime open a session with these logits and inputs."""

    def use(logits: Callable[[Feed], npt.NDArray[np.float32]], inputs: tuple[str, ...] = INPUTS) -> Session:
        session = Session(logits, inputs)
        runtime: Any = ModuleType("onnxruntime")
        runtime.InferenceSession = lambda _, providers: session if providers else None
        monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
        return session

    return use


PAIRS = [("the cache is full", "the cache is full"), ("full", "empty"), ("the cache is full", "the cache is empty")]


@pytest.mark.parametrize("logits", [one_logit, two_logits], ids=["one output", "two outputs"])
def test_cross_encoder_scores_pairs_in_order(folder: Path, use_session: Callable[..., Session], logits: Any) -> None:
    session = use_session(logits)
    scores = CrossEncoder(folder / "judge.onnx").score(PAIRS)
    assert (scores > 0.9).tolist() == [True, False, False]
    [feed] = session.feeds
    assert feed["input_ids"].shape == (3, 8)
    assert (feed["input_ids"][0, 2:] == 1).all()
    assert feed["attention_mask"].sum(axis=1).tolist() == [2, 8, 8]


def test_entailment_label_is_read_from_configuration(folder: Path, use_session: Callable[..., Session]) -> None:
    use_session(entailment_first)
    labels = {"0": "ENTAILMENT", "1": "NEUTRAL", "2": "CONTRADICTION"}
    (folder / "config.json").write_text(json.dumps({"id2label": labels}))
    scores = CrossEncoder(folder / "judge.onnx").score(PAIRS)
    assert (scores > 0.9).tolist() == [True, False, False]
    (folder / "config.json").unlink()
    with pytest.raises(UsageError, match=r"judge\.onnx has 3 outputs, and no id2label"):
        CrossEncoder(folder / "judge.onnx").score(PAIRS)


def test_pair_with_too_many_tokens_has_no_score(folder: Path, use_session: Callable[..., Session]) -> None:
    use_session(one_logit)
    encoder = CrossEncoder(folder / "judge.onnx")
    fits, long = "full " * (MAX_TOKENS // 2), "full " * (MAX_TOKENS // 2 + 1)
    assert np.isnan(encoder.score([(fits, fits), (fits, long)])).tolist() == [False, True]
    (folder / "config.json").write_text('{"max_position_embeddings": 6}')
    assert np.isnan(CrossEncoder(folder / "judge.onnx").score(PAIRS)).tolist() == [True, False, True]


def test_model_with_other_inputs_is_refused(folder: Path, use_session: Callable[..., Session]) -> None:
    use_session(one_logit, inputs=("input_ids", "pixel_values"))
    with pytest.raises(UsageError, match="needs the inputs \\['pixel_values'\\]"):
        CrossEncoder(folder / "judge.onnx").score(PAIRS)


@pytest.mark.parametrize("missing", ["judge.onnx", "tokenizer.json"])
def test_missing_model_file_is_named(folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(UsageError, match=f"{missing} is not a file"):
        hash_model(folder / "judge.onnx")


def test_missing_runtime_says_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match="needs the package onnxruntime: pip install onnxruntime"):
        CrossEncoder(folder / "judge.onnx")


def test_unreadable_tokenizer_is_named(folder: Path, use_session: Callable[..., Session]) -> None:
    use_session(one_logit)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UsageError, match=r"judge\.onnx cannot be loaded"):
        CrossEncoder(folder / "judge.onnx")


def test_model_hash_depends_on_every_file(folder: Path) -> None:
    hashes = {hash_model(folder / "judge.onnx")}
    (folder / "config.json").write_text("{}")
    hashes.add(hash_model(folder / "judge.onnx"))
    (folder / "judge.onnx").write_bytes(b"another model")
    hashes.add(hash_model(folder / "judge.onnx"))
    assert len(hashes) == 3
