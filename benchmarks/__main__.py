"""The entry point of `python -m benchmarks`.

Nothing else is imported here, because a process that draws samples imports this file again.
"""

if __name__ == "__main__":
    import os

    # torch reads this as it is imported; by default its profiler prints every start and stop of its own.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")

    from benchmarks.commands import main

    main()
