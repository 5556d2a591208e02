"""The command line: a thin front end over the use cases. `main` is what `ade` on the PATH calls."""


def main() -> None:
    """Run the command that the arguments name and end the process with its exit code."""
    import gc
    import sys

    gc.disable()  # nothing that is loaded at the start is garbage; commands that go on turn it on again

    from ade.cli.program import run

    sys.exit(run())
