"""PEFT's types of tasks, from the architecture in a config.json, and the modules that it stores whole for them."""

from collections.abc import Mapping
from typing import Any

_ENDINGS = {
    "ForCausalLM": "CAUSAL_LM",
    "LMHeadModel": "CAUSAL_LM",
    "ForSequenceClassification": "SEQ_CLS",
    "ForTokenClassification": "TOKEN_CLS",
    "ForQuestionAnswering": "QUESTION_ANS",
}
_WHOLE = {"SEQ_CLS": ("classifier", "score"), "TOKEN_CLS": ("classifier", "score"), "QUESTION_ANS": ("qa_outputs",)}


def task_type(config: Mapping[str, Any]) -> str | None:
    """Return PEFT's type of the task of a model, or None for models of another task, which PEFT loads without one."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    if name.endswith("ForConditionalGeneration"):
        return "SEQ_2_SEQ_LM" if config.get("is_encoder_decoder") else None
    return next((task for ending, task in _ENDINGS.items() if name.endswith(ending)), None)


def whole_modules(task: str | None) -> tuple[str, ...]:
    """Return the last parts of the names of the modules that PEFT always stores whole for a task."""
    return _WHOLE.get(task or "", ())
