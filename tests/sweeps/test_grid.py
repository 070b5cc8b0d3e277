import pytest

from saddlescope._shared.errors import InputError
from saddlescope.reproduction import entry_names, find_entry
from saddlescope.sweeps import Grid


def test_the_points_are_all_combinations_and_the_last_axis_is_fastest(walk):
    grid = Grid.parse(walk, ["dim=1,2", "noise=log:0.1:10:3"], seeds="0:2", size="quick", settings={"steps": "5"})
    assert grid.names == ("dim", "noise", "seed")
    assert grid.shape == (2, 3, 2)
    assert [(p.dim, p.noise, p.seed) for p in grid.params[:3]] == [(1, 0.1, 0), (1, 0.1, 1), (1, 1.0, 0)]
    assert {p.steps for p in grid.params} == {5}
    assert grid.label((1, 2, 0)) == "dim=2 noise=10.0 seed=0"
    assert grid.at((1, 2, 0)) == {"steps": "5", "dim": "2", "noise": "10.0", "seed": "0"}


def test_a_value_of_a_tuple_makes_a_tuple_of_one_and_several_are_joined(walk):
    single = Grid.parse(walk, ["scales=0.1,0.01"])
    assert [p.scales for p in single.params] == [(0.1,), (0.01,)]
    assert single.axes[0].values == (0.1, 0.01)
    joined = Grid.parse(walk, ["scales=0.1/0.01,0.5"])
    assert [p.scales for p in joined.params] == [(0.1, 0.01), (0.5,)]
    assert joined.axes[0].values == ("0.1/0.01", "0.5")


def test_the_command_makes_the_same_grid_again(walk):
    import shlex

    grid = Grid.parse(
        walk, ["scales=0.1/0.01,0.5", "kind=walk,fails"], seeds="0:3", size="quick", settings={"dim": "2"}
    )
    words = shlex.split(grid.command)[3:]
    given = dict(zip(words[::2], words[1::2], strict=True))
    axes = [value for option, value in zip(words[::2], words[1::2], strict=True) if option == "--grid"]
    again = Grid.parse(walk, axes, size=given["--size"], settings=dict([given["--set"].split("=")]))
    assert again == grid
    assert again.digest == grid.digest


def test_other_points_have_another_digest(walk):
    digests = {
        Grid.parse(walk, words, **options).digest
        for words, options in [
            (["dim=1,2"], {}),
            (["dim=2,1"], {}),
            (["dim=1,2,3"], {}),
            (["dim=1,2"], {"size": "quick"}),
            (["dim=1,2"], {"settings": {"noise": "2"}}),
            (["dim=1,2", "seed=0"], {}),
        ]
    }
    assert len(digests) == 6


@pytest.mark.parametrize(
    ("words", "options", "reported"),
    [
        ([], {}, "must have an axis"),
        (["dim"], {}, "must be NAME=VALUES"),
        (["=3"], {}, "must be NAME=VALUES"),
        (["dim="], {}, "must be NAME=VALUES"),
        (["dmi=1"], {}, "did you mean dim"),
        (["dim=1.5"], {}, "dim must be an integer"),
        (["dim=1,1"], {}, "got 1 twice"),
        (["noise=1,1.0"], {}, "got 1.0 twice"),
        (["noise=nan"], {}, "noise must be a finite number"),
        (["scales=0.1,0.1/nan"], {}, "scales must be one or more numbers"),
        (["dim=1", "dim=2"], {}, "dim must be given once"),
        (["seed=1"], {"seeds": "0:2"}, "seed must be given once"),
        (["dim=1,2"], {"settings": {"dim": "3"}}, "or also in --set"),
        (["dim=2,0"], {}, "dim must be at least 1; got 0"),
        (["dim=1"], {"size": "quik"}, "did you mean quick"),
        (["dim=1"], {"settings": {"nois": "1"}}, "did you mean noise"),
        (["dim=1:1000", "seed=0:1000"], {}, "at most 100000 points"),
        (["scales=0.1//0.2"], {}, "both sides"),
    ],
)
def test_a_bad_grid_is_refused_in_a_sentence(walk, words, options, reported):
    with pytest.raises(InputError) as refused:
        Grid.parse(walk, words, **options)
    assert reported in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("words", "seeds"), [([3], ""), (["dim=1"], 3), (["dim=1"], range(3))])
def test_words_that_are_no_text_are_refused(walk, words, seeds, types_unchecked):
    with types_unchecked(), pytest.raises(InputError, match="must be strings, such as 'seed=0:8'"):
        Grid.parse(walk, words, seeds=seeds)


@pytest.mark.parametrize("name", entry_names())
def test_seeds_go_over_the_seed_of_every_entry_that_draws(name):
    entry = find_entry(name)
    listed = "seeds" in entry.parameters and entry.parameters["seeds"].many
    if "seed" not in entry.parameters and not listed:
        with pytest.raises(InputError, match="draws nothing and has no parameter seed"):
            Grid.parse(entry, seeds="0:4", size="quick")
        return
    grid = Grid.parse(entry, seeds="3:5", size="quick")
    (axis,) = grid.axes
    assert axis.values == (3, 4)
    assert [getattr(p, axis.name) for p in grid.params] == ([3, 4] if axis.name == "seed" else [(3,), (4,)])


@pytest.mark.parametrize("name", entry_names())
def test_no_parameter_has_the_name_of_a_variable_of_the_data_set(name):
    taken = {"value", "uncertainty", "outcome", "remark", "metrics", "metric_remark", "cpu_seconds", "state"}
    taken |= {"error", "point", "claim", "metric"}
    assert not taken & set(find_entry(name).parameters)
