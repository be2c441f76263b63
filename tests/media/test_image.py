"""Images against pictures made in memory, whose pixels are known."""

import contextlib
import io
import struct
import sys
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import PIL.Image
import pytest
from PIL import ImageOps

from transduce.errors import MediaError
from transduce.media.image import FORMATS, Image, load, pages

LOSSY = {"JPEG", "WEBP", "AVIF", "JPEG2000"}
RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def gradient(width: int = 24, height: int = 16) -> PIL.Image.Image:
    """Another colour at every corner, so that turns and flips show."""
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return PIL.Image.fromarray(np.stack([across, down, 255 - across], axis=-1).astype(np.uint8))


def encoded(picture: PIL.Image.Image, kind: str, **options: Any) -> bytes:
    """A whole file of `kind`."""
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def pixels(picture: PIL.Image.Image) -> npt.NDArray[np.int64]:
    assert picture.mode == "RGB"
    return np.asarray(picture).astype(np.int64)


def tiff(*pictures: PIL.Image.Image, **options: Any) -> bytes:
    return encoded(pictures[0], "TIFF", save_all=True, append_images=pictures[1:], **options)


def pdf(*boxes: tuple[int, int, bytes]) -> bytes:
    """A PDF, a page for each (width, height, drawing) in points. None of its numbers is checked by PDFium but these."""
    kids = b" ".join(b"%d 0 R" % (3 + 2 * page) for page in range(len(boxes)))
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count %d/Kids[%b]>>" % (len(boxes), kids)]
    for page, (width, height, drawing) in enumerate(boxes):
        box = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 %d %d]/Contents %d 0 R>>"
        objects.append(box % (width, height, 4 + 2 * page))
        objects.append(b"<</Length %d>>stream\n%b\nendstream" % (len(drawing), drawing))
    file, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(file))
        file += b"%d 0 obj%b endobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 %d\n0000000000 65535 f \n%btrailer<</Root 1 0 R/Size %d>>\n" % (
        len(places) + 1,
        table,
        len(places) + 1,
    )
    return file + head + b"startxref\n%d\n%%%%EOF" % len(file)


def filled(color: bytes, width: int = 72, height: int = 36) -> tuple[int, int, bytes]:
    return width, height, b"%b rg 0 0 %d %d re f" % (color, width, height)


def corners(found: Iterable[PIL.Image.Image | MediaError]) -> list[object]:
    """What is in the corner of each page; the message of one that failed."""
    return [str(page) if isinstance(page, MediaError) else page.getpixel((0, 0)) for page in found]


def png_header(width: int, height: int) -> bytes:
    """A PNG that says how large it is, and has no pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0\0\0\x09IDAT"
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_its_pixels(kind: str, tmp_path: Path) -> None:
    data = encoded(gradient(), kind)
    path = tmp_path / "picture.eps"  # a name says nothing
    path.write_bytes(data)
    for image in (data, path, str(path), PIL.Image.open(io.BytesIO(data))):
        difference = pixels(load(image)) - pixels(gradient())
        assert np.abs(difference).mean() <= (12 if kind == "GIF" else 6 if kind in LOSSY else 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    """A phone's picture is as it was taken, however the phone was held."""
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    for kind in ("PNG", "TIFF"):
        data = encoded(gradient(), kind, exif=exif)
        with PIL.Image.open(io.BytesIO(data)) as untouched:
            expected = pixels(ImageOps.exif_transpose(untouched))
        np.testing.assert_array_equal(pixels(load(data)), expected)
        assert expected.shape == ((16, 24, 3) if orientation < 5 else (24, 16, 3))


def transparent(mode: str) -> bytes:
    """Black ink (left) on nothing (right), where files mostly have black too."""
    picture = PIL.Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    picture.putpixel((0, 0), (0, 0, 0, 255))
    if mode == "P":
        palette = PIL.Image.new("P", (2, 1), 1)
        palette.putpalette([0, 0, 0, 0, 0, 0])
        palette.putpixel((0, 0), 0)
        return encoded(palette, "PNG", transparency=1)
    return encoded(picture.convert(mode), "PNG")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_shows_white(mode: str) -> None:
    """As transformers' own convert_to_rgb has it. Without, the ink could not be told from what is behind it."""
    with PIL.Image.open(io.BytesIO(transparent(mode))) as untouched:
        assert untouched.convert("RGB").getcolors() == [(2, BLACK)]
    picture = load(transparent(mode))
    assert [picture.getpixel((0, 0)), picture.getpixel((1, 0))] == [BLACK, WHITE]


@pytest.mark.parametrize("mode", ["1", "L", "P", "CMYK", "YCbCr", "RGBX"])
def test_other_colours_are_converted_as_pillow_does(mode: str) -> None:
    picture = gradient().convert(mode)
    data = encoded(picture, "TIFF")
    np.testing.assert_array_equal(pixels(load(data)), pixels(picture.convert("RGB")))


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    """Pillow's convert("RGB") makes all above 255 white, which is nearly all of a scan or a depth image."""
    values = np.array([[0, 257, 32_896, 65_535]], np.uint16)
    wide = PIL.Image.fromarray(values)
    assert np.asarray(wide.convert("RGB"))[0, :, 0].tolist() == [0, 255, 255, 255]
    pgm = b"P5 4 1 65535\n" + values.astype(">u2").tobytes()  # Pillow's mode I
    for image in (values, wide, encoded(wide, "PNG"), encoded(wide, "TIFF"), pgm, values[..., None]):
        assert pixels(load(image))[0, :, 0].tolist() == [0, 1, 128, 255]


def test_arrays_of_every_type_and_depth() -> None:
    colours = np.asarray(gradient())
    for values in (colours, colours.astype(np.uint16) * 257, colours / 255, (colours / 255).astype(np.float32)):
        np.testing.assert_array_equal(pixels(load(values)), colours)
    np.testing.assert_array_equal(pixels(load(colours[..., :1])), pixels(load(colours[..., 0])))
    clear = np.dstack([colours, np.zeros(colours.shape[:2], np.uint8)])
    assert load(clear).getcolors() == [(16 * 24, WHITE)]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_an_animation_is_its_first_frame(kind: str) -> None:
    frames = [PIL.Image.new("RGB", (8, 8), color) for color in ("red", "blue")]
    data = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "WEBP" else {})
    )
    assert load(data).getcolors() == [(64, RED)]
    assert corners(pages(data)) == [RED]


def test_the_picture_is_its_own() -> None:
    given = gradient()
    load(given).putpixel((0, 0), WHITE)
    assert given.getpixel((0, 0)) != WHITE


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_short_is_refused(kind: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(PIL.Image.fromarray(noise), kind)
    with pytest.raises(MediaError, match=r"cannot read image of|none that can be read"):
        load(data[: len(data) * 2 // 3])


def test_pixels_are_counted_before_they_are_decoded() -> None:
    """The first has no pixels at all behind its head: decoding would be another error."""
    with pytest.raises(MediaError, match="is 9000 × 9000 pixels, and 64000000 are allowed; scale it down"):
        load(png_header(9_000, 9_000))
    with pytest.raises(MediaError, match=r"bomb.*[^.]; scale it down"):
        load(png_header(30_000, 30_000))
    images: list[Image] = [encoded(gradient(), "PNG"), gradient(), np.asarray(gradient())]
    for image in images:
        assert load(image, 24 * 16).size == (24, 16)
        with pytest.raises(MediaError, match="24 × 16 pixels, and 383 are allowed"):
            load(image, 24 * 16 - 1)


def test_no_format_runs_another_program_or_opens_another_file() -> None:
    """Pillow would hand PostScript to Ghostscript."""
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"
    with PIL.Image.open(io.BytesIO(script)) as opened:
        assert opened.format == "EPS"
    with pytest.raises(MediaError, match="none that can be read; give a JPEG"):
        load(script)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "image of 0 bytes is empty"),
        (b"He was not an ill-disposed young man.\n" * 9, "none that can be read; give a JPEG, .* or JPEG2000"),
        ("no/such/file.png", "'no/such/file.png': No such file or directory; check the path"),
        ("http://localhost/picture.png", "No such file or directory; download it first"),
        ("/", "Is a directory; give a file"),
        ("a\0b", "null byte"),
        (pdf(filled(b"1 0 0")), "is a PDF, which has pages"),
        (PIL.Image.new("RGB", (0, 5)), "0 × 5 pixels"),
        (np.zeros((4, 0, 3), np.uint8), "0 × 4 pixels"),
        (np.zeros((3, 4, 5), np.uint8), r"shape \(3, 4, 5\): give \[height, width\]"),
        (np.zeros(4, np.uint8), r"shape \(4,\)"),
        (np.full((2, 2, 3), 255.0), "values from 255.0 to 255.0: give 0 to 1 as float64, or uint8"),
        (np.full((2, 2), np.nan), "values from nan"),
        (np.zeros((2, 2), np.int64), "int64, whose range is not known: give uint8, uint16 or floats"),
        (np.full((2, 2), -1, np.int32), "int32, whose range"),
        (PIL.Image.new("I", (2, 2), 70_000), "pixels from 70000 to 70000, whose range is not known"),
        (np.zeros((2, 2), bool), "of bool"),
        (PIL.Image.new("F", (2, 2)), "floats for pixels"),
        (None, "image of type NoneType: give a path"),
        ([[0, 1]], "type list"),
    ],
)
def test_what_is_no_image_is_one_clear_error(image: Image, message: str) -> None:
    with pytest.raises(MediaError, match=message):
        load(image)


def test_the_pages_of_a_tiff_are_in_order() -> None:
    data = tiff(*(PIL.Image.new("RGB", (8, 8), color) for color in ("red", "white", "black")), compression="tiff_lzw")
    assert corners(pages(data)) == [RED, WHITE, BLACK]
    assert load(data).getcolors() == [(64, RED)]
    found = pages(data, most_pages=2)
    assert corners([next(found), next(found)]) == [RED, WHITE]
    with pytest.raises(MediaError, match="more than 2 pages; split it"):
        next(found)


def directory(data: bytes, page: int) -> tuple[int, int]:
    """Where a page's directory is in a TIFF, and where it names the next."""
    place = 4
    for _ in range(page + 1):
        (start,) = struct.unpack_from("<I", data, place)
        (count,) = struct.unpack_from("<H", data, start)
        place = start + 2 + 12 * count
    return start, place


def with_tag(data: bytes, page: int, tag: int, value: int) -> bytes:
    """The same TIFF with another short integer for one tag of a page."""
    start, end = directory(data, page)
    for entry in range(start + 2, end, 12):
        if struct.unpack_from("<H", data, entry) == (tag,):
            return data[: entry + 8] + struct.pack("<H", value) + data[entry + 10 :]
    raise AssertionError(tag)


@pytest.mark.parametrize(
    ("tag", "value"), [(259, 9_999), (262, 77), (256, 60_000)], ids=["compression", "colour", "width"]
)
def test_a_damaged_page_of_a_tiff_fails_alone(tag: int, value: int) -> None:
    data = tiff(*(PIL.Image.new("RGB", (8, 4_000), color) for color in ("red", "blue", "black")))
    first, second, third = corners(pages(with_tag(data, 1, tag, value)))
    assert (first, third) == (RED, BLACK)
    assert "page 2 of image of" in str(second)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_what_follows_a_damaged_link_in_a_tiff_is_one_error() -> None:
    data = tiff(*(PIL.Image.new("RGB", (8, 8), color) for color in ("red", "blue", "black")))
    _, link = directory(data, 0)
    found = corners(pages(data[:link] + struct.pack("<I", 10**7) + data[link + 4 :]))
    assert found[0] == RED
    assert len(found) == 2
    assert "page 2" in str(found[1])
    circle = data[:link] + data[4:8] + data[link + 4 :]
    assert corners(pages(circle)) == [RED]


def test_the_pages_of_a_pdf_are_in_order(tmp_path: Path) -> None:
    path = tmp_path / "paper.pdf"
    path.write_bytes(pdf(filled(b"1 0 0"), (72, 36, b""), filled(b"0 0 0")))
    documents: list[Image] = [path, path.read_bytes()]
    for document in documents:
        found = list(pages(document, dpi=100))
        assert corners(found) == [RED, WHITE, BLACK]
        assert all(
            isinstance(page, PIL.Image.Image) and page.size == (100, 50) and page.mode == "RGB" for page in found
        )


def test_a_page_of_a_pdf_fails_alone() -> None:
    """One is too large, and one is not in the file."""
    data = pdf(filled(b"1 0 0"), filled(b"1 0 0", 9_000, 9_000), (72, 36, b""), filled(b"0 0 0"))
    data = data.replace(b"7 0 R", b"0 0 R")
    first, large, damaged, last = corners(pages(data, most=1_000_000, dpi=72))
    assert (first, last) == (RED, BLACK)
    assert "page 2 of image of" in str(large)
    assert "9000 × 9000 pixels, and 1000000 are allowed" in str(large)
    assert "cannot draw page 3 of image of" in str(damaged)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b"%PDF-1.4\nand nothing", "cannot read image of .*; give a complete PDF without a password"),
        (pdf(), r"Data format error\); give a complete PDF"),
        (pdf(*[filled(b"0 0 0")] * 3), "has 3 pages, and 2 are allowed; split it"),
        (b"", "is empty"),
        ("no/such.pdf", "check the path"),
        (None, "type NoneType"),
    ],
)
def test_a_document_that_cannot_be_read_is_one_error(document: Image, message: str) -> None:
    with pytest.raises(MediaError, match=message):
        list(pages(document, most_pages=2))


def test_a_pdf_without_the_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(MediaError, match=r'pypdfium2 is not installed; pip install "transduce\[ocr\]"'):
        list(pages(pdf(filled(b"0 0 0"))))


def test_one_picture_is_one_page() -> None:
    images: list[Image] = [gradient(), np.asarray(gradient()), encoded(gradient(), "PNG")]
    for image in images:
        assert corners(pages(image)) == [(0, 0, 255)]


@pytest.mark.parametrize("read", [load, lambda image: list(pages(image))])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_damage_anywhere_is_a_picture_or_an_error(kind: str, read: Callable[[bytes], object]) -> None:
    """Whatever Pillow makes of it; never another exception."""
    draw = np.random.default_rng(1)
    data = np.frombuffer(encoded(gradient(), kind), np.uint8)
    for _ in range(25):
        damaged = data.copy()
        damaged[draw.integers(0, min(len(data), 200), 3)] = draw.integers(0, 256, 3)
        with contextlib.suppress(MediaError):
            read(damaged.tobytes())
