"""A power cut, simulated: a real program uses the real store under strace, then its writes are replayed up to a cut.

What a disk owes us after a cut is what was synced, and nothing else. A write counts as synced when a sync of its file
began after the write had ended and returned before the cut; the name of a file counts as synced when its folder was.
Whatever came later may be there, or not, or in parts, in any combination.

`workload` is the program, `system_calls` runs it and reads what it asked of the kernel, `recording` makes changes of
files out of that, `disk` and `losses` say what a cut leaves, `recovery` opens it, and `cuts` passes judgement.
"""
