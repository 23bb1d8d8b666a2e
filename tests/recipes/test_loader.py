import pytest

from sleuth.errors import UserError
from sleuth.recipes.loader import dump_recipe, load_recipe, shipped_recipes, write_recipe


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str) -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write


def refusal(recipe, *settings) -> str:
    with pytest.raises(UserError) as error:
        load_recipe(recipe, settings)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_every_shipped_recipe_says_what_it_is_and_what_it_takes():
    recipes = shipped_recipes()
    assert {"laptop", "wiki-smollm2", "qwen-3b"} <= {r.name for r in recipes}
    assert all(r.summary and r.expect for r in recipes)


def test_a_recipe_is_found_by_name_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_recipe("laptop").name == "laptop"


def test_settings_win_over_the_recipe_and_the_last_one_wins():
    recipe = load_recipe("laptop", ["trainer.lr=1e-5", "trainer.steps=3", "trainer.steps=4"])
    assert (recipe.trainer.lr, recipe.trainer.steps) == (1e-5, 4)
    assert recipe.trainer.prompts == load_recipe("laptop").trainer.prompts


def test_corpus_is_short_for_the_retrievers_corpus():
    assert load_recipe("laptop", ["corpus=x.jsonl"]).retriever.corpus == "x.jsonl"


def test_an_objectives_parameter_is_addressed_by_the_objectives_name():
    assert load_recipe("laptop", ["grpo.clip_low=0.1"]).parameters == {"grpo": {"clip_low": 0.1}}


def test_a_mapping_given_as_a_setting_is_merged_and_null_unsets():
    recipe = load_recipe("laptop", ["trainer={steps: 5}", "world=null"])
    assert recipe.trainer.steps == 5
    assert recipe.trainer.prompts == 16
    assert recipe.world is None


def test_extends_merges_deeply_through_a_chain(write):
    write("base.yaml", "summary: base\nmodel: m\ntrainer: {lr: 1e-3, steps: 7}\n")
    write("middle.yaml", "extends: base.yaml\ntrainer: {steps: 8}\ndata: {train: [a, b]}\n")
    top = load_recipe(write("top.yaml", "extends: middle\n".replace("middle", "middle.yaml") + "data: {train: [c]}\n"))
    assert (top.model, top.trainer.lr, top.trainer.steps, top.data.train) == ("m", 1e-3, 8, ["c"])
    assert (top.name, top.summary) == ("top", "")


def test_a_recipe_of_ones_own_may_extend_a_shipped_one(write):
    recipe = load_recipe(write("mine.yaml", "extends: laptop\ntrainer: {lr: 1e-5}\n"))
    assert (recipe.name, recipe.model, recipe.trainer.lr) == ("mine", "tiny", 1e-5)


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "the file is empty"), (" \n", "the file is empty"), ("# later\n", "no setting is in this file")],
)
def test_a_recipe_without_a_setting_is_said_to_be_empty(write, text, said):
    file = write("recipe.yaml", text)
    assert refusal(file).startswith(f"{file}: {said}; ")


def test_recipes_that_extend_each_other_are_refused(write):
    write("a.yaml", "extends: b.yaml\n")
    write("b.yaml", "extends: a.yaml\n")
    assert "a.yaml → b.yaml → a.yaml" in refusal(write("a.yaml", "extends: b.yaml\n"))


def test_a_path_with_a_leading_dot_belongs_to_the_recipes_folder(write, tmp_path):
    recipe = load_recipe(
        write("r.yaml", "model: ./m\ndata: {train: [../t.jsonl, org/set]}\nretriever: {corpus: c.jsonl}\n")
    )
    assert recipe.model == str(tmp_path / "m")
    assert recipe.data.train == [str(tmp_path.parent / "t.jsonl"), "org/set"]
    assert recipe.retriever.corpus == "c.jsonl"


@pytest.mark.parametrize("name", [r.name for r in shipped_recipes()])
def test_the_dump_of_a_recipe_is_the_same_recipe(name, tmp_path):
    settings = ["model=m", "corpus=c", "data.train=[a, b]", "data.test=d", "trainer.lr=1e-6", "grpo.clip_high=0.28"]
    recipe = load_recipe(name, settings)
    write_recipe(recipe, tmp_path / "recipe.yaml")
    again = load_recipe(tmp_path / "recipe.yaml")
    assert again == recipe
    assert dump_recipe(again) == dump_recipe(recipe)
    assert load_recipe(f"{tmp_path}/") == recipe


@pytest.mark.parametrize(
    ("setting", "nearest"),
    [
        ("trainer.lrr=1", "trainer.lr"),
        ("lr=1", "trainer.lr"),
        ("steps=1", "trainer.steps"),
        ("retreiver.corpus=x", "retriever.corpus"),
        ("reward.emm=1", "reward.em"),
        ("world.train.world=1", "world.train.worlds"),
        ("grpoo.clip_low=0.1", "grpo.clip_low"),
        ("corpsu=x", "corpus"),
    ],
)
def test_an_unknown_key_gets_the_nearest_one(setting, nearest):
    message = refusal("laptop", setting)
    assert repr(setting.partition("=")[0]) in message
    assert f"did you mean {nearest!r}?" in message


def test_an_unknown_key_in_a_file_gets_the_nearest_one(write):
    assert "'trainer.step'; did you mean 'trainer.steps'?" in refusal(write("r.yaml", "trainer: {step: 1}\n"))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("trainer.lr=fast", "trainer.lr='fast' should be a valid number"),
        ("trainer.lr=-1", "trainer.lr=-1 should be greater than 0"),
        ("trainer.group=1", "trainer.group=1 should be greater than or equal to 2"),
        ("trainer.keep=bset", "trainer.keep='bset' should be 'best' or 'last'"),
        ("trainer=3", "trainer=3 should be a group of settings"),
        ("trainer.updates_per_batch=3", "updates_per_batch=3 must divide prompts × group = 128"),
        ("reward.em=x", "reward.em='x' should be a valid number"),
        ("data.test=[1, a]", "data.test.0=1 should be a valid string"),
        ("model.x=1", "model is 'tiny' here and has no settings of its own"),
        ("trainer.lr=[1", "the value is not YAML"),
        ("quick", "'quick' is not a setting; write key=value"),
    ],
)
def test_a_wrong_value_is_one_line_with_the_dotted_key(setting, expected):
    assert expected in refusal("laptop", setting)


def test_all_missing_required_settings_come_in_one_line_with_an_example():
    message = refusal("wiki-smollm2", "data.test=t.jsonl")
    assert "needs retriever.corpus, data.train, model;" in message
    assert "sleuth train wiki-smollm2 corpus=passages.jsonl data.train=train.jsonl model=" in message


def test_a_misspelt_requirement_is_the_recipes_own_fault(write):
    assert "did you mean 'data.train'? (in `requires`)" in refusal(write("r.yaml", "requires: [data.trian]\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- a\n", "a recipe is a mapping"),
        ("a: [\n", "not a YAML file (line"),
        ("extends: [laptop]\n", "must be the name of one recipe"),
        ("extends: lapttop\n", "did you mean 'laptop'?"),
    ],
)
def test_a_broken_file_is_one_line_with_its_name(write, text, expected):
    assert expected in refusal(write("r.yaml", text))


def test_a_recipe_that_is_not_there():
    assert "did you mean 'laptop'?" in refusal("laptp")
    assert "no such recipe file" in refusal("nowhere/mine.yaml")
