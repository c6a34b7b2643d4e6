"""Training of general operators on a user's data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor

from training.data.own_samples import OwnSamples
from training.evaluation.timing import processor
from training.examples import MOST, Tensors
from training.fit.order import Order, Rows
from training.fit.task import Metric, Task
from training.fit.workload import Scope, ScopeError, Workload
from training.losses import relative_l2
from training.operators import Operator, build
from training.problems import symmetries
from training.problems.own.from_file import describe
from training.problems.problem import Problem
from training.recipes.own import OwnFit, OwnRecipe
from training.recipes.recipe import RecipeError

BATCH = 16  # samples of a batch that is only measured
