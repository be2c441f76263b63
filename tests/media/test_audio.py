"""Audio decoding against files made in memory, whose contents are known."""

import io
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
import torch
from av.audio.codeccontext import AudioCodecContext
from av.audio.frame import AudioFrame

from transduce.errors import MediaError
from transduce.media.audio import MOST_CHANNELS, Audio, Channel, Samples, channels, decode
from transduce.media.audio import seconds as seconds_of

RATE = 16_000
CODECS = {"wav": "pcm_s16le", "flac": "flac", "mp3": "libmp3lame", "ogg": "libopus"}
EXACT = ("wav", "flac")


def sine(rate: int, seconds: float = 1.0, hertz: float = 440.0) -> Samples:
    """Half-scale sine [samples]."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(np.float32)


def encoded(channels: npt.NDArray[np.float32], rate: int, container: str = "wav") -> bytes:
    """A whole file of `container` holding `channels` [channels, samples]."""
    file = io.BytesIO()
    layout = {1: "mono", 2: "stereo", 8: "7.1"}[len(channels)]
    with av.open(file, "w", format=container) as output:
        stream = output.add_stream(CODECS[container], rate=rate, layout=layout)
        codec = stream.codec_context
        assert isinstance(codec, AudioCodecContext)
        frame = AudioFrame.from_ndarray(channels.T.reshape(1, -1), format="flt", layout=layout)
        frame.sample_rate = rate
        for part in av.AudioResampler(format=codec.format, layout=layout, rate=rate).resample(frame):
            output.mux(codec.encode(part))
        output.mux(codec.encode(None))
    return file.getvalue()


def wav(samples: npt.NDArray[Any], rate: int = RATE) -> bytes:
    """A file of samples [samples, channels], floats or int16, as they are, with as many channels as there are."""
    width, kind = samples.dtype.itemsize, 3 if samples.dtype.kind == "f" else 1
    block = samples.shape[1] * width
    form = struct.pack("<HHIIHH", kind, samples.shape[1], rate, rate * block, block, 8 * width)
    chunks = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", samples.nbytes)
    return b"RIFF" + struct.pack("<I", len(chunks) + samples.nbytes) + chunks + samples.tobytes()


def assert_is_sine(samples: Samples, tolerance: float, rate: int = RATE) -> None:
    """Filters are free to differ near the ends; the middle has to be the sine, in phase."""
    assert samples.dtype == np.float32
    assert samples.ndim == 1
    middle = slice(rate // 10, -rate // 10)
    expected = sine(rate, len(samples) / rate + 1)[: len(samples)]
    np.testing.assert_allclose(samples[middle], expected[middle], atol=tolerance)


@pytest.mark.parametrize("container", CODECS)
@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100, 48_000])
def test_every_container_gives_its_sound(container: str, rate: int) -> None:
    if container == "ogg" and rate == 44_100:
        rate = 24_000  # Opus has no 44.1 kHz
    samples = decode(encoded(sine(rate)[None], rate, container), RATE)
    assert_is_sine(samples, tolerance=1e-3 if container in EXACT else 0.05)
    longest = RATE + 1 if container in EXACT else RATE * 1.1  # lossy codecs pad to their frames
    assert RATE - 1 <= len(samples) <= longest


@pytest.mark.parametrize("rate", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("seconds", [0.01, 0.1234, 1.0, 2.5])
def test_resampling_keeps_the_duration(rate: int, seconds: float) -> None:
    source = sine(rate, seconds)
    assert len(decode((source, rate), RATE)) == pytest.approx(len(source) * RATE / rate, abs=1)


@pytest.mark.parametrize("container", CODECS)
def test_the_length_is_known_without_decoding(container: str) -> None:
    """But for what a lossy codec puts before and after."""
    clip = encoded(sine(48_000, 2.5)[None], 48_000, container)
    assert seconds_of(clip) == pytest.approx(2.5, abs=0 if container in EXACT else 0.1)


@pytest.mark.parametrize("clip", [b"", b"no audio"])
def test_what_is_no_audio_has_no_length(clip: bytes) -> None:
    with pytest.raises(MediaError):
        seconds_of(clip)


def test_the_end_of_the_audio_is_there() -> None:
    source = np.zeros(44_100, np.float32)
    source[-400:] = sine(44_100)[:400]
    assert np.abs(decode((source, 44_100), RATE)[-145:]).max() > 0.4


@pytest.mark.parametrize(
    ("samples", "reason"),
    [(torch.zeros(800, requires_grad=True), "requires grad"), (torch.zeros(800, dtype=torch.bfloat16), "BFloat16")],
)
def test_tensors_that_numpy_cannot_hold_are_refused(samples: torch.Tensor, reason: str) -> None:
    with pytest.raises(MediaError, match=f"samples of type Tensor: .*{reason}.*; give a numpy array"):
        decode((samples, RATE), RATE)


def test_decoding_stops_where_no_more_is_wanted() -> None:
    samples = np.zeros(32_001, np.float32)
    assert len(decode((samples[1:], 16_000), 16_000, 32_000)) == 32_000
    with pytest.raises(MediaError, match=r"longer than 2 s; give a shorter part"):
        decode((samples, 16_000), 16_000, 32_000)


def test_samples_at_the_wanted_rate_are_untouched() -> None:
    source = sine(RATE)
    np.testing.assert_array_equal(decode((source, RATE), RATE), source)
    np.testing.assert_array_equal(decode((source.tolist(), RATE), RATE), source)


def test_path_and_bytes_are_one_file(tmp_path: Path) -> None:
    data = encoded(sine(8_000)[None], 8_000)
    path = tmp_path / "clip.wav"
    path.write_bytes(data)
    np.testing.assert_array_equal(decode(path, RATE), decode(data, RATE))
    np.testing.assert_array_equal(decode(str(path), RATE), decode(data, RATE))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.uint8, np.uint16, np.float64, np.float16])
def test_every_number_type_has_full_scale_one(dtype: type[np.generic]) -> None:
    source = sine(RATE)
    kind = np.dtype(dtype)
    half = 2.0 ** (8 * kind.itemsize - 1)
    values = source if kind.kind == "f" else np.round(source.astype(np.float64) * half + half * (kind.kind == "u"))
    np.testing.assert_allclose(decode((values.astype(dtype), RATE), RATE), source, atol=1 / 128)


def test_channels_are_averaged_whichever_axis_they_are() -> None:
    left = sine(RATE)
    stereo = np.stack([left, np.zeros_like(left)])
    for samples in (stereo, stereo.T, stereo.tolist()):
        np.testing.assert_allclose(decode((samples, RATE), RATE), left / 2, atol=1e-7)
    np.testing.assert_allclose(decode(encoded(stereo, RATE), RATE), left / 2, atol=1e-4)


def test_floats_a_little_above_full_scale_are_taken() -> None:
    loud = 3 * sine(RATE)
    np.testing.assert_array_equal(decode((loud, RATE), RATE), loud)


def test_two_equal_axes_are_channels_first() -> None:
    square = np.arange(100 * 100, dtype=np.float32).reshape(100, 100) / 1e4
    np.testing.assert_allclose(decode((square, RATE), RATE), square.mean(axis=0), atol=1e-6)


def test_a_wav_cut_short_gives_what_it_holds() -> None:
    data = encoded(sine(RATE)[None], RATE)
    kept = decode(data[: 44 + RATE], RATE)  # half of the 16-bit samples, give or take the header's extras
    assert RATE * 0.49 < len(kept) <= RATE * 0.5
    assert_is_sine(kept, tolerance=1e-3)


@pytest.mark.parametrize(("container", "least"), [("flac", 0.5), ("mp3", 0.8)])
def test_what_is_damaged_is_left_out_and_told(container: str, least: float, caplog: pytest.LogCaptureFixture) -> None:
    data, middle = encoded(sine(44_100)[None], 44_100, container), 9_000 if container == "flac" else 5_000
    kept = decode(data[:middle] + bytes(400) + data[middle + 400 :], RATE)
    assert least * RATE < len(kept) < RATE
    assert "is damaged: " in caplog.text


def test_video_without_sound_has_no_audio_stream() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="matroska") as output:
        stream = output.add_stream("mpeg4", rate=5)
        stream.width = stream.height = 16
        picture = av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8))
        output.mux(stream.encode(picture))
        output.mux(stream.encode(None))
    with pytest.raises(MediaError, match="no audio stream"):
        decode(file.getvalue(), RATE)


def test_a_playlist_opens_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clip = tmp_path / "clip.wav"
    clip.write_bytes(encoded(sine(RATE)[None], RATE))
    playlists = {
        "list.ffconcat": f"ffconcat version 1.0\nfile '{clip.name}'\n",
        "list.m3u8": f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile://{clip}\n#EXT-X-ENDLIST\n",
    }
    for name, text in playlists.items():
        (tmp_path / name).write_text(text)
        for audio in (tmp_path / name, text.encode()):
            with pytest.raises(MediaError, match="cannot read"):
                decode(audio, RATE)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("audio", "message"),
    [
        (np.random.default_rng(0).bytes(5_000), "cannot read audio of 5000 bytes"),
        (b"", "audio of 0 bytes is empty"),
        (b"He was not an ill-disposed young man.\n" * 50, "cannot read|no audio stream"),
        ("no/such/file.wav", "'no/such/file.wav': No such file or directory; check the path"),
        ("http://localhost/clip.wav", "No such file or directory; download it first"),
        ("/", "Is a directory; give a file"),
        (Path(__file__), "test_audio.py"),
        (([], RATE), "samples are empty"),
        ((np.zeros((2, 0)), RATE), "samples are empty"),
        ((np.zeros((1, 2, 3)), RATE), r"shape \(1, 2, 3\)"),
        ((0.5, RATE), r"shape \(\)"),
        (([[1.0], [1.0, 2.0]], RATE), "inhomogeneous"),
        (([0.0, np.nan] * 99, RATE), "NaN or infinity"),
        ((np.full(99, 1e300), RATE), "NaN or infinity"),
        (([3, -4] * 99, RATE), "type int64: give floats"),
        ((np.ones(99, bool), RATE), "type bool"),
        ((["a"], RATE), "type <U1"),
        ((np.ones(9, np.float32), 44_100), "too few"),
        ((np.full(99, -32767.0), RATE), "samples reach 32767; .* divide by 32768, or pass int16"),
        (wav(np.full((800, 1), -1e30, np.float32)), r"samples reach 1e\+30; .* divide by 32768, or pass int16"),
        (wav(np.full((800, 1), np.nan, np.float32)), "NaN or infinity"),
        ((RATE, np.ones(99)), r"\(rate, samples\) with rate 16000: give \(samples, rate\)"),
        ((np.ones(99), 0), "rate 0 Hz: give 1000 to 768000"),
        ((np.ones(99), -8_000), "rate -8000 Hz"),
        ((np.ones(99), 10**9), "rate 1000000000 Hz"),
        ((np.ones(99), 44_100.5), "44100.5 is no integer"),
        ((np.ones(99), "8k"), "'8k' is no integer"),
        (
            encoded(sine(8_000)[None], 8_000).replace((8_000).to_bytes(4, "little"), b"\xff\xff\xff\x3b", 1),
            "Hz: give",
        ),
        (np.ones(99), r"type ndarray: give a path, the bytes of a file, or \(samples, rate\)"),
        (None, "type NoneType"),
        ((np.ones(99), RATE, 2), "type tuple"),
    ],
)
def test_what_is_no_audio_is_one_clear_error(audio: Audio, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MediaError, match=message):
        decode(audio, RATE)
    assert capfd.readouterr() == ("", "")


def test_the_wanted_rate_is_checked() -> None:
    with pytest.raises(MediaError, match="rate 0 Hz"):
        decode((sine(RATE), RATE), 0)


@pytest.mark.parametrize("as_file", [True, False])
def test_channels_are_decoded_one_by_one(as_file: bool) -> None:
    both = np.stack([sine(RATE), sine(RATE, hertz=900.0)])
    audio: Audio = encoded(both, RATE) if as_file else (both.T, RATE)
    assert channels(audio) == 2
    for index in range(2):
        np.testing.assert_allclose(decode(Channel(audio, index), RATE), both[index], atol=1e-4)
    assert channels((sine(RATE), RATE)) == 1


def test_channels_that_cannot_be_told_are_refused() -> None:
    with pytest.raises(MediaError, match="17 channels, and at most 16"):
        channels((np.zeros((MOST_CHANNELS + 1, 1000), np.float32), RATE))
    with pytest.raises(MediaError, match="has 65 channels, and FFmpeg resamples at most 64"):
        channels(wav(np.zeros((800, 65), np.int16)))
    with pytest.raises(MediaError, match="cannot read audio of 5 bytes"):
        channels(b"noise")
    with pytest.raises(MediaError, match="channel 2 of audio of 5 bytes"):
        decode(Channel(b"noise", 1), RATE)


@pytest.mark.parametrize("count", [6, 8, 17, 64])
@pytest.mark.parametrize("rate", [RATE, 48_000])
def test_files_have_any_number_of_channels(count: int, rate: int) -> None:
    sound = np.stack([sine(rate, hertz=100.0 * (index % 9 + 1)) for index in range(count)])
    clip = wav((sound.T * 2**15).astype(np.int16), rate)
    expected = np.stack([sine(RATE, hertz=100.0 * (index % 9 + 1)) for index in range(count)])
    np.testing.assert_allclose(decode(clip, RATE)[99:-99], expected.mean(axis=0)[99:-99], atol=1e-3)
    np.testing.assert_allclose(decode(Channel(clip, count - 1), RATE)[99:-99], expected[-1][99:-99], atol=1e-3)


def test_the_channels_of_surround_sound_are_its_own() -> None:
    """A codec that makes planes, of which PyAV sees no more than eight."""
    sound = np.stack([sine(RATE, hertz=100.0 * (index + 1)) for index in range(8)])
    clip = encoded(sound, RATE, "flac")
    for index in range(channels(clip)):
        np.testing.assert_allclose(decode(Channel(clip, index), RATE), sound[index], atol=1e-4)
