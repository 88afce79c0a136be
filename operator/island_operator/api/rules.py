"""The CEL rules of the CRD. A message is one sentence: the field, what is wrong, the value to use.

CEL has a cost budget and CRD rules have no variables, so Python expands what repeats. Three habits keep them cheap and
safe: `format` instead of string() (which has no size estimate), ratios as integers (0.29 * 100 is 28.99...), and rules
on the smallest object that holds their inputs, which the API server itself then skips while that object does not
change. A rule that needs the whole spec passes while its inputs do not change, and none reads `islands`: the kill
switch is never refused, not even by a rule that a newer CRD made stricter.
"""

from __future__ import annotations

from typing import Any

Rule = dict[str, Any]

RATIO = "^(0[.][0-9]{0,3}[1-9]|1)$"  # one spelling per value, so that the text can be hashed
SHARE = "^(0|1|0[.][0-9]{1,4})$"  # of a whole
FACTOR = "^[0-9]{1,4}([.][0-9]{1,4})?$"
SCALE = 10_000  # a ratio has at most four decimals
MOST_TOKENS = 1_000_000_000
LEAST_CHUNK = 64  # tokens
LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"  # what a Service's name must be, RFC 1035

# Where to say what these flags say; --config could say it all, and the last two change what the pair is about.
COUPLED_FLAGS = {
    "--islands": "spec.islands.enabled",
    "--island-decode-interval": "spec.islands.decodeInterval",
    "--swa-full-tokens-ratio": "spec.partition",
    "--max-total-tokens": "spec.partition",
    "--radix-cache-backend": "spec.islands.enabled",
    "--disable-radix-cache": "spec.islands.enabled",
    "--page-size": "spec.engine.pageSize",
    "--chunked-prefill-size": "spec.engine.chunkedPrefillSize",
    "--max-running-requests": "spec.engine.maxRunningRequests",
    "--model-path": "spec.model.source",  # and its alias --model, which is a prefix of it
    "--served-model-name": "spec.model.name",
    "--host": "the Services",
    "--port": "spec.engine.port",
    "--enable-metrics": "nothing: it is always on",
    "--config": "spec.engine.args, flag by flag",
    "--disable-hybrid-swa-memory": "spec.islands.enabled",
    "--enable-unified-memory": "spec.partition",
}
# Variables that move the switch, the cache or what a request pins, behind the back of the pair.
COUPLED_ENV = (
    "SGLANG_OPT_RELEASE_PREFILL_SWA",
    "SGLANG_OPT_SWA_RELEASE_LEAF_LOCK_AFTER_WINDOW",  # its older name
    "SGLANG_SWA_EVICTION_INTERVAL",
    "SGLANG_PLUGINS",
    "ISLAND_ENABLED",
    "ISLAND_DECODE_INTERVAL",
)


def rule(expression: str, message: str, **extra: Any) -> Rule:
    """One x-kubernetes-validations entry."""
    return {"rule": " ".join(expression.split()), "message": message, **extra}


def immutable(what: str) -> Rule:
    """A field that names the thing: another value is another object."""
    return rule("self == oldSelf", f"{what} is immutable: make a new InferenceService with the value you want")


NAME = rule(  # on the root, the only place that sees metadata; a name never changes, so only a new object is judged
    f"oldSelf.hasValue() || self.metadata.name.matches('{LABEL}')",
    "metadata.name must begin with a letter and hold only a-z, 0-9 and '-', because Services are named after it",
    optionalOldSelf=True,
    fieldPath=".metadata.name",
)

PARTITION = [
    rule(
        "!has(self.mode) || self.mode != 'unified' || (!has(self.islands) && !has(self.stock))",
        "partition.mode unified is one pool without halves: remove partition.islands and partition.stock, or use halves",
    ),
    rule(
        "has(self.islands) == has(self.stock)",
        "partition: give both halves, islands and stock, or leave partition out to derive both from geometry",
    ),
    rule(
        f"!has(self.islands) || !has(self.stock) || !self.islands.swaFullTokensRatio.matches('{RATIO}')"
        f" || !self.stock.swaFullTokensRatio.matches('{RATIO}')"
        " || double(self.islands.swaFullTokensRatio) <= double(self.stock.swaFullTokensRatio)",
        "partition: islands.swaFullTokensRatio is larger than stock.swaFullTokensRatio, so the halves look swapped: "
        "exchange them",
    ),
]

_A_RATIO = (
    'a ratio is a quoted decimal above 0 and at most 1, with at most four places and no trailing zero, such as "0.17"'
)
RATIO_FIELD = rule(
    f"self.matches('{RATIO}')",
    f"swaFullTokensRatio: {_A_RATIO}",
    messageExpression=f"'swaFullTokensRatio \"' + self + '\": {_A_RATIO}'",
)

_WORD = "self.split(' ', 2)[0].split('=', 2)[0]"  # of `--flag`, `--flag=x` and `--flag x` in one item
_FLAGS = "[" + ", ".join(f"['{flag}', '{where}']" for flag, where in COUPLED_FLAGS.items()) + "]"
ARGUMENT = rule(  # a coupled flag that starts with the argument: also argparse's abbreviations, such as --swa-full
    f"!self.startsWith('--') || !{_FLAGS}.exists(f, f[0].startsWith({_WORD}))",
    "engine.args sets a flag that the operator sets: use spec.partition, spec.engine, spec.model or spec.islands",
    messageExpression=(
        "'engine.args: \"%s\" sets %s, which the operator sets itself: use %s'"
        f".format([self] + {_FLAGS}.filter(f, f[0].startsWith({_WORD}))[0])"
    ),
)

_ENV = "[" + ", ".join(f"'{name}'" for name in COUPLED_ENV) + "]"
ENVIRONMENT = rule(
    f"!(self in {_ENV})",
    "engine.env sets a variable that decides the switch or the pool: use spec.islands and spec.partition",
    messageExpression=(
        "'engine.env: ' + self + ' decides the switch or the pool: use spec.islands and spec.partition instead'"
    ),
)

SOURCE = rule(
    "[has(self.pvc), has(self.hostPath), has(self.huggingFace)].filter(x, x).size() == 1",
    "model.source: give exactly one of pvc, hostPath and huggingFace",
)
HOST_PATH = rule(
    "self.startsWith('/') && !self.split('/').exists(part, part == '..')",
    "model.source.hostPath must be absolute and without '..', such as /srv/models/gemma",
)

_DOWN = "self.chunkedPrefillSize / self.pageSize * self.pageSize"  # not up: a larger chunk needs larger pools
CHUNK = rule(
    "self.chunkedPrefillSize % self.pageSize == 0",
    "engine.chunkedPrefillSize must be a multiple of engine.pageSize",
    messageExpression=(
        "'engine.chunkedPrefillSize %d is not a multiple of engine.pageSize %d: use %d'.format([self.chunkedPrefillSize,"
        f" self.pageSize, {_DOWN} >= {LEAST_CHUNK} ? {_DOWN} : ({LEAST_CHUNK} + self.pageSize - 1) / self.pageSize * self.pageSize])"
    ),
)

LIMITED = rule(
    "has(self.max) || has(self.min)",
    "rollout.checks.prometheus.queries: a query without max and min checks nothing: give one of them",
    messageExpression=(
        "'rollout.checks.prometheus.queries: %s has neither max nor min, so it checks nothing: give one of them'"
        ".format([self.name])"
    ),
)

DURATION = "^([0-9]{1,6}[smh])+$"
DEADLINE = rule(
    f"!self.matches('{DURATION}') || (duration(self) >= duration('1s') && duration(self) <= duration('168h'))",
    "a deadline is at least 1s and at most 168h, such as 30m",
)
PAUSE = rule(
    f"!self.matches('{DURATION}') || duration(self) <= duration('168h')", "a pause is at most 168h, such as 5m"
)
STEPS = rule(
    "self.map(step, step.weight).isSorted()", "rollout.steps: a weight is smaller than the one before it: let them grow"
)
