"""Cross-encoder in a local ONNX file: reads two texts at once and scores if they say the same."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from consolidation_pipeline.errors import UsageError

# Tokens of both texts of a pair; longer pairs get no score. Fewer if config.json names a lower limit.
MAX_TOKENS = 512
# Pairs that are scored together, of about the same length.
_BATCH = 16
_TOKENIZER, _CONFIG = "tokenizer.json", "config.json"
_INSTALL = "pip install onnxruntime"

Scores = npt.NDArray[np.float64]


def hash_model(path: Path) -> str:
    """Return the SHA-256 of a model with its tokenizer and configuration.

    Raises:
        UsageError: the model or its tokenizer is not there or cannot be read.
    """
    digest = sha256()
    for file in _list_files(path):
        try:
            with file.open("rb") as stream:
                while block := stream.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            raise UsageError(f"pair_judge: {file} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


def _list_files(path: Path) -> list[Path]:
    """Return the files of a model: itself, its tokenizer, and its configuration if there is one."""
    config = path.with_name(_CONFIG)
    files = [path, path.with_name(_TOKENIZER)]
    for file in files:
        if not os.path.isfile(file):  # False, not an error, for a name that is too long or a folder that is closed
            raise UsageError(f"pair_judge: {file} is not a file; onnx:PATH needs a model with {_TOKENIZER} beside it")
    return [*files, config] if os.path.isfile(config) else files


class CrossEncoder:
    """Cross-encoder with its tokenizer.

    The model has one output (a logit of "same"), two (logits of different and same) or, as models of textual
    entailment, several that ``id2label`` of config.json names; then "entailment" is scored.

    Args:
        path: model file; tokenizer.json, and perhaps config.json, are beside it.

    Raises:
        UsageError: the package onnxruntime is not installed, or a file is missing or cannot be used.
    """

    def __init__(self, path: Path) -> None:
        files = _list_files(path)
        runtime = _import("onnxruntime")
        config = _read_config(files[2]) if len(files) > 2 else {}
        try:
            self._session: Any = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            self._tokenizer: Any = _import("tokenizers").Tokenizer.from_file(str(files[1]))
        except Exception as error:  # both libraries raise errors of their own without a common base
            raise UsageError(f"pair_judge: {path} cannot be loaded: {error}") from error
        padding = self._tokenizer.padding
        self._pad_id = 0 if padding is None else int(padding["pad_id"])
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._max_tokens = min(MAX_TOKENS, int(config.get("max_position_embeddings") or MAX_TOKENS))
        self._labels = {int(number): str(name).lower() for number, name in config.get("id2label", {}).items()}
        self._path = path

    def score(self, pairs: Sequence[tuple[str, str]]) -> Scores:
        """Return the probability (n,) that each pair says the same; NaN for pairs with too many tokens.

        Raises:
            UsageError: the model's inputs or outputs are not those of a cross-encoder.
        """
        encodings = self._tokenizer.encode_batch([*pairs])
        lengths = np.array([len(one.ids) for one in encodings], dtype=np.int64)
        scores = np.full(len(pairs), np.nan)
        fitting = np.flatnonzero(lengths <= self._max_tokens)
        ordered = fitting[np.argsort(lengths[fitting], kind="stable")]
        for start in range(0, len(ordered), _BATCH):
            batch = ordered[start : start + _BATCH]
            scores[batch] = self._score_batch([encodings[at] for at in batch.tolist()])
        return scores

    def _score_batch(self, encodings: Sequence[Any]) -> Scores:
        longest = max(len(one.ids) for one in encodings)
        columns = {
            "input_ids": _pad([one.ids for one in encodings], longest, self._pad_id),
            "attention_mask": _pad([one.attention_mask for one in encodings], longest, 0),
            "token_type_ids": _pad([one.type_ids for one in encodings], longest, 0),
        }
        wanted = [given.name for given in self._session.get_inputs()]
        if unknown := set(wanted) - set(columns):
            raise UsageError(f"pair_judge: {self._path} needs the inputs {sorted(unknown)}; known are {[*columns]}")
        logits = np.asarray(self._session.run(None, {name: columns[name] for name in wanted})[0], dtype=np.float64)
        return self._read_logits(logits.reshape(len(encodings), -1))

    def _read_logits(self, logits: Scores) -> Scores:
        """Return the probability of "same" (n,) from the outputs (n, k)."""
        outputs = logits.shape[1]
        if outputs == 1:
            return np.asarray(1.0 / (1.0 + np.exp(-logits[:, 0])))
        entailing = [number for number, name in self._labels.items() if name == "entailment" and number < outputs]
        if outputs > 2 and not entailing:
            raise UsageError(
                f"pair_judge: {self._path} has {outputs} outputs, and no id2label in {_CONFIG} names one entailment"
            )
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(powers[:, entailing[0] if entailing else 1] / powers.sum(axis=1))


def _pad(rows: Sequence[Sequence[int]], length: int, value: int) -> npt.NDArray[np.int64]:
    return np.array([[*row, *[value] * (length - len(row))] for row in rows], dtype=np.int64)


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise UsageError(f"pair_judge: {path} is not JSON: {error}") from error
    return config if isinstance(config, dict) else {}


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise UsageError(f"pair_judge = onnx:PATH needs the package {package}: {_INSTALL}") from error
