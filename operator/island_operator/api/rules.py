"""The CEL rules of the CRD, one sentence a message: the field, what is wrong, the value to use.

CEL has a cost budget and CRD rules have no variables, so Python expands what repeats. Three habits keep them cheap and
safe: `format` instead of string() (which has no size estimate), ratios as integers (0.29 * 100 is 28.99...), and rules on the smallest
object that holds their inputs, which the API server itself then skips while that object does not change. A rule that
needs the whole spec passes when its inputs did not change: the kill switch is never refused.
"""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]

RATIO = "^(0[.][0-9]{0,3}[1-9]|1)$"  # one spelling per value, so that the text can be hashed
SCALE = 10_000  # a ratio has at most four decimals

# Everything the operator itself says to an engine, and --config, which could say it all.
COUPLED_FLAGS = (
    "--islands", "--island-decode-interval", "--radix-cache-backend", "--swa-full-tokens-ratio", "--max-total-tokens",
    "--page-size", "--chunked-prefill-size", "--max-running-requests", "--disable-radix-cache", "--config",
    "--model-path", "--served-model-name", "--host", "--port", "--enable-metrics",
)  # fmt: skip
COUPLED_ENV = ("SGLANG_OPT_RELEASE_PREFILL_SWA", "SGLANG_PLUGINS", "ISLAND_ENABLED", "ISLAND_DECODE_INTERVAL")

_FLOORS = {
    "islands": (
        "(self.engine.chunkedPrefillSize + self.engine.maxRunningRequests * (self.geometry.slidingWindow + self.engine.pageSize))",
        "chunkedPrefillSize + maxRunningRequests * (slidingWindow + pageSize)",
    ),
    "stock": (
        "(self.engine.chunkedPrefillSize + self.engine.maxRunningRequests * 2 * (self.geometry.slidingWindow + self.engine.pageSize))",
        "chunkedPrefillSize + maxRunningRequests * 2 * (slidingWindow + pageSize)",
    ),
}


def rule(expression: str, message: str, **extra: Any) -> Rule:
    """One x-kubernetes-validations entry."""
    return {"rule": " ".join(expression.split()), "message": message, **extra}


def floor(half: str) -> Rule:
    """The SWA pool of one half against what its running requests pin (design: The island engine, SWA floor)."""
    expression, why = _FLOORS[half]
    own = f"self.partition.{half}"
    ratio, tokens = f"int(double({own}.swaFullTokensRatio) * {SCALE}.0 + 0.5)", f"{own}.maxTotalTokens"
    inputs = ("geometry.slidingWindow", "engine.chunkedPrefillSize", "engine.maxRunningRequests", "engine.pageSize")
    same = " && ".join(
        [
            f"has(oldSelf.value().partition) && has(oldSelf.value().partition.{half}) && oldSelf.value().partition.{half} == {own}"
        ]
        + [f"oldSelf.value().{path} == self.{path}" for path in inputs]
    )
    need_tokens = f"(({expression} * {SCALE} + {ratio} - 1) / {ratio})"
    need_ratio = f"(({expression} * {SCALE} + {tokens} - 1) / {tokens})"
    return rule(
        f"!has(self.partition) || !has({own}) || !{own}.swaFullTokensRatio.matches('{RATIO}') || (oldSelf.hasValue() && {same})"
        f" || {ratio} * {tokens} >= {expression} * {SCALE}",
        f"partition.{half}: the SWA pool (swaFullTokensRatio * maxTotalTokens) is below its floor, {why}",
        optionalOldSelf=True,
        fieldPath=".partition",
        messageExpression=(
            f"'partition.{half}: SWA pool of %d tokens is below its floor of %d ({why}): "
            f"use maxTotalTokens >= %d at this swaFullTokensRatio%s'.format([{ratio} * {tokens} / {SCALE}, {expression}, {need_tokens}, "
            f"{need_ratio} > {SCALE} ? '' : ', or swaFullTokensRatio >= \"%s\" at this maxTotalTokens'"
            f".format([double({need_ratio}) / {SCALE}.0])])"
        ),
    )


def immutable(what: str) -> list[Rule]:
    """A field that names the thing: another value is another object."""
    return [rule("self == oldSelf", f"{what} is immutable: make a new InferenceService with the name you want")]


SPEC = [
    floor("islands"),
    floor("stock"),
    rule(
        "(has(self.partition) && has(self.partition.islands))"
        " || (oldSelf.hasValue() && !has(oldSelf.value().partition) && oldSelf.value().geometry == self.geometry)"
        " || (has(self.geometry.fullBytesPerToken) && has(self.geometry.swaBytesPerToken) && has(self.geometry.kvBudgetBytes))",
        "partition is absent, so both halves are derived: give geometry.fullBytesPerToken, geometry.swaBytesPerToken and "
        "geometry.kvBudgetBytes, or both halves of partition",
        optionalOldSelf=True,
        fieldPath=".geometry",
    ),
]

PARTITION = [
    rule(
        "has(self.islands) == has(self.stock)",
        "partition: give both halves, islands and stock, or leave partition out to derive both from geometry",
    ),
    rule(
        f"!has(self.islands) || !has(self.stock) || !self.islands.swaFullTokensRatio.matches('{RATIO}')"
        f" || !self.stock.swaFullTokensRatio.matches('{RATIO}')"
        " || double(self.islands.swaFullTokensRatio) <= double(self.stock.swaFullTokensRatio)",
        "partition: islands.swaFullTokensRatio is larger than stock.swaFullTokensRatio, so the halves look swapped: exchange them",
    ),
]

RATIO_FIELD = [
    rule(
        f"self.matches('{RATIO}')",
        'swaFullTokensRatio must be a quoted decimal above 0 and at most 1, with at most four places and no trailing zero, such as "0.17"',
        messageExpression="'\"' + self + '\" is not a ratio: write a quoted decimal above 0 and at most 1, with at most four places and no "
        'trailing zero, such as "0.17"\'',
    )
]

_FLAGS = "[" + ", ".join(f"'{flag}'" for flag in COUPLED_FLAGS) + "]"
ARGUMENT = [  # startsWith in this direction also catches argparse's abbreviations, such as --swa-full
    rule(
        f"!self.startsWith('--') || self.size() < 5 || !{_FLAGS}.exists(f, f.startsWith(self.split('=', 2)[0]))",
        "engine.args sets a flag that the operator sets: use spec.partition, spec.engine, spec.model or spec.islands instead",
        messageExpression="'engine.args: \"' + self + '\" sets (or abbreviates) a flag that the operator sets: use spec.partition, spec.engine, "
        "spec.model or spec.islands instead'",
    )
]
_ENV = "[" + ", ".join(f"'{name}'" for name in COUPLED_ENV) + "]"
ENVIRONMENT = [
    rule(
        f"!(self in {_ENV})",
        "engine.env sets a variable that decides the switch or the pool: use spec.islands and spec.partition instead",
        messageExpression="'engine.env: ' + self + ' decides the switch or the pool: use spec.islands and spec.partition instead'",
    )
]

SOURCE = [
    rule(
        "[has(self.pvc), has(self.hostPath), has(self.huggingFace)].filter(x, x).size() == 1",
        "model.source: give exactly one of pvc, hostPath and huggingFace",
    )
]

CHUNK = [
    rule(
        "self.chunkedPrefillSize % self.pageSize == 0",
        "engine.chunkedPrefillSize must be a multiple of engine.pageSize",
        messageExpression="'engine.chunkedPrefillSize %d is not a multiple of engine.pageSize %d: use %d'.format([self.chunkedPrefillSize, "
        "self.pageSize, (self.chunkedPrefillSize / self.pageSize + 1) * self.pageSize])",
    )
]
