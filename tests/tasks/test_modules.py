"""Our modules: shapes, parameter counts, and that clients' copies can be trained side by side with vmap."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, stack_module_state, vmap

from fedmux.tasks import build
from fedmux.tasks.char_lstm import CharLstm, LstmLayer
from fedmux.tasks.cnn import Cnn, CnnSmall
from fedmux.tasks.losses import cross_entropy
from fedmux.tasks.mlp import Mlp
from fedmux.tasks.registry import MODULES
from fedmux.tasks.resnet import ResNet18
from refusals import refused

torch.set_num_threads(1)

# Of each registered name: input shape, outputs and options of a module small enough for a test.
SMALL: dict[str, tuple[tuple[int, ...], int, dict[str, object]]] = {
    "cnn": ((1, 8, 8), 10, {}),
    "cnn-small": ((3, 9, 12), 7, {"kernel_size": 5}),
    "mlp": ((2, 3), 4, {"hidden": [5, 6]}),
    "resnet18": ((3, 8, 8), 10, {"width": 8}),
    "char-lstm": ((6,), 20, {"hidden": 16}),
}


def small(name: str) -> nn.Module:
    shape, outputs, options = SMALL[name]
    return build(name, input_shape=shape, outputs=outputs, options=options)


def points(name: str, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    shape, outputs, _ = SMALL[name]
    tokens = torch.randint(outputs, (batch, *shape))
    inputs = tokens if name == "char-lstm" else torch.randn(batch, *shape)
    return inputs, torch.randint(outputs, (batch,))


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def assert_vmap_of_gradients_equals_the_loop(
    modules: list[nn.Module], x: torch.Tensor, y: torch.Tensor
) -> None:
    """x and y: one batch per module."""
    # In float64: normalising few values amplifies rounding, which is not what is asked here.
    modules = [module.double() for module in modules]
    x = x.double() if x.is_floating_point() else x
    stacked, _ = stack_module_state(modules)

    def loss(weights: dict[str, torch.Tensor], inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(functional_call(modules[0], weights, (inputs,)), targets).mean()

    together = vmap(grad(loss))({name: value.detach() for name, value in stacked.items()}, x, y)
    for index, module in enumerate(modules):
        weights = {name: value.detach() for name, value in module.named_parameters()}
        for name, value in grad(loss)(weights, x[index], y[index]).items():
            torch.testing.assert_close(together[name][index], value)


def test_every_registered_module_is_tried_here() -> None:
    assert set(SMALL) == set(MODULES)


@pytest.mark.parametrize("name", SMALL)
def test_outputs_have_one_row_per_point(name: str) -> None:
    assert small(name)(points(name, 3)[0]).shape == (3, SMALL[name][1])


@pytest.mark.parametrize("name", SMALL)
def test_no_module_keeps_buffers_or_batch_statistics(name: str) -> None:
    module = small(name).train()
    assert not list(module.buffers())
    x, _ = points(name, 4)
    torch.testing.assert_close(module(x)[:2], module(x[:2]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_two_parameter_sets_side_by_side_give_the_gradients_of_the_loop(name: str) -> None:
    torch.manual_seed(0)
    batches = [points(name, 3) for _ in range(2)]
    assert_vmap_of_gradients_equals_the_loop(
        [small(name) for _ in range(2)],
        torch.stack([x for x, _ in batches]),
        torch.stack([y for _, y in batches]),
    )


@pytest.mark.parametrize("name", SMALL)
def test_the_same_torch_seed_gives_the_same_initial_weights(name: str) -> None:
    torch.manual_seed(3)
    first = small(name).state_dict()
    torch.manual_seed(3)
    for key, value in small(name).state_dict().items():
        assert torch.equal(value, first[key])


@pytest.mark.parametrize(
    ("module", "count"),
    [
        (Cnn(1, 28, 28, 10), 1_630_090),
        (Cnn(3, 32, 32, 10), 2_122_186),
        (Cnn(1, 28, 28, 10, kernel_size=5), 1_663_370),
        (CnnSmall(1, 28, 28, 10), 52_138),
        (Mlp(784, 10), 50_890),
        (Mlp(4, 3, hidden=()), 15),
        (ResNet18(3, 10), 11_172_170),
        (CharLstm(), 817_872),
    ],
)
def test_parameter_counts_are_those_of_the_architectures(module: nn.Module, count: int) -> None:
    assert parameters(module) == count


def textbook(module: Cnn) -> nn.Sequential:
    """The same weights, each ReLU before its pooling, images in the format they come in."""
    layers = list(module.layers)
    layers[1], layers[2], layers[4], layers[5] = layers[2], layers[1], layers[5], layers[4]
    assert [type(layer) for layer in layers[:6]] == 2 * [nn.Conv2d, nn.ReLU, nn.MaxPool2d]
    return nn.Sequential(*layers)


@pytest.mark.parametrize("shape", [(1, 28, 28), (1, 9, 13), (3, 9, 12), (3, 32, 32)], ids=str)
def test_the_cnn_equals_the_textbook_form_in_values_and_gradients(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = Cnn(*shape, 10, kernel_size=5).double()
    x, y = torch.randn(4, *shape, dtype=torch.float64), torch.randint(10, (4,))
    x[0, 0, :2, :2] = 0.5  # ties inside a pooling window
    weights = list(module.parameters())
    ours, plain = module(x), textbook(module)(x)
    torch.testing.assert_close(ours, plain)
    for mine, wanted in zip(
        torch.autograd.grad(cross_entropy(ours, y).mean(), weights),
        torch.autograd.grad(cross_entropy(plain, y).mean(), weights),
    ):
        torch.testing.assert_close(mine, wanted)


@pytest.mark.parametrize("shape", [(1, 9, 13), (3, 8, 11)], ids=str)
def test_three_cnns_side_by_side_equal_the_loop_on_odd_sizes(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    modules: list[nn.Module] = [CnnSmall(*shape, 5) for _ in range(3)]
    x, y = torch.randn(3, 4, *shape), torch.randint(5, (3, 4))
    assert_vmap_of_gradients_equals_the_loop(modules, x, y)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_cnn_computes_channels_last_on_a_cpu(channels: int) -> None:
    module = CnnSmall(channels, 8, 8, 5)
    seen: list[torch.Tensor] = []
    module.layers[0].register_forward_hook(lambda layer, given, output: seen.append(output))
    module(torch.randn(4, channels, 8, 8))
    assert seen[0].stride(1) == 1


def test_the_names_of_the_cnn_s_weights() -> None:
    layers = ("layers.0", "layers.3", "layers.7", "layers.9")
    assert list(Cnn(1, 8, 8, 10).state_dict()) == [f"{a}.{b}" for a in layers for b in ("weight", "bias")]


def test_an_mlp_without_hidden_layers_is_linear() -> None:
    module = Mlp(4, 3, hidden=())
    x, y = torch.randn(2, 4), torch.randn(2, 4)
    torch.testing.assert_close(module(x + y) + module(torch.zeros(2, 4)), module(x) + module(y))


@pytest.mark.parametrize(("width", "groups"), [(64, 32), (32, 16), (8, 4), (6, 1), (5, 1), (1, 1)])
def test_the_default_number_of_groups_fits_every_width(width: int, groups: int) -> None:
    module = ResNet18(1, 2, width=width)
    assert module.blocks[0].norm1.num_groups == groups  # type: ignore[union-attr]
    assert module(torch.randn(1, 1, 8, 8)).shape == (1, 2)


def test_the_resnet_normalises_each_image_by_itself_in_groups() -> None:
    norms = [
        layer for layer in ResNet18(3, 10, width=8, groups=2).modules() if isinstance(layer, nn.GroupNorm)
    ]
    assert len(norms) == 17 and all(norm.num_groups == 2 for norm in norms)


def test_the_lstm_equals_torchs_with_the_same_weights() -> None:
    torch.manual_seed(0)
    module = CharLstm(classes=20, embedding=8, hidden=32, layers=2)
    reference = nn.LSTM(8, 32, num_layers=2, batch_first=True)
    with torch.no_grad():
        for number, layer in enumerate(module.lstm):
            assert isinstance(layer, LstmLayer)
            getattr(reference, f"weight_ih_l{number}").copy_(layer.input_weight)
            getattr(reference, f"weight_hh_l{number}").copy_(layer.hidden_weight)
            getattr(reference, f"bias_ih_l{number}").copy_(layer.bias)
            getattr(reference, f"bias_hh_l{number}").zero_()
    tokens = torch.randint(20, (5, 40))
    embedded = module.embedding(tokens)
    torch.testing.assert_close(module.lstm(embedded), reference(embedded)[0], atol=1e-5, rtol=0)
    expected = module.head(reference(embedded)[0][:, -1])
    torch.testing.assert_close(module(tokens), expected, atol=1e-5, rtol=0)


def test_three_lstms_side_by_side_give_the_gradients_of_the_loop() -> None:
    torch.manual_seed(0)
    assert_vmap_of_gradients_equals_the_loop(
        [CharLstm(hidden=32) for _ in range(3)], torch.randint(80, (3, 4, 20)), torch.randint(80, (3, 4))
    )


def test_the_vocabulary_may_differ_from_the_classes() -> None:
    module = CharLstm(classes=2, vocabulary=50, hidden=8)
    assert module(torch.tensor([[49, 3]])).shape == (1, 2)


@pytest.mark.parametrize(
    ("module", "arguments", "place", "remedy"),
    [
        (Cnn, (1, 8, 8, 2, 4), ("kernel_size", "4"), "odd and > 0"),
        (Cnn, (1, 8, 8, 2, -1), ("kernel_size", "-1"), "odd and > 0"),
        (Mlp, (4, 2, [8, 0]), ("hidden", "[8, 0]"), "positive integers"),
        (ResNet18, (3, 2, 0), ("width", "got 0"), "> 0"),
        (ResNet18, (3, 2, 8, 3), ("groups", "3"), "divide width = 8"),
        (CharLstm, (80, 80, 8, 0), ("hidden", "got 0"), "> 0"),
    ],
)
def test_sizes_that_make_no_module_are_refused(
    module: type[nn.Module], arguments: tuple[object, ...], place: tuple[str, ...], remedy: str
) -> None:
    with refused(place, remedy):
        module(*arguments)
