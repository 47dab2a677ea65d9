"""What the tests of the linear lens share: the penalised least squares once more, by another way."""

import numpy as np
import torch

from analyses._maps import relative_ridge
from analyses.linear_lens import TEXT as FILE

TEXT = FILE.read_text("utf-8")


def files(folder):
    return [f for f in folder.rglob("*") if f.is_file()]


def rows(n, width, seed):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed))


def ridge(x, y):
    """The same minimum by least squares on rows of data and rows of penalty, in numpy, without sums of products."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    mean_x, mean_y, width = x.mean(0), y.mean(0), x.shape[1]
    x, y = x - mean_x, y - mean_y
    penalty = np.sqrt(relative_ridge(len(x)) * (x**2).sum() / width)
    weight = np.linalg.lstsq(
        np.vstack([x, penalty * np.eye(width)]), np.vstack([y, penalty * np.eye(width)]), rcond=None
    )[0]
    return weight, mean_y - mean_x @ weight
