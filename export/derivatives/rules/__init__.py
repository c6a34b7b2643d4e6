"""The derivative of each operator of ONNX: the gradients of its inputs by that of its result.

`RULES` has one rule per operator; another module adds one with the decorator `rule`.
"""

from export.derivatives.rules import linear
from export.derivatives.rules.elementwise import CONSTANT, RULES, Step

__all__ = ["CONSTANT", "RULES", "Step", "linear"]
