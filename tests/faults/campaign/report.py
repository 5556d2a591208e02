"""The outcome of a campaign as a table."""

from tests.faults.campaign.judgement import Verdict

_EXAMPLES = 10  # of what is wrong, for each check


def shown(verdict: Verdict) -> str:
    """What happened, and whether everything held."""
    facts = [f"  {name:<34}{value:>10,}" for name, value in verdict.facts.items()]
    checks = []
    for check in verdict.checks:
        checks.append(f"  {'WRONG' if check.wrongs else 'ok':<7}{check.what:<64}{check.looked_at:>10,}")
        checks += [f"           {wrong}" for wrong in check.wrongs[:_EXAMPLES]]
        if len(check.wrongs) > _EXAMPLES:
            checks.append(f"           and {len(check.wrongs) - _EXAMPLES} more")
    return "\n".join(["what happened", *facts, "what must hold (and how many were looked at)", *checks])
