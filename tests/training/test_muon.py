"""Muon: orthogonal steps of matrices, beside PyTorch's own optimisers."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from training.optimisation import Muon, as_matrices, as_real, orthogonal

RATE, DECAY = 0.02, 0.1


def trained(network: nn.Module, optimiser: torch.optim.Optimizer, targets: Tensor, steps: int = 5) -> nn.Module:
    """Make some steps towards fixed values of all parameters."""
    for _ in range(steps):
        optimiser.zero_grad()
        flat = torch.cat([each.flatten() for each in network.parameters()])
        ((flat - targets) ** 4).sum().backward()
        optimiser.step()
    return network


@pytest.mark.parametrize("shape", [(1, 8, 8), (6, 8, 20), (6, 20, 8)])
def test_steps_have_the_directions_of_a_matrix_and_equal_sizes_along_them(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    left, _, right = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    values = torch.logspace(0, -2, 8)
    stack = left * values @ right
    found = left.mT @ orthogonal(stack) @ right.mT
    sizes = found.diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(found, torch.diag_embed(sizes), atol=1e-4, rtol=0)
    assert 0.6 < sizes.min() < sizes.max() < 1.3
    torch.testing.assert_close(orthogonal(stack[:1]), orthogonal(stack)[:1])
    torch.testing.assert_close(orthogonal(1e-3 * stack), orthogonal(stack), atol=1e-3, rtol=0)


def test_matrices_move_as_with_torch_muon_and_vectors_as_with_adamw() -> None:
    """PyTorch's Muon multiplies in half precision, which changes its steps by up to two per cent."""
    torch.manual_seed(0)
    ours = nn.Linear(12, 20)
    library = nn.Linear(12, 20)
    library.load_state_dict(ours.state_dict())
    targets, before = torch.randn(12 * 20 + 20), ours.weight.detach().clone()
    trained(ours, Muon(ours, RATE, DECAY), targets)
    matrix, vector = nn.ParameterList([library.weight]), nn.ParameterList([library.bias])
    muon = torch.optim.Muon(matrix.parameters(), RATE, DECAY, adjust_lr_fn="match_rms_adamw")
    trained(matrix, muon, targets[: 12 * 20])
    trained(vector, torch.optim.AdamW(vector.parameters(), RATE, weight_decay=DECAY), targets[12 * 20 :])
    torch.testing.assert_close(ours.bias, library.bias, atol=1e-6, rtol=0)
    moved = (ours.weight - before).norm()
    assert (ours.weight - library.weight).norm() < 0.02 * moved
    assert moved > 0.5 * RATE


def test_a_kernel_is_one_matrix_and_each_wave_of_a_spectral_layer_one_of_its_own() -> None:
    torch.manual_seed(0)
    kernel, linear = nn.Conv2d(3, 8, 3, bias=False), nn.Linear(27, 8, bias=False)
    linear.weight.data = kernel.weight.detach().flatten(1).clone()
    targets = torch.randn(8 * 27)
    for network in (kernel, linear):
        trained(network, Muon(network, RATE), targets)
    torch.testing.assert_close(kernel.weight.flatten(1), linear.weight)
    layer = nn.ParameterList([torch.randn(5, 4, 8)])
    waves = nn.ParameterList([each.clone() for each in layer[0].detach()])
    targets = torch.randn(5 * 4 * 8)
    for network in (layer, waves):
        trained(network, Muon(network, RATE), targets)
    torch.testing.assert_close(layer[0], torch.stack([*waves]))


def test_complex_weights_of_other_projects_move_as_with_adamw() -> None:
    torch.manual_seed(0)
    ours = nn.ParameterList([torch.randn(3, 4, 5, dtype=torch.complex64)])
    library = nn.ParameterList([torch.view_as_real(ours[0].detach()).clone()])
    optimisers = Muon(ours, RATE, DECAY), torch.optim.AdamW(library.parameters(), RATE, weight_decay=DECAY)
    for _ in range(5):
        for network, optimiser in zip((ours, library), optimisers, strict=True):
            optimiser.zero_grad()
            (as_real(network[0]) ** 2).sum(dim=-1).pow(2).sum().backward()
            optimiser.step()
    torch.testing.assert_close(torch.view_as_real(ours[0]), library[0])


def test_parameters_without_gradients_stay() -> None:
    network = nn.ModuleDict({"used": nn.Linear(3, 3), "unused": nn.Linear(3, 3)})
    before = {name: each.clone() for name, each in network.state_dict().items()}
    network["used"](torch.ones(1, 3)).square().sum().backward()
    Muon(network, RATE, DECAY).step()
    for name, each in network.state_dict().items():
        assert torch.equal(each, before[name]) == name.startswith("unused"), name


def test_a_state_continues_where_it_was_saved() -> None:
    torch.manual_seed(0)
    whole = nn.Sequential(nn.Linear(4, 6), nn.Conv1d(1, 4, 3))
    halves = copy.deepcopy(whole)
    targets = torch.randn(sum(each.numel() for each in whole.parameters()))
    trained(whole, Muon(whole, RATE, DECAY), targets, 6)
    first, second = Muon(halves, RATE, DECAY), Muon(halves, RATE / 2)
    trained(halves, first, targets, 3)
    second.load_state_dict(first.state_dict())
    trained(halves, second, targets, 3)
    for each, other in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(each, other)


def test_a_saved_state_is_taken_to_the_device_of_its_parameters() -> None:
    """The device that has shapes alone stands for a GPU; a state comes from the processor, as that of a resumed run."""
    network = nn.Linear(4, 6)
    optimiser, elsewhere = Muon(network, RATE), copy.deepcopy(network).to("meta")
    trained(network, optimiser, torch.randn(30))
    other = Muon(elsewhere, RATE)
    other.load_state_dict(optimiser.state_dict())
    found = {name: tensor.device.type for state in other.state.values() for name, tensor in state.items()}
    assert found == dict.fromkeys(("momentum", "step", "mean", "square"), "meta")


def test_a_copy_steps_as_the_original() -> None:
    """Copies of optimisers, as ensembles and backups make them, keep which parameters are kernels."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv1d(2, 6, 3), nn.Linear(5, 5))
    targets = torch.randn(sum(each.numel() for each in network.parameters()))
    optimiser = Muon(network, RATE, DECAY)
    trained(network, optimiser, targets)
    copies = [copy.deepcopy((network, optimiser)), pickle.loads(pickle.dumps((network, optimiser)))]  # noqa: S301
    trained(network, optimiser, targets)
    for other, its_optimiser in copies:
        trained(other, its_optimiser, targets)
        for one, another in zip(network.parameters(), other.parameters(), strict=True):
            assert torch.equal(one, another)


@pytest.mark.usefixtures("unchecked")
def test_what_has_no_steps_is_refused() -> None:
    network = nn.Linear(3, 4)
    with pytest.raises(TypeError, match="expected a network but got list"):
        Muon([*network.parameters()], RATE)  # type: ignore[arg-type]
    for rates in ((-RATE, 0.0), (RATE, -DECAY)):
        with pytest.raises(ValueError, match="expected no negative rate but got lr="):
            Muon(network, *rates)
    with pytest.raises(ValueError, match="expected the parameters of one network"):
        Muon(network, RATE).add_param_group({"params": [nn.Parameter(torch.ones(3, 4))]})
    assert as_matrices(torch.ones(0, 3, 4), kernel=False) == (0, 3, 4)
