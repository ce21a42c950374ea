"""The engines and number formats that a user may choose; light to import, for the commands."""

from __future__ import annotations

from typing import Literal

Engine = Literal["native", "ctranslate2"]
Precision = Literal["float32", "bf16"]
Quantization = Literal[
    "float32", "float16", "bfloat16", "int16", "int8", "int8_float32", "int8_bfloat16"
]
