"""`python -m training`: hands over to `training.commands`.

Nothing else is imported here, because every process that generates samples imports this file again.
"""

if __name__ == "__main__":
    import os

    # torch reads this as it is imported; unless told to be quiet, its profiler reports every start and stop of its own.
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")

    from training.commands import main

    main()
