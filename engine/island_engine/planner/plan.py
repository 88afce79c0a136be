"""The plan: the pair of halves for a model, an engine, a budget and a workload, and what each half runs.

The SWA pool is sized for a number of requests, and 5 % more, because throughput falls steeply left of the optimum and
slowly right of it; the full pool gets the rest. The number is what clients send, or what both pools run together where
that is less. Without a workload it is `sizing.derive_halves`: what the operator does for a spec without `partition`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from island_engine import drafts, sizing
from island_engine.planner import capacity
from island_engine.planner.errors import PlanError
from island_engine.sizing import Half, Halves, Serving

if TYPE_CHECKING:
    from island_engine.planner.capacity import Binds
    from island_engine.planner.geometry import Model
    from island_engine.planner.workload import Workload

MOST_RUNNING, MOST_TOKENS = 4096, 10**9  # requests at once, tokens of a full pool: what the CRD takes
SESSIONS = 1.25  # of the requests that both pools run together, how many the SWA pool is sized for at most


@dataclass(frozen=True)
class Side:
    """One half at work. Tokens, and requests. `floor`: of the SWA pool, at `cap` requests; `bound`: how many windows
    and pages its SWA pool holds beside a chunk in flight; `cap`: the most requests that it may be given
    (--max-running-requests).
    """

    half: Half
    islands: bool
    floor: int
    running: float
    binds: Binds
    bound: int
    cap: int

    @property
    def ratio(self) -> float:
        """R, the SWA pool over the full pool."""
        return float(self.half.ratio)


@dataclass(frozen=True)
class Plan:
    """Everything that is planned from; results are properties. `budget`: bytes for KV on one GPU; `names`: where the
    budget and the requests at once are said, for who has to change them.
    """

    model: Model
    serving: Serving
    budget: int
    workload: Workload | None = None
    names: tuple[str, str] = ("--kv-bytes", "--running")

    @property
    def most(self) -> int:
        """Requests that may run at once: as many as the engine takes and clients send."""
        asked = self.workload.concurrency if self.workload else None
        return min(self.serving.running, asked or self.serving.running)

    @cached_property
    def halves(self) -> Halves:
        """The recommended pair. PlanError when the budget is too small."""
        self._check()
        on, off = (self._half(islands=islands) for islands in (True, False))
        if float(on.ratio) > float(off.ratio):  # requests shorter than a window: never a stock half that is leaner
            off = self._cut(float(on.ratio))
        if on.max_total_tokens > MOST_TOKENS:
            raise PlanError(
                f"{self.names[0]} {self.budget} makes a full pool of {on.max_total_tokens} tokens, above the "
                f"{MOST_TOKENS} of an InferenceService: use less"
            )
        return Halves(on, off)

    @cached_property
    def on(self) -> Side:
        """The half with islands."""
        return self.side(self.halves.islands, islands=True)

    @cached_property
    def off(self) -> Side:
        """The half without."""
        return self.side(self.halves.stock, islands=False)

    def at(self, ratio: float, *, islands: bool) -> Side:
        """Another ratio, all of the budget spent."""
        return self.side(self._cut(ratio), islands=islands)

    def side(self, half: Half, *, islands: bool) -> Side:
        """What a half runs. Without a workload only the SWA pool and the cap can be told."""
        window, serving = self.model.cost.window, self.serving
        fits = sizing.swa_bound(half, window, serving, islands=islands)
        cap = min(serving.running, fits)
        most = min(self.most, cap)
        asked = self.asked(islands=islands)
        if asked is None:
            running = float(most)
            binds: Binds = "cap" if cap == serving.running else "swa"
        else:
            binds, running = capacity.running(asked, half.max_total_tokens, half.swa_tokens, most)
            if binds == "cap" and most == fits < self.most:
                binds = "swa"
        return Side(
            half=half,
            islands=islands,
            floor=(sizing.least if islands else sizing.floor)(window, replace(serving, running=cap), islands=islands),
            running=running,
            binds=binds,
            bound=sizing.swa_bound(half, window, serving, islands=True),
            cap=cap,
        )

    def asked(self, *, islands: bool) -> capacity.Demand | None:
        """What the workload asks of the pools; None without one."""
        return capacity.demand(self.model.cost, self.serving, self.workload, islands=islands) if self.workload else None

    @cached_property
    def bound(self) -> float | None:
        """Requests that no cache could exceed with these bytes and this workload; None without one."""
        if self.workload is None:
            return None
        least = capacity.least_demand(self.model.cost, self.serving, self.workload)
        return min(self.most, capacity.crossing(least, self.model.cost, self.budget)[1])

    def cliff(self, *, islands: bool) -> float:
        """The ratio left of which the SWA pool binds."""
        cost, asked = self.model.cost, self.asked(islands=islands)
        if asked is None or self.workload is None:
            wanted: float = sizing.need(cost.window, replace(self.serving, running=self.most), islands=islands)
        else:
            together = capacity.crossing(asked, cost, self.budget)[1]
            # A session that waits loses its prefix, which costs more than some full pool (measured at 80 and 96).
            slack = SESSIONS if self.workload.reuse > 0 else 1.0
            wanted = min(self.most - 1, slack * together) * asked.hold + asked.in_flight
            wanted = max(wanted, sizing.least(cost.window, replace(self.serving, running=1), islands=islands))
        return min(1.0, sizing.leanest(cost, wanted, self.budget))

    def plateau(self, *, islands: bool) -> tuple[float, float] | None:
        """The ratios at which all of `most` requests run; None without a workload, and where the pools run fewer."""
        asked = self.asked(islands=islands)
        return capacity.plateau(asked, self.model.cost, self.budget, self.most) if asked else None

    def flat(self, *, islands: bool) -> tuple[float, float] | None:
        """The ratios that run within 2 % of the most requests; None without a workload, and where prompts are reused,
        because there every token of the full pool counts.
        """
        asked = self.asked(islands=islands)
        if asked is None or self.workload is None or self.workload.reuse > 0:
            return None
        return capacity.flat(asked, self.model.cost, self.budget, self.most)

    def _half(self, *, islands: bool) -> Half:
        cost, serving = self.model.cost, replace(self.serving, running=self.most)
        if self.workload is None:
            return sizing.derive_half(cost, serving, self.budget, islands=islands)
        half = self._cut(min(1.0, self.cliff(islands=islands) * sizing.MARGIN))
        if self.workload.reuse > 0 or self.budget < sizing.least_budget(cost, serving, islands=islands):
            return half
        # The floor of all requests may be above what short ones need; where it costs no request, it is kept.
        floored = sizing.derive_half(cost, serving, self.budget, islands=islands)
        return max((half, floored), key=lambda one: self.side(one, islands=islands).running)

    def _cut(self, ratio: float) -> Half:
        return sizing.cut(self.model.cost, self.serving.page, self.budget, ratio)

    def _check(self) -> None:
        """The API server takes no more; and the stock half needs most, so what it needs is asked for."""
        if self.serving.running > MOST_RUNNING:
            raise PlanError(
                f"{self.names[1]} {self.serving.running} is above the {MOST_RUNNING} of an InferenceService: use less"
            )
        cost, asked = self.model.cost, self.asked(islands=False)
        if asked is None:
            least = sizing.least_budget(cost, replace(self.serving, running=self.most), islands=False)
            if self.budget < least:
                raise PlanError(
                    f"{self.names[0]} {self.budget} is below the floor of {self.most} running requests without "
                    f"islands: use at least {least}, or a smaller {self.names[1]}"
                )
            return
        flat = cost.full_bytes + cost.draft_bytes
        one = sizing.least_budget(cost, replace(self.serving, running=1), islands=False)
        least = max(
            one, round(asked.in_flight * cost.swa_bytes + asked.length * flat + asked.hold * cost.swa_bytes) + 1
        )
        if self.budget < least:
            raise PlanError(
                f"{self.names[0]} {self.budget} does not hold one request of {round(asked.length)} tokens beside a "
                f"chunk of {self.serving.chunk}: use at least {least}"
            )

    @property
    def patch(self) -> dict[str, Any]:
        """For `kubectl patch`: the pair, the three values of the engine that its floors come from, and the geometry, by
        which the API server checks that the pair fits the GPU. `of_spec` reads the same plan from it.
        """
        cost = self.model.cost
        engine = {
            "pageSize": self.serving.page,
            "chunkedPrefillSize": self.serving.chunk,
            "maxRunningRequests": self.serving.running,
        }
        pair: dict[str, Any] = {}
        for name, side in (("islands", self.on), ("stock", self.off)):
            pair[name] = {"swaFullTokensRatio": side.half.ratio, "maxTotalTokens": side.half.max_total_tokens}
            if side.cap < self.serving.running:
                pair[name]["maxRunningRequests"] = side.cap
        geometry = {
            "slidingWindow": cost.window,
            "fullBytesPerToken": cost.full_bytes,
            "swaBytesPerToken": cost.swa_bytes,
            "draftBytesPerToken": cost.draft_bytes,
            "kvBudgetBytes": self.budget,
        }
        return {"spec": {"engine": engine, "geometry": geometry, "partition": pair}}


def of_spec(spec: dict[str, Any], name: str, workload: Workload | None = None) -> Plan:
    """The plan of an InferenceService's spec as the API server defaults it. PlanError names a field that is missing."""
    from island_engine.planner.geometry import Model

    said, engine = spec["geometry"], spec["engine"]
    for field in ("fullBytesPerToken", "swaBytesPerToken", "kvBudgetBytes"):
        if not said.get(field):
            raise PlanError(f"geometry.{field} is missing: give the bytes that `island-engine plan --model` prints")
    cost = sizing.Geometry(
        said["slidingWindow"], said["fullBytesPerToken"], said["swaBytesPerToken"], said.get("draftBytesPerToken") or 0
    )
    page = engine["pageSize"]
    ahead = drafts.of_arguments(engine.get("args") or ()).ahead(page)
    serving = Serving(page, engine["chunkedPrefillSize"], engine["maxRunningRequests"], ahead)
    names = ("geometry.kvBudgetBytes", "engine.maxRunningRequests")
    return Plan(Model(name, cost), serving, said["kvBudgetBytes"], workload, names)
