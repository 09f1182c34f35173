"""Makes `frames_pb2.py` of `frames.proto`: `python -m tacit.peer.wire.generate`. Needs grpcio-tools."""

from pathlib import Path

from tacit.errors import StorageError

HERE = Path(__file__).parent


def generate(folder: Path) -> None:
    """Write the generated modules into a folder."""
    from grpc_tools import protoc

    arguments = ["protoc", f"-I{HERE}", f"--python_out={folder}", f"--pyi_out={folder}", "frames.proto"]
    if protoc.main(arguments) != 0:
        raise StorageError(f"{folder}: frames.proto could not be compiled")


if __name__ == "__main__":
    generate(HERE)
