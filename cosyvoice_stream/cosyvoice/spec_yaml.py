"""Read a checkpoint's YAML as data: its tags name Python objects, none of which is ever created.

``!new:``, ``!name:`` and ``!apply:`` become a plain `Tagged` value; ``!ref <a> * <b>`` is looked up
and calculated with the four operations on numbers; a reference to anything else becomes that thing.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from cosyvoice_stream.errors import ModelLoadError

REFERENCE = re.compile(r"<([^<>]+)>")
MAX_BYTES = 1 << 20
MAX_DEPTH = 32


@dataclass(frozen=True)
class Tagged:
    """What a ``!new:`` or ``!name:`` tag describes."""

    name: str
    """Dotted path behind the tag, such as ``cosyvoice.flow.DiT.dit.DiT``."""
    arguments: Any = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Last part of the path."""
        return self.name.rpartition(".")[2]

    def __getitem__(self, key: str) -> Any:
        """Argument by name."""
        return self.arguments[key]

    def get(self, key: str, default: Any = None) -> Any:
        """Argument by name, or a default."""
        return self.arguments.get(key, default) if isinstance(self.arguments, dict) else default


@dataclass(frozen=True)
class _Reference:
    text: str


class _Loader(yaml.SafeLoader):
    """SafeLoader that also knows the tags, as data."""


def _construct(loader: Any, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def _tagged(loader: Any, suffix: str, node: yaml.Node) -> Tagged:
    value = _construct(loader, node)
    return Tagged(suffix, {} if value in ("", None) else value)


for _tag in ("!new:", "!name:", "!apply:"):
    _Loader.add_multi_constructor(_tag, _tagged)
_Loader.add_constructor("!ref", lambda loader, node: _Reference(str(_construct(loader, node))))

_OPERATIONS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def _calculate(node: ast.AST, text: str) -> int | float:
    """Evaluate a tree of numbers and operations, and nothing else."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left, right = _calculate(node.left, text), _calculate(node.right, text)
        result: int | float = _OPERATIONS[type(node.op)](left, right)
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_calculate(node.operand, text)
    raise ModelLoadError(f"cannot calculate the reference {text!r}")


class _Resolver:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root

    def look_up(self, path: str, depth: int) -> Any:
        value: Any = self.root
        for part in path.strip().split("."):
            value = value.arguments if isinstance(value, Tagged) else value
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
                value = value[int(part)]
            else:
                raise ModelLoadError(f"the reference <{path}> points at nothing")
        return self.resolve(value, depth + 1)

    def resolve(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise ModelLoadError("references in the YAML form a circle")
        if isinstance(value, _Reference):
            whole = REFERENCE.fullmatch(value.text.strip())
            if whole:
                return self.look_up(whole[1], depth)

            def number(match: re.Match[str]) -> str:
                found = self.look_up(match[1], depth)
                if type(found) not in (int, float):
                    raise ModelLoadError(f"cannot calculate the reference {value.text!r}")
                return repr(found)

            expression = REFERENCE.sub(number, value.text)
            try:
                return _calculate(ast.parse(expression, mode="eval").body, value.text)
            except (SyntaxError, ZeroDivisionError) as error:
                raise ModelLoadError(f"cannot calculate the reference {value.text!r}") from error
        if isinstance(value, Tagged):
            return Tagged(value.name, self.resolve(value.arguments, depth + 1))
        if isinstance(value, dict):
            return {key: self.resolve(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, depth + 1) for item in value]
        return value


def read_spec_yaml(text: str) -> dict[str, Any]:
    """Parse and resolve.

    Args:
        text: Content of ``cosyvoice2.yaml`` or ``cosyvoice3.yaml``.

    Raises:
        ModelLoadError: Not YAML, too large, or a reference that cannot be resolved.
    """
    if len(text) > MAX_BYTES:
        raise ModelLoadError(f"the YAML is larger than {MAX_BYTES} bytes")
    try:
        # The loader is SafeLoader plus constructors that make plain data.
        root = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ModelLoadError(f"the YAML cannot be read{where}") from error
    if not isinstance(root, dict):
        raise ModelLoadError("the YAML does not hold a mapping")
    return {key: _Resolver(root).resolve(value) for key, value in root.items()}
