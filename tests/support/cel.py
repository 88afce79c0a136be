"""As much of CEL as the CRD's rules speak, so that they can be asked thousands of times without an API server.

Integers and doubles are as apart as in CEL (7 / 2 is 3, overflow of 64 bits is an error); the real one has the last
word, in tests/integration/operator/test_cel.py.
"""

from __future__ import annotations

import functools
import operator
import re

TOKEN = re.compile(
    r"""\s*(?:(\d+\.\d+|\d+)|'((?:[^'\\]|\\.)*)'|([A-Za-z_]\w*)|(&&|\|\||[<>=!]=|[-+*/%<>!?:()\[\].,]))"""
)
LEVELS = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
MACROS = {"map", "filter", "exists", "all"}
COMPARE = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "in": lambda a, b: a in b,
}  # fmt: skip


class CelError(Exception):
    """What a rule cannot be asked of this object."""


class Optional:
    """`oldSelf` of a rule with optionalOldSelf."""

    def __init__(self, value=None):
        self.inner = value


def evaluate(text, **variables):
    """The value of an expression."""
    return _value(_parsed(text), variables)


def refusals(schema, spec, old=None):
    """The sentences of a schema's own rules that an object breaks: what the API server would say."""
    told = []
    for rule in schema.get("x-kubernetes-validations", ()):
        names = {"self": spec, "oldSelf": Optional(old) if rule.get("optionalOldSelf") else old}
        if not evaluate(rule["rule"], **names):
            told.append(
                evaluate(rule["messageExpression"], **names) if "messageExpression" in rule else rule["message"]
            )
    return told


# --- text to a tree ---------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _parsed(text):
    tokens, at = [], 0
    while at < len(text.rstrip()):
        found = TOKEN.match(text, at)
        if not found:
            raise SyntaxError(text[at:])
        number, string, name, sign = found.groups()
        if number:
            tokens.append(("value", float(number) if "." in number else int(number)))
        elif string is not None:
            tokens.append(("value", re.sub(r"\\(.)", r"\1", string)))
        else:
            tokens.append(("name", name) if name else ("sign", sign))
        at = found.end()
    reader = _Reader(tokens)
    tree = reader.ternary()
    if reader.at != len(tokens):
        raise SyntaxError(str(tokens[reader.at :]))
    return tree


class _Reader:
    def __init__(self, tokens):
        self.tokens, self.at = tokens, 0

    def sees(self, *signs):
        word = self.tokens[self.at][1] if self.at < len(self.tokens) and self.tokens[self.at][0] != "value" else None
        return word if word in signs else None

    def takes(self, *signs):
        if word := self.sees(*signs):
            self.at += 1
        return word

    def wants(self, sign):
        if not self.takes(sign):
            raise SyntaxError(f"{sign} before {self.tokens[self.at :][:5]}")

    def ternary(self):
        condition = self.binary(0)
        if not self.takes("?"):
            return condition
        yes = self.ternary()
        self.wants(":")
        return ("if", condition, yes, self.ternary())

    def binary(self, level):
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while sign := self.takes(*LEVELS[level]):
            left = (sign, left, self.binary(level + 1))
        return left

    def unary(self):
        return ("not", self.unary()) if self.takes("!") else self.postfix()

    def postfix(self):
        tree = self.primary()
        while sign := self.takes(".", "["):
            if sign == "[":
                tree = ("index", tree, self.ternary())
                self.wants("]")
            else:
                name = self.tokens[self.at][1]
                self.at += 1
                tree = ("call", name, tree, self.listed(")")) if self.takes("(") else ("field", tree, name)
        return tree

    def primary(self):
        if self.takes("("):
            tree = self.ternary()
            self.wants(")")
            return tree
        if self.takes("["):
            return ("list", self.listed("]"))
        kind, word = self.tokens[self.at]
        self.at += 1
        if kind == "value":
            return ("value", word)
        if word in {"true", "false"}:
            return ("value", word == "true")
        return ("call", word, None, self.listed(")")) if self.takes("(") else ("name", word)

    def listed(self, end):
        found = []
        while not self.takes(end):
            found.append(self.ternary())
            self.takes(",")
        return found


# --- a tree to a value ------------------------------------------------------------------------------------------------


def _value(tree, names):
    match tree:
        case ("value", value):
            return value
        case ("name", name):
            return names[name]
        case ("list", items):
            return [_value(item, names) for item in items]
        case ("if", condition, yes, no):
            return _value(yes if _value(condition, names) else no, names)
        case ("not", inner):
            return not _value(inner, names)
        case ("&&", left, right):
            return _value(left, names) and _value(right, names)
        case ("||", left, right):
            return _value(left, names) or _value(right, names)
        case ("field", inner, name):
            return _value(inner, names)[name]
        case ("index", inner, at):
            return _value(inner, names)[_value(at, names)]
        case ("call", name, inner, arguments):
            return _call(name, inner, arguments, names)
    return _binary(tree[0], _value(tree[1], names), _value(tree[2], names))


def _binary(sign, left, right):
    if sign in COMPARE:
        return COMPARE[sign](left, right)
    if type(left) is not type(right):
        raise CelError(f"no such overload: {left!r} {sign} {right!r}")
    if sign == "+":
        return _bounded(left + right) if isinstance(left, int) else left + right
    if sign in {"-", "*"}:
        return _bounded(left - right if sign == "-" else left * right)
    if sign == "/":
        return left / right if isinstance(left, float) else int(left / right)  # towards zero; below 2**53
    return left % right


def _bounded(number):
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise CelError("integer overflow")
    return number


def _call(name, inner, arguments, names):
    if name == "has":
        _, where, field = arguments[0]
        return _value(where, names).get(field) is not None
    if name in MACROS:
        (_, variable), body = arguments[0], arguments[1]
        items = _value(inner, names)
        made = [_value(body, {**names, variable: item}) for item in items]
        kept = [item for item, wanted in zip(items, made, strict=True) if wanted]
        return {"map": made, "filter": kept, "exists": any(made), "all": all(made)}[name]
    given = [_value(argument, names) for argument in arguments]
    if inner is None:
        return _bounded(int(given[0])) if name == "int" else float(given[0])
    return _method(name, _value(inner, names), given)


def _method(name, subject, given):
    match name:
        case "hasValue":
            return subject.inner is not None
        case "value":
            return subject.inner
        case "matches":
            return re.search(given[0], subject) is not None
        case "format":
            return _formatted(subject, given[0])
        case "max" | "min":
            return max(subject) if name == "max" else min(subject)
    raise CelError(f"no method {name}")


def _formatted(text, values):
    kinds = iter(values)

    def one(found):
        value = next(kinds)
        if found[0] == "%d" and not isinstance(value, int):
            raise CelError(f"%d of {value!r}")
        return f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

    return re.sub("%[ds]", one, text)
