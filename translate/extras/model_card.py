"""The README of a bundle: Markdown with the front matter that model hubs read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def model_card(config: Mapping[str, Any], num_parameters: int) -> str:
    """Return the card of a model.

    `config` is the content of config.json; its `extra` is listed key by key.
    """
    source, target = config["source_language"], config["target_language"]
    facts = {
        "Translates": f"{source} → {target}",
        "Model": f"{config['family']}, {num_parameters:,} parameters",
        "Vocabulary": f"{config['source_vocab_size']:,} source and "
        f"{config['target_vocab_size']:,} target pieces",
        "Search": _flat(config["search"]),
        **{key.replace("_", " "): _flat(value) for key, value in config["extra"].items()},
    }
    lines = "\n".join(f"- **{name}**: {value}" for name, value in facts.items())
    return f"""---
language:
- {source.replace("_", "-")}
- {target.replace("_", "-")}
library_name: attention-translate
pipeline_tag: translation
---

# {source} → {target}

{lines}

## Use

With attention-translate {config["version"]} installed from its source:

```
translate text run=PATH_OF_THIS_FOLDER "…"
```

```python
import translate

print(translate.load("PATH_OF_THIS_FOLDER").translate(["…"]))
```

## Options

{"".join(f"- {key}: {_flat(value)}" + chr(10) for key, value in config["options"].items())}"""


def _flat(value: Any) -> str:
    """Write a value in one line."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(item)}" for key, item in value.items())
    return ", ".join(map(_flat, value)) if isinstance(value, list | tuple) else str(value)
