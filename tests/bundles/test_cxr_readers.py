"""Chest X-rays in every form in which hospitals and collections keep them."""

from pathlib import Path

import cv2
import numpy as np
import pydicom
import pytest
import torch
from cxr_classifier.errors import BundleInputError
from cxr_classifier.files import list_images
from cxr_classifier.intensity import stretch
from cxr_classifier.readers import read_xray
from cxr_classifier.transforms import FitSquared, LoadXrayd, fit_square
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import ExplicitVRLittleEndian, JPEGLosslessSV1, generate_uid

ROWS, COLUMNS = 20, 12
RAMP = np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS)  # rises along rows, then down: any turn or mirror shows


def picture(path, array, **options):
    Image.fromarray(array).save(path, **options)
    return path


def dicom(path, stored=RAMP, drop=(), pixels=None, syntax=ExplicitVRLittleEndian, preamble=True, **tags):
    """Write stored values as a DX image; tags replace what is set here, those in ``drop`` are left out."""
    header = Dataset()
    header.file_meta = FileMetaDataset()
    header.file_meta.TransferSyntaxUID = syntax
    header.file_meta.MediaStorageSOPClassUID = header.SOPClassUID = "1.2.840.10008.5.1.4.1.1.1.1"
    header.file_meta.MediaStorageSOPInstanceUID = header.SOPInstanceUID = generate_uid(entropy_srcs=["x"])
    header.PatientName, header.Modality, header.PhotometricInterpretation = "Doe^Jane", "DX", "MONOCHROME2"
    header.Rows, header.Columns, header.SamplesPerPixel = *stored.shape[:2], 1
    header.BitsAllocated, header.BitsStored, header.HighBit, header.PixelRepresentation = 16, 12, 11, 0
    header.PixelData = stored.astype("<u2").tobytes() if pixels is None else pixels
    for name, value in tags.items():
        setattr(header, name, value)
    for name in drop:
        delattr(header, name)
    header["PixelData"].VR = "OB" if syntax.is_compressed else "OW"
    header.save_as(path, enforce_file_format=preamble, **({} if preamble else {"implicit_vr": False}))
    return path


def lut(values, bits=12):
    item = Dataset()
    item.LUTDescriptor = [len(values), 0, bits]
    item["LUTDescriptor"].VR = "US"
    item.LUTData = [int(value) for value in values]
    item["LUTData"].VR = "US"
    return [item]


# --- pictures


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_grey_of_8_bits_is_divided_by_255_rows_first(tmp_path, ending):
    image = read_xray(picture(tmp_path / f"x.{ending}", RAMP.astype(np.uint8), quality=100))
    assert image.dtype == np.float32 and image.shape == (ROWS, COLUMNS)
    np.testing.assert_allclose(image, RAMP / 255, atol=0 if ending == "png" else 0.02, rtol=1e-6)


def test_16_bits_are_stretched_between_percentiles(tmp_path):
    values = (RAMP * 17).astype(np.uint16)
    low, high = np.percentile(values, [0.5, 99.5])
    image = read_xray(picture(tmp_path / "x.png", values))
    np.testing.assert_allclose(image, ((values - low) / (high - low)).clip(0, 1), atol=1e-6)


def test_a_bright_marker_does_not_set_the_scale():
    values = np.tile(np.linspace(100, 200, 1000), (10, 1))
    values[0, 0] = 65535
    assert stretch(values).mean() == pytest.approx(0.5, abs=0.01)
    mostly = np.zeros((100, 100))
    mostly[0, :10] = 5
    assert stretch(mostly).max() == 1 and stretch(np.ones((3, 3))).max() == 0


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA", "P", "1", "CMYK"])
def test_other_kinds_of_grey_pictures(tmp_path, mode):
    grey = Image.fromarray(np.where(RAMP > 120, 255, 0).astype(np.uint8) if mode == "1" else RAMP.astype(np.uint8))
    path = tmp_path / ("x.jpg" if mode == "CMYK" else "x.png")
    grey.convert("RGB").convert("CMYK").save(path, quality=100) if mode == "CMYK" else grey.convert(mode).save(path)
    np.testing.assert_allclose(read_xray(path), np.asarray(grey) / 255, atol=0.03)


def test_a_palette_is_looked_up_and_transparency_is_black(tmp_path):
    indexed = Image.fromarray((RAMP % 4).astype(np.uint8), mode="P")
    indexed.putpalette([0, 0, 0, 200, 200, 200, 100, 100, 100, 50, 50, 50])
    indexed.save(tmp_path / "p.png")
    np.testing.assert_allclose(read_xray(tmp_path / "p.png"), np.array([0, 200, 100, 50])[RAMP % 4] / 255, atol=1e-6)
    alpha = np.stack([np.full_like(RAMP, 200)] * 3 + [np.where(RAMP < 100, 0, 255)], axis=-1).astype(np.uint8)
    np.testing.assert_allclose(read_xray(picture(tmp_path / "a.png", alpha)), (RAMP >= 100) * 200 / 255, atol=1e-6)


def test_exif_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise
    path = picture(tmp_path / "x.jpg", RAMP.astype(np.uint8), quality=100, exif=exif)
    np.testing.assert_allclose(read_xray(path), np.rot90(RAMP, -1) / 255, atol=0.02)


def test_an_image_with_small_coloured_marks_is_read(tmp_path):
    colours = np.stack([np.tile(RAMP, (3, 3)).astype(np.uint8)] * 3, axis=-1)
    colours[:4, :10] = (255, 0, 0)
    assert read_xray(picture(tmp_path / "mark.png", colours)).shape == (60, 36)
    colours[:30] = (30, 90, 200)
    with pytest.raises(BundleInputError, match=r"photo.png is a colour photograph \(5.%.*give the X-ray itself"):
        read_xray(picture(tmp_path / "photo.png", colours))


# --- DICOM


def test_without_a_window_dicom_is_stretched(tmp_path):
    np.testing.assert_allclose(read_xray(dicom(tmp_path / "x.dcm")), stretch(RAMP), atol=1e-6)
    padded = np.where(RAMP < 40, 4095, RAMP)
    image = read_xray(dicom(tmp_path / "p.dcm", padded, PixelPaddingValue=4095))
    assert image[5, 0] == pytest.approx((60 - 40.995) / (238.005 - 40.995), abs=1e-3)


def test_monochrome1_is_inverted(tmp_path):
    plain, inverted = (
        read_xray(dicom(tmp_path / f"{name}.dcm", PhotometricInterpretation=name, WindowCenter=120, WindowWidth=100))
        for name in ("MONOCHROME2", "MONOCHROME1")
    )
    np.testing.assert_allclose(inverted, 1 - plain, atol=1e-6)
    assert plain[0, 0] == 0 and plain[-1, -1] == 1


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
@pytest.mark.parametrize(("slope", "intercept"), [(1.0, 0.0), (2.0, -50.0), (-1.0, 300.0)])
def test_rescale_and_window(tmp_path, function, slope, intercept):
    tags = {"WindowCenter": 150.0, "WindowWidth": 80.0, "VOILUTFunction": function}
    image = read_xray(dicom(tmp_path / "x.dcm", RescaleSlope=slope, RescaleIntercept=intercept, **tags))
    x = RAMP * slope + intercept
    expected = {
        "LINEAR": (x - 149.5) / 79 + 0.5,
        "LINEAR_EXACT": (x - 150) / 80 + 0.5,
        "SIGMOID": 1 / (1 + np.exp(-4 * (x - 150) / 80)),
    }[function]
    np.testing.assert_allclose(image, expected.clip(0, 1), atol=1e-4)


def test_of_several_windows_the_first_counts(tmp_path):
    several = read_xray(dicom(tmp_path / "x.dcm", WindowCenter=[100, 30], WindowWidth=[50, 20]))
    np.testing.assert_array_equal(several, read_xray(dicom(tmp_path / "y.dcm", WindowCenter=100, WindowWidth=50)))


@pytest.mark.parametrize(("centre", "width"), [("", ""), (None, None), (100, 0), (100, 1), (100, "")])
def test_an_invalid_window_is_ignored(tmp_path, centre, width):
    image = read_xray(dicom(tmp_path / "x.dcm", WindowCenter=centre, WindowWidth=width))
    np.testing.assert_allclose(image, stretch(RAMP), atol=1e-6)


def test_look_up_tables(tmp_path):
    """The modality's halves values, the display's squares them."""
    halves, squares = np.arange(240) // 2, (np.arange(120) / 119) ** 2 * 4095
    image = read_xray(
        dicom(tmp_path / "x.dcm", ModalityLUTSequence=lut(halves, 16), VOILUTSequence=lut(squares.round()))
    )
    np.testing.assert_allclose(image, (RAMP // 2 / 119) ** 2, atol=1e-3)


def test_signed_values(tmp_path):
    stored = RAMP - 120
    tags = {"PixelRepresentation": 1, "BitsStored": 16, "HighBit": 15, "WindowCenter": 0, "WindowWidth": 101}
    image = read_xray(dicom(tmp_path / "x.dcm", RAMP, pixels=stored.astype("<i2").tobytes(), **tags))
    np.testing.assert_allclose(image, ((stored + 0.5) / 100 + 0.5).clip(0, 1), atol=1e-4)


def test_dicom_without_preamble_or_ending(tmp_path):
    whole = read_xray(dicom(tmp_path / "whole"))
    for name in ("bare.dcm", "bare.IMA", "IM0001", "1.2.840.5"):
        np.testing.assert_array_equal(read_xray(dicom(tmp_path / name, preamble=False)), whole)
    with_start = (tmp_path / "IM0001").read_bytes()
    meta = with_start.index(b"\x08\x00\x16\x00UI")
    (tmp_path / "IM0002").write_bytes(with_start[meta:])  # without the first group too
    header = pydicom.dcmread(tmp_path / "IM0002", force=True)
    header.save_as(tmp_path / "IM0003", enforce_file_format=False, implicit_vr=True, little_endian=True)
    for name in ("IM0002", "IM0003"):
        np.testing.assert_array_equal(read_xray(tmp_path / name), whole)
    assert len(list_images(tmp_path)) == 7


def test_files_that_are_no_images_are_counted(tmp_path, caplog):
    dicom(tmp_path / "IM0001", preamble=False)
    for name, content in {"notes": b"\x08\x00 no DICOM", "empty": b"", "a.tif": b"II*", "DICOMDIR": b"x"}.items():
        (tmp_path / name).write_bytes(content)
    for name in ("out/predictions.csv", "out/predictions.json", "out/heat_maps/IM0001.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert [Path(path).name for path in list_images(tmp_path, tmp_path / "out")] == ["IM0001"]
    assert f"3 files are no DICOM, PNG or JPEG and are left out, such as {tmp_path / 'a.tif'}" in caplog.text


# --- what cannot be read


def refused(tmp_path, name, content=b"", **tags):
    path = tmp_path / name
    if content is None:
        return path
    if isinstance(content, bytes):
        path.write_bytes(content)
        return path
    return dicom(path, content, **tags)


def half(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def test_an_unreadable_file_is_named_with_what_to_do(tmp_path):
    big = np.random.default_rng(0).integers(0, 255, (200, 200), dtype=np.uint8)
    cases = {
        refused(tmp_path, "gone.png", None): "gone.png cannot be read .*restore it",
        refused(tmp_path, "empty.png"): "empty.png is an empty file",
        refused(tmp_path, "note.png", b"a text"): "note.png is not a DICOM, PNG or JPEG",
        refused(tmp_path, "scan.tif", b"II*\x00" + bytes(200)): "scan.tif is not a DICOM, PNG or JPEG",
        refused(tmp_path, "text.dcm", b"a text" * 50): "text.dcm is not a DICOM file|text.dcm is damaged DICOM",
        half(picture(tmp_path / "half.png", big)): "half.png is damaged",
        half(picture(tmp_path / "half.jpg", big)): "half.jpg is damaged",
        picture(tmp_path / "tiny.png", big[:4, :4]): "tiny.png has 4 x 4 pixels",
        picture(tmp_path / "flat.png", np.full((20, 20), 7, np.uint8)): "flat.png: all pixels are equal",
        tmp_path: "cannot be read .*restore it",
    }
    for path, message in cases.items():
        with pytest.raises(BundleInputError, match=message) as caught:
            read_xray(path)
        assert str(path) in str(caught.value)


def test_other_dicom_is_named_with_what_to_do(tmp_path):
    flat = np.full((20, 20), 7)
    colour = {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0}
    colour |= {"pixels": bytes(ROWS * COLUMNS * 3), "BitsAllocated": 8, "BitsStored": 8, "HighBit": 7}
    frames = {"NumberOfFrames": 2, "pixels": bytes(ROWS * COLUMNS * 4)}
    compressed = {"syntax": JPEGLosslessSV1, "pixels": encapsulate([b"\xff\xd8\xff\xc3 nonsense"])}
    cases = {
        "ct": (RAMP, {"Modality": "CT"}, "the modality is CT; chest radiographs"),
        "mg": (RAMP, {"Modality": "MG"}, "the modality is MG"),
        "none": (RAMP, {"drop": ["Modality"]}, "the modality is not given"),
        "report": (RAMP, {"drop": ["PixelData"]}, "is a DICOM file without an image"),
        "frames": (RAMP, frames, "has 2 frames; save the radiograph"),
        "colour": (RAMP, colour, r"is a colour image \(RGB\)"),
        "flat": (flat, {}, "all pixels are equal"),
        "cut": (RAMP, {"pixels": bytes(100)}, "the image is damaged"),
        "jpeg": (RAMP, compressed, r"is compressed \(JPEG Lossless.*pip install python-gdcm"),
        "lut": (RAMP, {"VOILUTSequence": [Dataset()]}, "look-up table or window is unusable"),
    }
    for name, (stored, tags, message) in cases.items():
        drop = tags.pop("drop", ())
        path = tmp_path / f"{name}.dcm"
        if "PixelData" in drop:
            header = pydicom.dcmread(dicom(path, stored))
            del header.PixelData
            header.save_as(path)
        else:
            dicom(path, stored, drop, **tags)
        with pytest.raises(BundleInputError, match=message) as caught:
            read_xray(path)
        assert str(path) in str(caught.value) and "Doe" not in str(caught.value)


def test_jpeg_lossless_is_read(tmp_path, compress_dicom):
    plain = read_xray(dicom(tmp_path / "x.dcm"))
    compress_dicom(tmp_path / "x.dcm")
    assert pydicom.dcmread(tmp_path / "x.dcm").file_meta.TransferSyntaxUID == JPEGLosslessSV1
    np.testing.assert_array_equal(read_xray(tmp_path / "x.dcm"), plain)


def test_a_header_with_nonsense_is_refused(tmp_path):
    path = dicom(tmp_path / "x.dcm", NumberOfFrames=12)
    frames = b"\x28\x00\x08\x00IS\x02\x00"
    content = path.read_bytes()
    assert frames + b"12" in content
    path.write_bytes(content.replace(frames + b"12", frames + b"1A"))
    with pytest.raises(BundleInputError, match="x.dcm is damaged DICOM .*1A.*export it again"):
        read_xray(path)


@pytest.mark.parametrize("length", [0, 100, 140, 300, 500, 700, 900])
def test_dicom_cut_anywhere_is_refused(tmp_path, length):
    path = dicom(tmp_path / "x.dcm")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(BundleInputError, match="x.dcm"):
        read_xray(path)


# --- transforms and folders


def test_a_loaded_image_knows_its_file_and_nothing_of_the_patient(tmp_path):
    path = dicom(tmp_path / "x.dcm")
    image = LoadXrayd("image")({"image": str(path), "label": 1})["image"]
    assert image.shape == (1, ROWS, COLUMNS) and image.dtype == torch.float32
    assert image.meta["filename_or_obj"] == str(path) and list(image.meta["spatial_shape"]) == [ROWS, COLUMNS]
    assert "Doe" not in str(image.meta)


@pytest.mark.parametrize("shape", [(64, 64), (40, 80), (300, 150), (7, 500), (33, 32)])
def test_fit_square_keeps_proportions(shape):
    image = torch.ones(1, *shape)
    fitted = fit_square(image, 32)
    assert fitted.shape == (1, 32, 32)
    rows, columns = (int((fitted[0].amax(axis) > 0.99).sum()) for axis in (1, 0))
    assert (rows, columns) == tuple(max(1, round(n * 32 / max(shape))) for n in shape)
    assert fitted[0].sum() == pytest.approx(rows * columns)
    first = [int((fitted[0].amax(axis) > 0.99).nonzero()[0]) for axis in (1, 0)]
    assert first == [(32 - rows) // 2, (32 - columns) // 2]


def test_fit_square_smooths_when_it_shrinks_and_keeps_what_fits():
    stripes = torch.zeros(1, 256, 256)
    stripes[:, ::2] = 1
    assert fit_square(stripes, 32).std() < 0.01 and fit_square(stripes, 32).mean() == pytest.approx(0.5, abs=0.01)
    same = torch.rand(1, 32, 32)
    torch.testing.assert_close(FitSquared("image", 32)({"image": same})["image"], same)
    with pytest.raises(BundleInputError, match="image_size is 4"):
        FitSquared("image", 4)


def test_images_of_a_folder(tmp_path):
    for name in ("b.PNG", "a/c.jpg", "a/scan", "a/notes.txt", ".hidden/d.png", "out/heat_maps/b.PNG.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(128) + b"DICM" if name == "a/scan" else b"x")
    (tmp_path / "README").write_text("no DICOM")
    result = [Path(path).relative_to(tmp_path).as_posix() for path in list_images(tmp_path, tmp_path / "out")]
    assert result == ["a/c.jpg", "a/scan", "b.PNG"]
    for folder in (tmp_path / "missing", tmp_path / ".hidden" / "none"):
        with pytest.raises(BundleInputError, match="holds no .dcm, .png or .jpg file"):
            list_images(folder)


@pytest.mark.parametrize("name", ["x.png", "x.dcm"])
def test_more_pixels_than_any_detector_has_are_refused_by_the_header(tmp_path, monkeypatch, name):
    write = dicom if name == "x.dcm" else picture
    path = write(tmp_path / name, RAMP.astype(np.uint8) if write is picture else RAMP)
    for module in ("pictures", "dicom"):
        monkeypatch.setattr(f"cxr_classifier.{module}.LARGEST", RAMP.size)
    assert read_xray(path).shape == RAMP.shape
    for module in ("pictures", "dicom"):
        monkeypatch.setattr(f"cxr_classifier.{module}.LARGEST", RAMP.size - 1)
    with pytest.raises(BundleInputError, match=r"x\....? has .* pixels; export it smaller"):
        read_xray(path)


def padded(limit):
    """A ramp of 1000 to 1239 beside padding of many values, from 0 to 100."""
    stored = np.hstack([np.arange(ROWS * 6).reshape(ROWS, 6) % 101, 1000 + RAMP])
    return stored, {"PixelPaddingValue": 0, "PixelPaddingRangeLimit": limit}


def test_a_range_of_padding_does_not_set_the_scale(tmp_path):
    stored, tags = padded(100)
    result = read_xray(dicom(tmp_path / "a.dcm", stored, **tags))
    right = read_xray(dicom(tmp_path / "b.dcm", 1000 + RAMP))
    assert np.allclose(result[:, 6:], right, atol=1e-6) and (result[:, :6] == 0).all()


def test_the_first_window_that_shows_something_counts(tmp_path):
    windows = {"WindowCenter": [9000, 120], "WindowWidth": [10, 240]}
    result = read_xray(dicom(tmp_path / "a.dcm", **windows))
    assert np.array_equal(result, read_xray(dicom(tmp_path / "b.dcm", WindowCenter=120, WindowWidth=240)))
    invalid = dicom(tmp_path / "c.dcm", WindowCenter=[100, 120], WindowWidth=[0, 240])
    assert np.array_equal(result, read_xray(invalid))
    with pytest.raises(BundleInputError, match="no window shows anything of the image"):
        read_xray(dicom(tmp_path / "d.dcm", WindowCenter=[9000, 8000], WindowWidth=[10, 10]))


def test_a_table_of_bytes_is_read(tmp_path):
    item = Dataset()
    item.add_new("LUTDescriptor", "US", [RAMP.size, 0, 8])
    item.add_new("LUTData", "OW", np.linspace(255, 0, RAMP.size).astype(np.uint8).tobytes())
    expected = np.linspace(255, 0, RAMP.size).astype(np.uint8).reshape(RAMP.shape)
    assert np.allclose(read_xray(dicom(tmp_path / "a.dcm", VOILUTSequence=[item])), expected / 255)
    first = dicom(tmp_path / "b.dcm", ModalityLUTSequence=[item], WindowCenter=128, WindowWidth=256)
    assert np.allclose(read_xray(first), expected / 255, atol=1e-3)


@pytest.mark.parametrize("grey", [True, False])
def test_a_palette_of_greys_is_read_and_one_of_colours_refused(tmp_path, grey):
    tags = {"PhotometricInterpretation": "PALETTE COLOR"}
    for place, name in enumerate(("Red", "Green", "Blue")):
        values = np.arange(255, -1, -1) if grey or place else np.zeros(256)
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, 8]
        tags[f"{name}PaletteColorLookupTableData"] = values.astype(np.uint8).tobytes()
    path = dicom(tmp_path / "a.dcm", **tags)
    if grey:
        assert np.allclose(read_xray(path), 1 - RAMP / 255, atol=1e-6)
    else:
        with pytest.raises(BundleInputError, match="colour image"):
            read_xray(path)


def test_a_picture_of_sixteen_bits_a_colour_that_holds_twelve_is_refused(tmp_path):
    for name, factor in {"low": 16, "full": 256}.items():
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.dstack([(RAMP * factor).astype(np.uint16)] * 3))
    with pytest.raises(BundleInputError, match="16 bits a colour.*export it grey"):
        read_xray(tmp_path / "low.png")
    assert np.allclose(read_xray(tmp_path / "full.png"), RAMP / 255, atol=1e-6)
