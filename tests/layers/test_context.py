"""The context of a forward: masks, the memory, dropout; and where dropout's masks come from."""

import dataclasses
import itertools

import pytest

from minitransformer.layers import PLAIN, Cache, Context, DropoutStream, FeedForward, FeedForwardConfig, Layer, Linear
from minitransformer.layers.parameter import site_of
from minitransformer.ops import dropout_key, numpy_ops


def test_every_seed_step_and_site_has_a_key_of_its_own():
    numbers = list(itertools.product(range(4), range(4), [0, 1, 2, site_of("a"), site_of("b")]))
    keys = [DropoutStream(seed, step).at(site, 0.1).key for seed, step, site in numbers]
    assert keys == [dropout_key(*triple) for triple in numbers]
    assert len(set(keys)) == len(numbers)
    assert DropoutStream(0, 1, sentence=4).at(2, 0.5).sentence == 4  # a part of a batch has the masks of the whole


def test_a_context_drops_in_training_alone_and_where_there_is_a_rate():
    stream = DropoutStream(seed=1, step=9, sentence=4)
    assert Context(dropout=stream).dropout_at(7, 0.5) == stream.at(7, 0.5)
    assert Context(dropout=stream).dropout_at(7, 0.0) is None
    assert PLAIN.dropout_at(7, 0.5) is None


@pytest.mark.parametrize("dropout", [0.1, True, DropoutStream(1, 2).at(0, 0.5)], ids=lambda value: type(value).__name__)
def test_what_is_no_stream_of_dropout_is_refused(dropout):
    with pytest.raises(TypeError, match=f"dropout must be a DropoutStream or None, got {type(dropout).__name__}"):
        Context(dropout=dropout)


def test_a_position_is_that_of_what_decoding_remembers():
    cache = Cache(numpy_ops, batch=2, num_beams=3)
    assert (PLAIN.position, Context(cache=cache).position) == (0, 0)
    cache.position = 5
    assert Context(cache=cache).position == 5
    assert (PLAIN.num_beams, Context(cache=cache).num_beams) == (1, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAIN.cache = cache  # pyright: ignore[reportAttributeAccessIssue]


class Pair(Layer):
    """Two networks and a list of maps, declared in either order; the first network has a second name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__(numpy_ops)
        for name in names:
            setattr(self, name, FeedForward(numpy_ops, 2, FeedForwardConfig(3)))
        self.maps = [Linear(numpy_ops, 2, 2), Linear(numpy_ops, 2, 2)]
        self.tied = vars(self)["first"]
        self.name_layers()


def test_a_name_is_the_way_to_a_layer_and_a_shared_one_keeps_its_first():
    names = [layer.name for _, layer in Pair(("first", "second")).named_layers()]
    networks = [f"{name}{part}" for name in ("first", "second") for part in ("", ".expand", ".contract")]
    assert names == [*networks, "maps.0", "maps.1", *networks[:3]]


def test_a_site_follows_from_a_name_alone_and_not_from_the_order_of_construction():
    one, other = ({layer.name: layer.site for _, layer in Pair(names).named_layers()} for names in ORDERS)
    assert one == other
    assert one == {name: site_of(name) for name in one}
    assert len(set(one.values())) == len(one)


ORDERS = ("first", "second"), ("second", "first")


def test_a_site_is_the_same_on_every_machine():
    """A training that is resumed elsewhere draws the masks it would have drawn here."""
    assert site_of("encoder.layers.0.self_attention") == 12408734740942306819
    assert 0 <= site_of("") < 2**64
