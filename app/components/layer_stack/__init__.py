"""The stack of layers as a column of switches."""

from app.components.layer_stack.layer_stack import layer_stack

__all__ = ["layer_stack"]
