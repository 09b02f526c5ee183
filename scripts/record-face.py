#!/usr/bin/env python3
"""Draws ten seconds of a talking head, as a camera sees it, for scripts/record-pictures.mjs.

  scripts/record-face.py WIDTH HEIGHT FILE.y4m

The face is the public-domain portrait that scikit-image brings along (NASA, astronaut.png). It moves, blinks and
speaks before a textured wall, and each frame has the noise of a sensor. The file is a loop at 30 frames a second. It is
used while recording and is not kept.
"""

import sys

import numpy as np
from skimage import data
from skimage.transform import resize, rotate

FRAMES = 300
PER_SECOND = 30
#: Standard deviation of the noise, of 255: a camera of a laptop indoors.
NOISE = 2.5
#: Where the portrait has its eyes and its mouth: centre (row, column) and half sizes.
EYES = [(103, 209, 7, 13), (103, 247, 7, 12)]
MOUTH = (149, 225, 7, 17)


def wall(width, height, random):
    """A wall with shelves: edges, colours and a fine grain that stand still."""
    picture = np.full((height, width, 3), 150.0)
    for row in range(0, height, height // 5):
        column = 0
        while column < width:
            thick = int(random.integers(width // 90, width // 28))
            tall = int(height / 5 * random.uniform(0.55, 0.9))
            top = row + height // 5 - tall
            picture[top : row + height // 5 - 6, column : column + thick] = random.uniform(30, 210, 3)
            column += thick + int(random.integers(0, 4))
    grain = random.normal(0, 6, (height, width, 1))
    return picture + grain


def speaking(portrait, second):
    """The portrait with its eyes and mouth at a moment."""
    face = portrait.copy()
    # A blink of 150 ms, every two and a half seconds.
    if second % 2.5 < 0.15:
        for row, column, tall, wide in EYES:
            lid = portrait[row - 3 * tall : row - 2 * tall, column - wide : column + wide].mean(axis=0)
            face[row - tall : row + tall, column - wide : column + wide] = lid[None]
    opened = max(0.0, np.sin(2 * np.pi * second * 2.3) * np.sin(2 * np.pi * second * 0.7))
    row, column, tall, wide = MOUTH
    gap = int(round(tall * opened))
    if gap:
        dark = portrait[row - gap // 2 : row + gap // 2 + 1, column - wide : column + wide] * 0.35
        face[row - gap // 2 : row + gap // 2 + 1, column - wide : column + wide] = dark
        lips = portrait[row + 1 : row + 2 * tall, column - wide : column + wide]
        face[row + 1 + gap : row + 2 * tall + gap, column - wide : column + wide] = lips
    return face


def planes(picture):
    """Y, U and V of an RGB picture (BT.601, limited range), as bytes."""
    red, green, blue = picture[..., 0], picture[..., 1], picture[..., 2]
    luma = 16 + 0.257 * red + 0.504 * green + 0.098 * blue
    halved = picture.reshape(picture.shape[0] // 2, 2, picture.shape[1] // 2, 2, 3).mean(axis=(1, 3))
    red, green, blue = halved[..., 0], halved[..., 1], halved[..., 2]
    first = 128 - 0.148 * red - 0.291 * green + 0.439 * blue
    second = 128 + 0.439 * red - 0.368 * green - 0.071 * blue
    return [np.clip(plane, 0, 255).astype(np.uint8) for plane in (luma, first, second)]


def main():
    width, height, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    random = np.random.default_rng(7)
    behind = wall(width, height, random).astype(np.float32)
    portrait = data.astronaut().astype(np.float32)
    side = int(height * 1.1) // 2 * 2
    rows, columns = np.mgrid[0:side, 0:side] / side
    # Head and shoulders, soft at the edge.
    far = np.minimum(
        ((rows - 0.28) / 0.33) ** 2 + ((columns - 0.44) / 0.24) ** 2,
        ((rows - 0.95) / 0.52) ** 2 + ((columns - 0.47) / 0.46) ** 2,
    )
    mask = np.clip((1.0 - far) * 12, 0, 1)[..., None].astype(np.float32)
    noise = [random.normal(0, NOISE, (height, width, 1)).astype(np.float32) for _ in range(8)]
    with open(path, "wb") as file:
        file.write(f"YUV4MPEG2 W{width} H{height} F{PER_SECOND}:1 Ip A1:1 C420jpeg\n".encode())
        for frame in range(FRAMES):
            second = frame / PER_SECOND
            turn = 2 * np.pi * second / 10
            face = resize(speaking(portrait, second), (side, side), order=1, preserve_range=True)
            tilt = 1.6 * np.sin(3 * turn)
            face = rotate(face.astype(np.float32), tilt, order=1, mode="edge", preserve_range=True)
            left = int((width - side) / 2 + 0.02 * width * np.sin(2 * turn) + 0.006 * width * np.sin(7 * turn))
            top = int(height * 0.03 + 0.012 * height * np.sin(5 * turn))
            picture = behind.copy()
            tall = min(side, height - top)
            part = picture[top : top + tall, left : left + side]
            part += mask[:tall] * (face[:tall] - part)
            grain = np.roll(noise[frame % 8], (int(random.integers(height)), int(random.integers(width))), (0, 1))
            file.write(b"FRAME\n")
            for plane in planes(picture + grain):
                file.write(plane.tobytes())


if __name__ == "__main__":
    main()
