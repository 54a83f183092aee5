import pytest

from simcore.model.presets import SHIPPED, recognised


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Meta-Llama-3-70B-Instruct", "llama-3-70b"),
        ("meta-llama/Llama-3.1-405B", "llama-3-405b"),
        ("LLaMA-2 7B", "llama-2-7b"),
        ("LLaMa2 70B LoRA", "llama-2-70b"),
        ("GPT-3 175B", "gpt-175b"),
        ("MT-NLG 530B", "gpt-529.6b"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("DeepSeek V3 671B", "deepseek-v3"),
        ("Qwen3 235B A22B", "qwen3-235b-a22b"),
        ("Llama3-8B (seq 8192)", "llama-3-8b"),
    ],
)
def test_models_are_told_by_the_names_that_publications_give_them(said, name):
    assert recognised(said) is SHIPPED[name]


@pytest.mark.parametrize("said", ["GPT-3 18T", "llama 8b", "Llama 4 Scout", "", "70B", "Gemma-2 9B"])
def test_a_name_of_another_model_is_not_taken_for_a_shipped_one(said):
    assert recognised(said) is None


def test_every_shipped_name_means_itself():
    assert all(recognised(name.upper()) is model for name, model in SHIPPED.items())
