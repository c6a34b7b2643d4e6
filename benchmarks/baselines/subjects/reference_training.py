"""A short run of the published implementation's own training: its data set, network, losses, loop and saved file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from galerkin_transformer.ft import BurgersDataset, WeightedL2Loss
from galerkin_transformer.model import SimpleTransformer
from galerkin_transformer.utils_ft import run_train, train_batch_burgers, validate_epoch_burgers
from torch.nn import functional
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader

from benchmarks.baselines import published
from benchmarks.baselines.subjects.reference import without_dropout

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 1127802
MESH = 8192
WEIGHTS, RESULT = "model.pt", "result.pkl"


class Training:
    """The Burgers example, `examples/ex1_burgers.py` of the package, on few samples.

    Args:
        samples: A MATLAB file of the published layout; the training samples come first, the test samples last.
        folder: Where the package saves its state dict, `WEIGHTS`, and its result.
        attention: The type of attention.
        train: Training samples.
        test: Test samples.
        points: Points of a field.
        epochs: Passes over the training samples.
        batch: Samples of a step.
    """

    def __init__(
        self, samples: str, folder: str, attention: str, train: int, test: int, points: int, epochs: int, batch: int
    ) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(SEED)
        common: dict[str, Any] = {"subsample": MESH // points, "data_path": samples}
        fitted = BurgersDataset(train_data=True, train_portion=train, valid_portion=test, **common)
        self.held = BurgersDataset(train_data=False, train_portion=train, valid_portion=test, **common)
        self.loader = DataLoader(fitted, batch_size=batch, shuffle=True, drop_last=True)
        self.folder, self.epochs, self.h = Path(folder), epochs, 1 / points
        torch.manual_seed(SEED)
        self.model = SimpleTransformer(**published.burgers(attention))
        self.facts = {
            "parameters": sum(each.numel() for each in self.model.parameters()),
            "steps": epochs * len(self.loader),
        }

    def step(self) -> None:
        """Train with the example's optimiser, schedule and losses; the package saves the best epoch."""
        optimiser = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        schedule = OneCycleLR(
            optimiser,
            max_lr=1e-3,
            div_factor=1e4,
            pct_start=0.2,
            final_div_factor=1e4,
            steps_per_epoch=len(self.loader),
            epochs=self.epochs,
        )
        run_train(
            self.model,
            WeightedL2Loss(regularizer=True, h=self.h, gamma=0.1),
            WeightedL2Loss(regularizer=False, h=self.h),
            self.loader,
            DataLoader(self.held, batch_size=4),
            optimiser,
            schedule,
            train_batch=train_batch_burgers,
            validate_epoch=validate_epoch_burgers,
            epochs=self.epochs,
            patience=None,
            tqdm_mode="epoch",
            model_save_path=str(self.folder),
            model_name=WEIGHTS,
            result_name=RESULT,
            device="cpu",
        )

    def write_output(self, file: str) -> None:
        """Write the saved network's outputs [2, test sample, point]: as the package computes them, and without dropout.

        The package never switches off its attention's dropout.
        """
        self.model.load_state_dict(torch.load(self.folder / WEIGHTS, weights_only=True))
        self.model.eval()
        noisy, drop = self.predicted(), functional.dropout
        functional.dropout = without_dropout  # type: ignore[assignment]
        np.save(file, np.stack([noisy, self.predicted()]))
        functional.dropout = drop

    @torch.inference_mode()
    def predicted(self) -> NDArray[np.float32]:
        """Return the outputs [test sample, point]."""
        batches = DataLoader(self.held, batch_size=20)
        found = [self.model(each["node"], each["edge"], each["pos"], each["grid"])["preds"] for each in batches]
        outputs: NDArray[np.float32] = torch.cat(found)[..., 0].numpy()
        return outputs
