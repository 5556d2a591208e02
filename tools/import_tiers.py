"""The import rule of ADE, a contract for `lint-imports`: a module imports only from its own tier or from a lower one.

`pyproject.toml` lists the tiers, highest first, each with the patterns of its modules. A module belongs to the tier
with the most specific pattern that matches it: the one with the most parts, then with the most fixed characters. Pure
tiers also avoid modules that do I/O.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class TierContract(Contract):
    """Tiers as `name: pattern pattern ...`, highest first; `pure` names the tiers without I/O."""

    tiers = fields.ListField(subfield=fields.StringField())
    pure = fields.ListField(subfield=fields.StringField())
    impure_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        patterns = patterns_of(self.tiers)  # type: ignore[arg-type]
        found = {module: tier_of(module, patterns) for module in graph.modules if module.split(".")[0] == "ade"}
        problems = [f"{module} matches no tier" for module, tier in found.items() if tier is None]
        for importer, tier in sorted(found.items()):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                problem = self._problem(importer, imported, tier, found.get(imported))
                if problem:
                    problems.append(problem)
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for problem in check.metadata["problems"]:
            output.print_error(problem)

    def _problem(
        self, importer: str, imported: str, tier: tuple[int, str] | None, below: tuple[int, str] | None
    ) -> str | None:
        if tier is None:
            return None
        if below is not None and below[0] > tier[0]:
            return f"{importer} ({tier[1]}) imports {imported} ({below[1]}), which is above it"
        if tier[1] in self.pure and imported in self.impure_modules:  # type: ignore[operator]
            return f"{importer} ({tier[1]}, pure) imports {imported}"
        return None


def patterns_of(tiers: Sequence[str]) -> list[tuple[str, int, str]]:
    """(pattern, rank, tier); the lowest tier has the lowest rank."""
    rows = [row.partition(":") for row in reversed(tiers)]
    return [(pattern, rank, name) for rank, (name, _, rest) in enumerate(rows) for pattern in rest.split()]


def tier_of(module: str, patterns: Sequence[tuple[str, int, str]]) -> tuple[int, str] | None:
    """Rank and name of the tier that a module belongs to; None if no pattern matches."""
    matches = [
        (pattern.count("."), len(pattern.replace("*", "")), rank, name)
        for pattern, rank, name in patterns
        if fnmatchcase(module, pattern)
    ]
    if not matches:
        return None
    *_, rank, name = max(matches)
    return rank, name
