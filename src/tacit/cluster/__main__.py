"""One rank of a run: `torchrun --nproc-per-node 2 -m tacit.cluster FILE --name NAME`."""

from tacit.cli.rank import main

if __name__ == "__main__":
    main()
