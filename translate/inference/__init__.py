"""Translation of text by a trained model; and the engines and number formats a user may choose."""

from __future__ import annotations

from typing import Literal

Engine = Literal["native", "ctranslate2"]
Precision = Literal["float32", "bf16", "int8"]
Quantization = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_bfloat16"
]
