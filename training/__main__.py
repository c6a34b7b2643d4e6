"""`python -m training`: run the commands of `training.commands`.

Nothing else is imported here, because every process that generates samples imports this file again.
"""

if __name__ == "__main__":
    from training.commands import main

    main()
