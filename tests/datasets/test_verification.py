import dataclasses
import hashlib
import io
import zipfile

import numpy as np
import pytest

from crcen.datasets import find, load_dataset
from crcen.datasets.verification import read_verified
from crcen.exceptions import DataUnavailable


class Bomb:
    """Would run code when unpickled."""

    ran = False

    def __reduce__(self):
        return (setattr, (Bomb, "ran", True))


def npy_header(shape, descr="<f8"):
    """A member that claims a shape and holds no values."""
    member = io.BytesIO()
    np.lib.format.write_array_header_1_0(member, {"descr": descr, "fortran_order": False, "shape": shape})
    return member.getvalue()


def refused(home, *clauses):
    """Loading abalone from the home must be refused with one sentence that names set, file and fault."""
    with pytest.raises(DataUnavailable) as caught:
        load_dataset("abalone", data_home=home)
    sentence = str(caught.value)
    for clause in ("'abalone'", str(home / "zenodo" / "x5data.npz"), "try", *clauses):
        assert clause in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("keep", [0, 1, 100, 20_000, -1, -30])
def test_truncated_file(keep, tmp_path, bundled_folder, write_npz):
    write_npz(tmp_path, "x5data.npz", content=(bundled_folder / "x5data.npz").read_bytes()[:keep])
    refused(tmp_path, "truncated or corrupt")


def test_flipped_byte(tmp_path, bundled_folder, write_npz):
    content = bytearray((bundled_folder / "x5data.npz").read_bytes())
    content[len(content) // 2] ^= 1
    write_npz(tmp_path, "x5data.npz", content=bytes(content))
    refused(tmp_path)


def test_altered_value(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    data = data.copy()
    data[3, 5] = np.nextafter(data[3, 5], 1)
    write_npz(tmp_path, "x5data.npz", data=data, label=label)
    refused(tmp_path, "checksum")


def test_swapped_labels_of_equal_count(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    write_npz(tmp_path, "x5data.npz", data=data, label=label[::-1])
    refused(tmp_path, "checksum")


def test_class_counts_and_label_values(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    write_npz(tmp_path, "x5data.npz", data=data, label=-label)
    refused(tmp_path, "3786 rows of the minority class instead of 391")
    write_npz(tmp_path, "x5data.npz", data=data, label=(label == 1).astype(np.int64))
    refused(tmp_path, "labels other than")


def test_pickled_objects_are_not_run(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    bombs = np.empty(label.shape, dtype=object)
    bombs[:] = [Bomb() for _ in label]
    write_npz(tmp_path, "x5data.npz", data=data, label=bombs)
    refused(tmp_path, "Python objects")
    assert not Bomb.ran


def test_wrong_keys(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    write_npz(tmp_path, "x5data.npz", X=data, y=label)
    refused(tmp_path, "holds X, y instead of data and label")
    write_npz(tmp_path, "x5data.npz", data=data, label=label, extra=label)
    refused(tmp_path, "extra")
    write_npz(tmp_path, "x5data.npz")
    refused(tmp_path, "holds nothing")


@pytest.mark.parametrize("shape", [(10**12, 10), (4177, 10**15), (4177, 11), (4177,), (-1, 10)])
def test_absurd_shape_is_refused_before_reading(shape, tmp_path, abalone_arrays, write_npz):
    write_npz(tmp_path, "x5data.npz", data=npy_header(shape), label=abalone_arrays[1])
    refused(tmp_path, "array data has shape")


def test_other_types(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    write_npz(tmp_path, "x5data.npz", data=data.astype(np.float32), label=label)
    refused(tmp_path, "float32 instead of float64")
    write_npz(tmp_path, "x5data.npz", data=data, label=label.astype(np.float64))
    refused(tmp_path, "array label is of type float64")


def test_missing_values_and_values_to_spare(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    write_npz(tmp_path, "x5data.npz", data=npy_header(data.shape) + b"\0" * 8, label=label)
    refused(tmp_path, "has 8 bytes instead of 334160")
    write_npz(tmp_path, "x5data.npz", data=npy_header(data.shape) + data.tobytes() + b"\0" * 100, label=label)
    refused(tmp_path, "instead of 334160")
    write_npz(tmp_path, "x5data.npz", data=npy_header(data.shape) + data.tobytes() + b"\0" * 10**7, label=label)
    refused(tmp_path, "something else")


def test_hostile_headers(tmp_path, abalone_arrays, write_npz):
    for text in (b"__import__('os').abort()", b"(" * 5_000, b"{'descr': '<f8'}", b"\xff\xfe", b" " * 60_000):
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
        write_npz(tmp_path, "x5data.npz", data=content, label=abalone_arrays[1])
        refused(tmp_path, "corrupt")
    write_npz(tmp_path, "x5data.npz", data=b"\x93NUMPY\x09\x00", label=abalone_arrays[1])
    refused(tmp_path, "npy version (9, 0)")
    write_npz(tmp_path, "x5data.npz", data=b"no npy at all", label=abalone_arrays[1])
    refused(tmp_path, "corrupt")


def test_file_larger_than_its_values_can_need(tmp_path, write_npz):
    write_npz(tmp_path, "x5data.npz", content=b"\0" * 1_000_000)
    refused(tmp_path, "larger than its 4177 × 10 values")


def test_what_is_no_file(tmp_path):
    (tmp_path / "zenodo" / "x5data.npz").mkdir(parents=True)
    refused(tmp_path, "cannot be read")


def test_dangling_link(tmp_path):
    (tmp_path / "zenodo").mkdir()
    (tmp_path / "zenodo" / "x5data.npz").symlink_to(tmp_path / "gone")
    refused(tmp_path, "cannot be read")


def test_original_file_is_accepted_by_its_blob_id(tmp_path, abalone_arrays, write_npz):
    data, label = abalone_arrays
    path = write_npz(tmp_path, "x26data.npz", data=data, label=label)
    content = path.read_bytes()
    blob_id = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    entry = dataclasses.replace(find("abalone"), arrays_sha256=None, verified="unknown", original_blob_id=blob_id)
    arrays = read_verified(path, entry, "try nothing")
    assert arrays.original
    np.testing.assert_array_equal(arrays.data, data)
    with pytest.raises(DataUnavailable, match="checksum"):
        read_verified(path, dataclasses.replace(entry, original_blob_id="0" * 40), "try nothing")


def test_uncompressed_file_in_column_order_is_accepted_by_its_arrays(tmp_path, abalone_arrays):
    data, label = abalone_arrays
    entry = find("abalone")
    with zipfile.ZipFile(tmp_path / "x5data.npz", "w", zipfile.ZIP_STORED) as archive:
        for name, array in (("label", label), ("data", np.asfortranarray(data))):
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0))
            archive.writestr(f"{name}.npy", member.getvalue())
    arrays = read_verified(tmp_path / "x5data.npz", entry, "try nothing")
    np.testing.assert_array_equal(arrays.data, data, strict=True)
    np.testing.assert_array_equal(arrays.label, label, strict=True)
