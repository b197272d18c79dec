"""Files of arrays: the bytes are those of the package safetensors, which is asked here and nowhere else."""

import numpy as np
from safetensors.numpy import load_file, save

from minitransformer.system.tensor_file import file_parts, read_header

METADATA = {"text": 'ü \\ " \u2028 \n \x7f'}


def test_files_are_those_of_safetensors_byte_by_byte(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "transposed": rng.standard_normal((3, 4)).T,
        'ü \\ " \n \x7f': rng.standard_normal(3, dtype=np.float32),
        "strided": rng.standard_normal(12, dtype=np.float32)[::3],
        "empty": np.zeros((0, 3), np.float32),
        "half": rng.standard_normal(5).astype(np.float16),
        "count": np.array(9),
        "ids": np.arange(3, dtype=np.int32),
    }
    contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    content = b"".join(file_parts(arrays, METADATA))
    assert content == save(contiguous, METADATA)

    path = tmp_path / "file"
    path.write_bytes(content)
    metadata, tensors = read_header(path)
    assert metadata == METADATA
    theirs = load_file(path)
    assert tensors.keys() == theirs.keys()
    for name, tensor in tensors.items():
        wide = np.float32 if tensor.type == "F16" else theirs[name].dtype
        np.testing.assert_array_equal(tensor.read(), theirs[name].astype(wide), strict=True)
