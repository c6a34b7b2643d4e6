"""The content of `certificate.json`: which graph was compared with which network, and how closely they agree.

It carries no time, so the same graph has the same certificate.
"""

from __future__ import annotations

from dataclasses import asdict
from importlib.metadata import version as installed
from typing import TYPE_CHECKING, Any

from export.graphs import to_onnx
from export.layout import sha256
from export.parity import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from export.parity import Comparison, Padded

#: Packages whose arithmetic was compared.
SOFTWARE = ("torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def certificate(
    artefact: Path,
    operators: dict[str, int],
    comparisons: Sequence[Comparison],
    card: dict[str, Any],
    padding: Sequence[Padded] | None = None,
) -> dict[str, Any]:
    """Compose the certificate that lies beside the card.

    Args:
        artefact: The written graph.
        operators: How many operators of each kind it has.
        comparisons: Its differences to the network.
        card: The version's card.
        padding: For models of sequences, the effect of padding.

    Returns:
        The certificate.
    """
    return {
        **{key: card[key] for key in ("model", "version", "format")},
        "artefact": {"file": artefact.name, "sha256": sha256(artefact), "bytes": artefact.stat().st_size},
        "checkpoint": {"sha256": card["checkpoint"]["sha256"]},
        "tolerance": TOLERANCE,
        "opset": to_onnx.OPSET if card["format"] == "onnx" else None,
        "operators": operators,
        "software": {name: installed(name) for name in SOFTWARE},
        "comparisons": [{**asdict(one), "shape": list(one.shape)} for one in comparisons],
        "worst": {
            dtype: max(getattr(one, dtype).relative_l2 for one in comparisons) for dtype in ("float32", "float64")
        },
        **({} if padding is None else {"padding": [{**asdict(one), "shape": list(one.shape)} for one in padding]}),
    }
