"""Text in, batches of token ids out: sources, cleaning, splits, tokenizer, corpus, batching."""

from __future__ import annotations

import os

# before anything imports huggingface_hub: preparing somebody's text is nobody else's business
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
