"""Movies of trajectories, a picture per frame with one scale for all frames. They need the extra `[movie]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from petrov_client._values.arrays import Fields
    from petrov_client._values.models import ModelInfo

SUFFIX = ".mp4"
FRAMES_PER_SECOND = 12
SIDE, DOTS = 4.0, 120  # inches of a picture, and dots per inch


def check() -> None:
    """Check that movies can be written, before the computation begins.

    Raises:
        ValueError: A library is not installed.
    """
    try:
        import imageio_ffmpeg  # noqa: F401, PLC0415  optional
        import matplotlib.figure  # noqa: F401, PLC0415  optional
    except ModuleNotFoundError as error:
        raise ValueError(".mp4 files need two libraries: pip install matplotlib imageio-ffmpeg") from error


def write(path: Path, outputs: Mapping[str, Fields], info: ModelInfo) -> None:
    """Write the trajectories of one sample; a vector field as one picture per component.

    Args:
        path: The file.
        outputs: `[frame, (component), *grid]` or `[1, frame, (component), *grid]` by name.
        info: The model, of one or two axes.

    Raises:
        ValueError: There are several samples, or three axes.
        OSError: The file cannot be written.
    """
    import imageio_ffmpeg  # noqa: PLC0415  optional

    shown = channels(outputs, info)
    pictures = Pictures(shown, info)
    size = pictures.image(0).shape[1::-1]
    writer = imageio_ffmpeg.write_frames(str(path), size, fps=FRAMES_PER_SECOND, macro_block_size=2)
    try:
        writer.send(None)
        for index in range(len(next(iter(shown.values())))):
            writer.send(np.ascontiguousarray(pictures.image(index)))
    finally:
        writer.close()


def channels(outputs: Mapping[str, Fields], info: ModelInfo) -> dict[str, Fields]:
    """Return scalar fields `[frame, *grid]` by title.

    Raises:
        ValueError: There are several samples, or three axes.
    """
    axes = len(info.grid.axes) if info.grid else 0
    found: dict[str, Fields] = {}
    for tensor in info.outputs:
        array, components = outputs[tensor.name], len(tensor.components)
        rank = 1 + axes + bool(components)
        if array.ndim > rank and len(array) != 1:
            raise ValueError(f"a movie shows one sample, and there are {len(array)}: choose another suffix")
        single = array[0] if array.ndim > rank else array
        parts = {f" {name}": single[:, number] for number, name in enumerate(tensor.components)} or {"": single}
        found |= {f"{tensor.name}{name}": part for name, part in parts.items()}
    if axes not in {1, 2}:
        raise ValueError(f"a movie shows one or two axes, and there are {axes}: choose another suffix")
    return found


class Pictures:
    """The pictures of all frames: a figure that changes.

    Args:
        shown: Scalar fields `[frame, *grid]` by title.
        info: The model.
    """

    def __init__(self, shown: Mapping[str, Fields], info: ModelInfo) -> None:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  optional, half a second
        from matplotlib.figure import Figure  # noqa: PLC0415  as above

        self._shown, self._info = shown, info
        figure = Figure(figsize=(SIDE * len(shown), SIDE), dpi=DOTS, layout="constrained")
        self._canvas: Any = FigureCanvasAgg(figure)
        self._title = figure.suptitle(" ")
        places = figure.subplots(1, len(shown), squeeze=False)[0]
        self._drawn = [self._draw(place, title) for place, title in zip(places, shown, strict=True)]

    def image(self, index: int) -> Any:
        """Return the picture of a frame, bytes `[row, column, 3]` of even sides."""
        step = self._info.frames.step if self._info.frames else 1.0
        self._title.set_text(f"{self._info.name}, time {step * (index + 1):g}")
        for drawn, field in zip(self._drawn, self._shown.values(), strict=True):
            if field.ndim == 2:
                drawn.set_ydata(field[index])
            else:
                drawn.set_data(field[index])
        self._canvas.draw()
        picture = np.asarray(self._canvas.buffer_rgba())[..., :3]
        rows, columns = (side - side % 2 for side in picture.shape[:2])
        return picture[:rows, :columns]

    def _draw(self, place: Any, title: str) -> Any:
        field, names = self._shown[title], self._info.grid.axes if self._info.grid else ()
        low, high = float(np.nanmin(field)), float(np.nanmax(field))
        place.set_title(title)
        place.set_xlabel(names[-1])
        if field.ndim == 2:
            room = 0.05 * (high - low or 1.0)
            place.set_ylim(low - room, high + room)
            return place.plot(field[0])[0]
        place.set_ylabel(names[-2])
        drawn = place.imshow(field[0], vmin=low, vmax=high, cmap="inferno")
        place.figure.colorbar(drawn, ax=place)
        return drawn
