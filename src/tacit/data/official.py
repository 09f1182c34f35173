"""The files of the published data sets: their layout in the data folder, checksums and mirrors."""

from tacit.data.download import RemoteFile

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION_MIRRORS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
_CIFAR_MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)

IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _idx_files(folder: str, mirrors: tuple[str, ...], checksums: tuple[str, ...]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(path=f"{folder}/{name}", checksum=f"sha256:{checksum}", mirrors=mirrors)
        for name, checksum in zip(IDX_NAMES, checksums, strict=True)
    )


MNIST = _idx_files(
    "MNIST/raw",
    _MNIST_MIRRORS,
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
)
FASHION_MNIST = _idx_files(
    "FashionMNIST/raw",
    _FASHION_MIRRORS,
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
)
CIFAR10 = RemoteFile(
    path="cifar-10-python.tar.gz",
    checksum="md5:c58f30108f718f92721af3b95e74349a",
    mirrors=_CIFAR_MIRRORS,
    members=(
        *(f"cifar-10-batches-py/data_batch_{i}" for i in range(1, 6)),
        "cifar-10-batches-py/test_batch",
    ),
)
CIFAR100 = RemoteFile(
    path="cifar-100-python.tar.gz",
    checksum="md5:eb9058c3a382ffc7106e4002c42a8d85",
    mirrors=_CIFAR_MIRRORS,
    members=("cifar-100-python/train", "cifar-100-python/test"),
)
