"""The LSTM's own forward and backward pass: exact, cheap, and the same under vmap and autocast."""

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from fedmux.tasks.char_lstm import CharLstm, LstmLayer, Recurrence
from fedmux.tasks.losses import cross_entropy

torch.set_num_threads(1)

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


class Calls(TorchDispatchMode):
    """Counts the operations that run."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def weighted(states: Tensor) -> Tensor:
    """A loss in which every state counts differently."""
    factors = torch.linspace(-1, 1, states.numel(), dtype=states.dtype, device=states.device)
    return (states * factors.view(states.shape)).sum()


@pytest.fixture(params=["by_steps", "fused"])
def way(request, monkeypatch) -> None:
    """Both ways on a CPU, where one client alone would only take the second."""
    monkeypatch.setattr(LstmLayer, "forward", getattr(LstmLayer, request.param))


@pytest.fixture
def by_steps(monkeypatch) -> None:
    monkeypatch.setattr(LstmLayer, "forward", LstmLayer.by_steps)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("batch", "length"), [(5, 12), (1, 7), (4, 1), (1, 1)])
def test_states_and_gradients_equal_torchs(batch: int, length: int, layers: int, device: str) -> None:
    torch.manual_seed(0)
    ours = nn.Sequential(*(LstmLayer(16 if layer else 6, 16) for layer in range(layers))).to(device).double()
    torchs = nn.LSTM(6, 16, num_layers=layers, batch_first=True, device=device, dtype=torch.float64)
    names = {"input_weight": "weight_ih", "hidden_weight": "weight_hh", "bias": "bias_ih"}
    pairs = [
        (parameter, getattr(torchs, f"{names[name]}_l{number}"))
        for number, layer in enumerate(ours)
        for name, parameter in layer.named_parameters()
    ]
    with torch.no_grad():
        for mine, theirs in pairs:
            theirs.copy_(mine)
        for number in range(layers):
            getattr(torchs, f"bias_hh_l{number}").zero_()
    x = torch.randn(batch, length, 6, dtype=torch.float64, device=device)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    states = ours(inputs[0]), torchs(inputs[1])[0]
    torch.testing.assert_close(*states)
    for each in states:
        weighted(each).backward()
    for mine, theirs in [*pairs, tuple(inputs)]:
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_gradcheck() -> None:
    torch.manual_seed(0)
    shapes = (2, 3, 2, 12), (2, 12), (2, 12, 3)  # products, biases, weights
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    torch.autograd.gradcheck(lambda *t: Recurrence.apply(*t)[0], tensors)


def test_vmap_over_some_of_the_weights_only_and_over_weights_and_data() -> None:
    torch.manual_seed(0)
    layer = LstmLayer(4, 6).double()
    weights = {name: value.detach() for name, value in layer.named_parameters()}
    x, hidden = torch.randn(3, 2, 5, 4, dtype=torch.float64), torch.randn(4, 24, 6, dtype=torch.float64)

    def gradients(hidden: Tensor, x: Tensor) -> dict[str, Tensor]:
        return grad(lambda w: weighted(functional_call(layer, w, (x,))))({**weights, "hidden_weight": hidden})

    shared = vmap(gradients, in_dims=(0, None))(hidden, x[0])
    nested = vmap(vmap(gradients, in_dims=(0, None)), in_dims=(None, 0), out_dims=1)(hidden, x)
    for client in range(4):
        for point in range(3):
            for name, value in gradients(hidden[client], x[point]).items():
                torch.testing.assert_close(nested[name][client, point], value)
                if not point:
                    torch.testing.assert_close(shared[name][client], value)


def relative(value: Tensor, wanted: Tensor) -> float:
    return float((value.detach() - wanted.detach()).norm() / wanted.norm().detach())


@pytest.mark.parametrize("device", DEVICES)
def test_autocast_is_near_float32_alone_and_stacked(device: str) -> None:
    torch.manual_seed(0)
    modules = [CharLstm(hidden=32).to(device) for _ in range(3)]
    x, y = torch.randint(80, (3, 4, 80), device=device), torch.randint(80, (3, 4), device=device)
    stacked = {name: value.detach() for name, value in stack_module_state(modules)[0].items()}

    def loss(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(functional_call(modules[0], weights, (inputs,)).float(), targets).mean()

    exact = vmap(grad(loss))(stacked, x, y)
    with torch.autocast(device, torch.bfloat16, cache_enabled=False):
        half = vmap(grad(loss))(stacked, x, y)
        outputs = [module(tokens) for module, tokens in zip(modules, x)]
    for index, module in enumerate(modules):
        assert outputs[index].dtype == torch.bfloat16
        assert relative(outputs[index].float(), module(x[index])) < 0.02
        cross_entropy(outputs[index].float(), y[index]).mean().backward()
        for name, parameter in module.named_parameters():
            assert half[name].dtype == torch.float32 and parameter.grad is not None
            assert relative(half[name][index], exact[name][index]) < 0.05, name
            assert relative(parameter.grad, exact[name][index]) < 0.05, name


@pytest.mark.usefixtures("by_steps")
def test_only_what_depends_on_the_step_before_is_computed_step_by_step() -> None:
    layer, seen = LstmLayer(4, 8), {}
    for half in (False, True):
        for length in (10, 30):
            with torch.autocast("cpu", torch.bfloat16, enabled=half, cache_enabled=False), Calls() as calls:
                weighted(layer(torch.randn(2, length, 4))).backward()
            seen[half, length] = calls.counts
    assert seen[False, 30]["bmm"] == 29 + 1  # forward, and the weights' gradient
    assert seen[False, 30]["baddbmm"] == 29
    assert seen[True, 30]["bmm"] == 2 * 29 + 1
    assert seen[False, 30]["_to_copy"] == seen[False, 10]["_to_copy"]
    # In half precision a step casts its state, its product and its gradient, and no weights.
    assert seen[True, 30]["_to_copy"] - seen[True, 10]["_to_copy"] == 3 * 20


@pytest.mark.usefixtures("way")
def test_without_gradients_and_copied() -> None:
    torch.manual_seed(0)
    module, tokens = CharLstm(hidden=8), torch.randint(80, (3, 9))
    wanted = module(tokens)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            torch.testing.assert_close(copy.deepcopy(module)(tokens), wanted.detach())
    expected = [f"lstm.{n}.{name}" for n in (0, 1) for name in ("input_weight", "hidden_weight", "bias")]
    assert list(module.state_dict())[1:-2] == expected


@pytest.mark.usefixtures("by_steps")
def test_operations_are_counted() -> None:
    layer = LstmLayer(4, 8)
    with FlopCounterMode(display=False) as counter:
        states = layer(torch.randn(2, 10, 4))
        forward = counter.get_total_flops()
        states.sum().backward()
    assert forward == 2 * 2 * 32 * (10 * 4 + 9 * 8)
    # Backward: the inputs' weights (the inputs themselves need no gradient), the states, the states' weights.
    assert counter.get_total_flops() - forward == 2 * 2 * 32 * (10 * 4 + 2 * 9 * 8)
