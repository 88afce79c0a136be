"""The CEL rules about the two halves of a partition and about those that are derived: their floors, their bytes, and what
to use instead.

What is proposed is let in by all rules together, so that nobody is sent in a circle: a ratio never comes without the
tokens that fit the bytes at it, and a half that needs more than the other allows names both. Two things make that
simple. In given bytes a larger ratio always gives a larger SWA pool, so that each half has one leanest ratio; and
stock's is never proposed below what islands have or are to have.
"""

from __future__ import annotations

from island_operator.api.rules import MOST_TOKENS, RATIO, SCALE, Rule, rule

SLACK = "1.05"  # over the budget that is let in
MOST_BYTES = 10**15

_SHAPE = ("geometry.slidingWindow", "engine.chunkedPrefillSize", "engine.maxRunningRequests", "engine.pageSize")
_HOLDS = {"islands": "", "stock": "2 * "}  # what one running request pins, in windows and pages
_PER_REQUEST = {
    half: f"{factor}(self.geometry.slidingWindow + self.engine.pageSize)" for half, factor in _HOLDS.items()
}
_BYTES = "(" + " && ".join(
    f"has(self.geometry.{name})" for name in ("fullBytesPerToken", "swaBytesPerToken", "kvBudgetBytes")
) + ")"  # fmt: skip
_BUDGET = "double(self.geometry.kvBudgetBytes)"  # doubles: a product of four bounded integers does not fit in 64 bits
_FLAT = "double(self.geometry.fullBytesPerToken + self.geometry.draftBytesPerToken)"
_SWA = "double(self.geometry.swaBytesPerToken)"


def _let(name: str, value: str, body: str) -> str:
    """CEL has no variables; a list of one has."""
    return f"[{value}].map({name}, {body})[0]"


def _unchanged(*paths: str) -> str:
    return " && ".join(["oldSelf.hasValue()", *(f"oldSelf.value().{path} == self.{path}" for path in paths)])


def _kept(half: str, *inputs: str) -> str:
    """What an older CRD let in, and nobody has changed since."""
    had = f"has(oldSelf.value().partition) && has(oldSelf.value().partition.{half})"
    return f"(oldSelf.hasValue() && {had} && {_unchanged(f'partition.{half}', *inputs)})"


def _scaled(half: str) -> str:
    """The ratio of a half that has one, as an integer."""
    return f"int(double(self.partition.{half}.swaFullTokensRatio) * {SCALE}.0 + 0.5)"


def _scaled_or(half: str, other: int) -> str:
    own = f"self.partition.{half}"
    return f"(has({own}) && {own}.swaFullTokensRatio.matches('{RATIO}') ? {_scaled(half)} : {other})"


def _floor(half: str, requests: str) -> str:
    """The SWA tokens that so many running requests pin, beside one chunk in flight (island_engine.sizing.floor)."""
    return f"(self.engine.chunkedPrefillSize + {requests} * {_PER_REQUEST[half]})"


# What a prompt that is alone needs with islands, whatever is rounded down to pages (island_engine.sizing.least).
_LONE = "3 * (self.geometry.slidingWindow + 2 * self.engine.pageSize)"


def _with_lone(tokens: str) -> str:
    return f"[{tokens}, {_LONE}].max()"


def _of_requests(half: str) -> str:
    own = f"self.partition.{half}"
    cap = f"(has({own}) && has({own}.maxRunningRequests) ? {own}.maxRunningRequests : self.engine.maxRunningRequests)"
    return _floor(half, cap)


def _own_floor(half: str) -> str:
    return _with_lone(_of_requests(half)) if half == "islands" else _of_requests(half)


# --- What to use instead ----------------------------------------------------------------------------------------------


def _leanest(half: str) -> str:
    """The least ratio, scaled, at which pools within the bytes hold the floor; above SCALE where none does.

    From r * T = L and T = B / (F + r S): r = L * F / (B - L * S) (island_engine.sizing.leanest); L one token larger
    than the floor, because T is rounded down.
    """
    need = f"(double({_own_floor(half)}) + 1.0)"
    room = f"({_BUDGET} - {need} * {_SWA})"
    within = f"({need} * {_FLAT} < {room} ? int({need} * {_FLAT} * {SCALE}.0 / {room}) + 1 : {SCALE + 1})"
    at_most_tokens = f"({_own_floor(half)} * {SCALE} + {MOST_TOKENS - 1}) / {MOST_TOKENS}"
    return f"[{within}, {at_most_tokens}].max()"


_LEAN = {  # what is proposed, scaled
    "islands": _leanest("islands"),
    "stock": f"[{_leanest('stock')}, {_leanest('islands')}, {_scaled_or('islands', 0)}].max()",
}


def _capacity(ratio: str) -> str:
    """The tokens that the bytes give at a scaled ratio."""
    return f"int([{_BUDGET} / ({_FLAT} + double({ratio}) / {SCALE}.0 * {_SWA}), {MOST_TOKENS}.0].min())"


def _said(text: str, *values: str) -> str:
    """A text with its values. Never joined to another with +: the API server knows no bound of what `format` gives, and
    so none of what that would cost.
    """
    return f"'{text}'.format([{', '.join(values)}])"


_PAIR = 'swaFullTokensRatio "%s" and maxTotalTokens %d'
_STOCK_TOO = 'partition.stock.swaFullTokensRatio "%s" and partition.stock.maxTotalTokens %d'
_BY_TOKENS = "maxTotalTokens %d at this swaFullTokensRatio"
_BY_RATIO = 'swaFullTokensRatio "%s" at this maxTotalTokens'
_ALONE = "3 * (slidingWindow + 2 * pageSize), which a prompt of several chunks needs"
_NO_ROOM = "a larger geometry.kvBudgetBytes or partition.stock.swaFullTokensRatio"


def _decimal(ratio: str) -> str:
    return f"double({ratio}) / {SCALE}.0"


def _fewer(half: str, tokens: str) -> str:
    """Where no pool is large enough: the requests that this one holds."""
    pool = f"{_scaled(half)} * {tokens} / {SCALE}"
    held = f"(({pool} - self.engine.chunkedPrefillSize) / ({_PER_REQUEST[half]}))"
    told = _said("maxTotalTokens %d and maxRunningRequests %d at this swaFullTokensRatio", tokens, held)
    fewer = f"({held} >= 1 ? {told} : 'a smaller engine.chunkedPrefillSize and fewer requests')"
    return f"({pool} < {_LONE} ? '{_NO_ROOM}' : {fewer})" if half == "islands" else fewer


def _within_bytes(half: str, sentence: str, *values: str) -> str:
    """The message where the bytes are known."""
    lean, own = (_decimal("lean"), _capacity("lean")), _scaled(half)
    pair = f"lean <= {SCALE} ? {_said(_PAIR, *lean)}"
    if half == "islands":  # not above stock's ratio, which may have to rise with it
        most, stock = _scaled_or("stock", SCALE), (_decimal("both"), _capacity("both"))
        pair = f"lean <= {most} ? {_said(_PAIR, *lean)} : both <= {SCALE} ? {_said(f'{_PAIR}, with {_STOCK_TOO}', *lean, *stock)}"
    fewer = _fewer(half, f"[self.partition.{half}.maxTotalTokens, {_capacity(own)}].min()")
    use = f"({own} >= lean ? {_said(_BY_TOKENS, _capacity(own))} : {pair} : {fewer})"
    told = _let("lean", _LEAN[half], _said(f"{sentence}: use %s", *values, use))
    return _let("both", _LEAN["stock"], told) if half == "islands" else told


def _without_bytes(half: str, sentence: str, *values: str) -> str:
    """The message where only the floor is known: other tokens, another ratio, or both."""
    tokens, least = f"self.partition.{half}.maxTotalTokens", _own_floor(half)
    most = _scaled_or("stock", SCALE) if half == "islands" else str(SCALE)
    at_most = f"({least} * {SCALE} + {most} - 1) / {most}"
    neither = f"{at_most} <= {MOST_TOKENS} ? {_said(_PAIR, _decimal(most), at_most)} : {_fewer(half, tokens)}"
    use = (
        f"(n <= {MOST_TOKENS} && r <= {most} ? {_said(f'{_BY_TOKENS}, or {_BY_RATIO}', 'n', _decimal('r'))}"
        f" : n <= {MOST_TOKENS} ? {_said(_BY_TOKENS, 'n')}"
        f" : r <= {most} ? {_said(_BY_RATIO, _decimal('r'))} : {neither})"
    )
    told = _said(f"{sentence}: use %s", *values, use)
    of_ratio = _let("r", f"({least} * {SCALE} + {tokens} - 1) / {tokens}", told)
    return _let("n", f"({least} * {SCALE} + {_scaled(half)} - 1) / {_scaled(half)}", of_ratio)


# --- The rules --------------------------------------------------------------------------------------------------------


def floor(half: str) -> Rule:
    """The SWA pool of one half against what its running requests pin."""
    own, least = f"self.partition.{half}", _own_floor(half)
    why = f"chunkedPrefillSize + maxRunningRequests * {_HOLDS[half]}(slidingWindow + pageSize)"
    sentence = f"partition.{half}: SWA pool of %d tokens is below its floor of %d ({why})"
    values = [f"{_scaled(half)} * {own}.maxTotalTokens / {SCALE}", least]
    if half == "islands":
        values.append(f"{_LONE} > {_of_requests(half)} ? '{_ALONE}' : '{why}'")
        sentence, why = sentence.replace(why, "%s"), f"{why}, and never below {_ALONE}"
    passes = (  # the first two are told by rules of their own
        f"!has(self.partition) || !has({own})",
        f"!{own}.swaFullTokensRatio.matches('{RATIO}')",
        _kept(half, *_SHAPE),
        f"{_scaled(half)} * {own}.maxTotalTokens >= {least} * {SCALE}",
    )
    return rule(
        " || ".join(passes),
        f"partition.{half}: the SWA pool (swaFullTokensRatio * maxTotalTokens) is below its floor, {why}",
        optionalOldSelf=True,
        fieldPath=".partition",
        messageExpression=(
            f"{_BYTES} ? {_within_bytes(half, sentence, *values)} : {_without_bytes(half, sentence, *values)}"
        ),
    )


def within_budget(half: str) -> Rule:
    """Both pools of one half against the bytes that there are, where geometry says what a token costs. What people
    write down is rounded (the seed's own 740,000 tokens are 0.3 % too many): only what the engine would die of counts.
    """
    own = f"self.partition.{half}"
    total = f"double({own}.maxTotalTokens) * ({_FLAT} + double({own}.swaFullTokensRatio) * {_SWA})"
    sentence = f"partition.{half}.maxTotalTokens %d: its pools take %d bytes, more than geometry.kvBudgetBytes %d"
    values = f"{own}.maxTotalTokens", f"int({total})", "self.geometry.kvBudgetBytes"
    passes = (
        f"!has(self.partition) || !has({own})",
        f"!{_BYTES}",
        f"!{own}.swaFullTokensRatio.matches('{RATIO}')",
        _kept(half, "geometry"),
        f"{total} <= {_BUDGET} * {SLACK}",
    )
    return rule(
        " || ".join(passes),
        f"partition.{half}.maxTotalTokens: its pools take more than geometry.kvBudgetBytes, use fewer tokens",
        optionalOldSelf=True,
        fieldPath=".partition",
        messageExpression=_within_bytes(half, sentence, *values),
    )


_AUTO = (
    "(!has(self.partition) || ((!has(self.partition.mode) || self.partition.mode != 'unified')"
    " && (!has(self.partition.islands) || !has(self.partition.stock))))"
)
_WAS_AUTO = _AUTO.replace("self.", "oldSelf.value().")
# One page more than the floor: rounding T down to pages costs that.
_COST = "(self.geometry.fullBytesPerToken + self.geometry.swaBytesPerToken + self.geometry.draftBytesPerToken)"
_LEAST = f"(double({_with_lone(_floor('stock', 'self.engine.maxRunningRequests'))} + self.engine.pageSize) * double({_COST}))"
_POOL = f"(self.geometry.kvBudgetBytes / {_COST} - self.engine.pageSize)"  # the largest, at ratio 1
_HELD = f"({_POOL} < {_LONE} ? 0 : ({_POOL} - self.engine.chunkedPrefillSize) / ({_PER_REQUEST['stock']}))"
_AT_LEAST, _REQUESTS = "at least %d", "engine.maxRunningRequests %d"
_DERIVED = (
    f"({_HELD} < 1 && {_LEAST} > {MOST_BYTES}.0 ? 'a smaller engine.chunkedPrefillSize'"
    f" : {_HELD} < 1 ? {_said(_AT_LEAST, f'int({_LEAST})')}"
    f" : {_LEAST} > {MOST_BYTES}.0 ? {_said(_REQUESTS, _HELD)}"
    f" : {_said(f'{_AT_LEAST}, or {_REQUESTS}', f'int({_LEAST})', _HELD)})"
)
DERIVED = [
    rule(
        f"!{_AUTO} || (oldSelf.hasValue() && {_WAS_AUTO} && {_unchanged('geometry')}) || {_BYTES}",
        "partition is absent, so both halves are derived: give geometry.fullBytesPerToken, geometry.swaBytesPerToken "
        "and geometry.kvBudgetBytes, or both halves of partition",
        optionalOldSelf=True,
        fieldPath=".geometry",
    ),
    rule(
        f"!{_AUTO} || !{_BYTES} || (oldSelf.hasValue() && {_WAS_AUTO} && {_unchanged('geometry', *_SHAPE)})"
        f" || {_BUDGET} >= {_LEAST}",
        "geometry.kvBudgetBytes is too small to derive the stock half for maxRunningRequests",
        optionalOldSelf=True,
        fieldPath=".geometry.kvBudgetBytes",
        messageExpression=(
            "'geometry.kvBudgetBytes %d is too small for the stock half at engine.maxRunningRequests %d: use %s'"
            f".format([self.geometry.kvBudgetBytes, self.engine.maxRunningRequests, {_DERIVED}])"
        ),
    ),
]

SPEC = [floor("islands"), floor("stock"), *DERIVED, within_budget("islands"), within_budget("stock")]
