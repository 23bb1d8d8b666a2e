"""Metrics as other trainers leave them, in their own names and forms."""

import gzip
import json

import pytest

from sleuth.diagnostics.log_files import read_log
from sleuth.errors import UserError

VERL = {"actor/ppo_kl": 0.02, "actor/pg_clipfrac": 0.003, "actor/grad_norm": 0.4, "actor/entropy": 0.9,
        "actor/lr": 1e-6, "critic/score/mean": 0.45, "critic/rewards/mean": 0.44,
        "response_length/clip_ratio": 0.1}  # fmt: skip
"""verl 0.9."""

SEARCH_R1 = {"actor/ppo_kl": 0.02, "actor/entropy_loss": 0.9, "critic/rewards/mean": 0.44, "env/finish_ratio": 0.97,
             "env/ratio_of_valid_action": 0.8, "env/number_of_valid_search": 1.7}  # fmt: skip
"""verl 0.1, with what Search-R1 added."""

TRL = {"loss": 0.01, "grad_norm": 0.4, "learning_rate": 1e-6, "reward": 0.45, "reward_std": 0.3, "entropy": 0.9,
       "frac_reward_zero_std": 0.25, "clip_ratio/region_mean": 0.003, "completions/clipped_ratio": 0.1,
       "completions/mean_length": 50.0, "tools/call_frequency": 1.7, "kl": 0.002}  # fmt: skip


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_verls_file_logger(tmp_path):
    log = read_log([write(tmp_path / "a.jsonl", [{"step": 3, "data": VERL}, {"step": 4, "data": VERL}])])
    assert log.engine == "verl"
    assert [r["step"] for r in log.records] == [3, 4]
    assert log.records[0] == {
        "step": 3, "ratio/mean_log": -0.02, "ratio/clipped": 0.003, "grad_norm": 0.4, "entropy": 0.9, "lr": 1e-6,
        "reward": 0.45, "share/truncated": 0.1,
    }  # fmt: skip


def test_a_validation_row_is_no_step(tmp_path):
    rows = [{"step": 0, "data": {"val-core/nq/acc/mean@1": 0.3}}, {"step": 1, "data": VERL}]
    assert [r["step"] for r in read_log([write(tmp_path / "a.jsonl", rows)]).records] == [1]


@pytest.mark.parametrize("prefix", ["", "(main_task pid=4242) ", "\x1b[36m(TaskRunner pid=1)\x1b[0m "])
def test_verls_console_log(tmp_path, prefix):
    lines = ["Loading weights: 100%", *(
        f"{prefix}step:{step} - " + " - ".join(f"{name}:{value:.3f}" for name, value in SEARCH_R1.items())
        for step in (7, 8)
    ), "epoch 0, step 9"]  # fmt: skip
    (tmp_path / "train.log").write_text("\n".join(lines))
    log = read_log([tmp_path / "train.log"])
    assert (log.engine, [r["step"] for r in log.records]) == ("verl", [7, 8])
    record = log.records[0]
    assert record["entropy"] == 0.9
    assert record["share/no_answer"] == pytest.approx(0.03)
    assert (record["format"], record["searches"]) == (0.8, 1.7)


def test_numpys_way_of_writing_numbers_in_a_console_log(tmp_path):
    text = "step:1 - critic/rewards/mean:np.float64(0.25) - actor/grad_norm:1e-05 - actor/ppo_kl:nan"
    (tmp_path / "x.log").write_text(text)
    record = read_log([tmp_path / "x.log"]).records[0]
    assert (record["reward"], record["grad_norm"]) == (0.25, 1e-05)


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_wandbs_export_of_a_chart(tmp_path, suffix):
    text = (
        '"Step","s1 - lr - actor/ppo_kl","s1 - lr - actor/ppo_kl__MIN","s1 - lr - actor/ppo_kl__MAX"\n'
        '"1","0.02","0.02","0.02"\n"2","","",""\n"3","0.05","0.05","0.05"\n'
    )
    path = tmp_path / f"export{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode("utf-8-sig"))
    log = read_log([path])
    assert log.engine == "verl"
    assert log.records == [{"step": 1, "ratio/mean_log": -0.02}, {"step": 3, "ratio/mean_log": -0.05}]


def test_charts_of_one_run_are_put_together_by_step(tmp_path):
    (tmp_path / "kl.csv").write_text("Step,run - actor/ppo_kl\n1,0.02\n2,0.03\n")
    (tmp_path / "reward.csv").write_text("Step,run - critic/rewards/mean\n1,0.3\n2,0.4\n")
    log = read_log([tmp_path / "kl.csv", tmp_path / "reward.csv"])
    assert log.records[1] == {"step": 2, "ratio/mean_log": -0.03, "reward": 0.4}


def test_of_several_runs_in_an_export_one_is_chosen(tmp_path):
    path = tmp_path / "both.csv"
    path.write_text("Step,a - actor/ppo_kl,b - actor/ppo_kl\n1,0.1,0.2\n")
    with pytest.raises(UserError, match=r"2 runs \(a, b\); choose one with --run"):
        read_log([path])
    assert read_log([path], run="b").records[0]["ratio/mean_log"] == -0.2
    with pytest.raises(UserError, match="no run called 'c'"):
        read_log([path], run="c")


def test_a_plain_csv_with_wandbs_history_columns(tmp_path):
    names = ["_step", *SEARCH_R1]
    (tmp_path / "h.csv").write_text(",".join(names) + "\n5," + ",".join(map(str, SEARCH_R1.values())) + "\n")
    assert read_log([tmp_path / "h.csv"]).records[0]["step"] == 5


def test_trls_trainer_state(tmp_path):
    rows = [{"step": 1, **TRL}, {"step": 1, "eval_loss": 0.1, "eval_reward": 0.9}, {"step": 2, **TRL},
            {"step": 2, "train_runtime": 3.0, "train_loss": 0.0}]  # fmt: skip
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 2, "log_history": rows}))
    log = read_log([path])
    assert log.engine == "trl"
    assert log.records[0] == {
        "step": 1, "loss": 0.01, "grad_norm": 0.4, "lr": 1e-6, "reward": 0.45, "entropy": 0.9, "kl": 0.002,
        "zero_variance_groups": 0.25, "groups": 1, "ratio/clipped": 0.003, "share/truncated": 0.1, "searches": 1.7,
    }  # fmt: skip
    assert len(log.records) == 2


def test_what_the_callback_put_into_trls_log_stays(tmp_path):
    rows = [{"step": 1, **TRL, "ratio/pos/q01": 0.4, "likelihood/pos": -0.6}]
    record = read_log([write(tmp_path / "log.jsonl", rows)]).records[0]
    assert (record["ratio/pos/q01"], record["likelihood/pos"]) == (0.4, -0.6)


def test_a_trackers_prefix_is_dropped(tmp_path):
    rows = [{f"train/{name}": value for name, value in TRL.items()} | {"train/global_step": 9, "_step": 9}]
    record = read_log([write(tmp_path / "log.jsonl", rows)]).records[0]
    assert (record["step"], record["reward"]) == (9, 0.45)


def test_the_trainers_console_log_has_no_steps_which_is_said(tmp_path):
    lines = [
        "{'loss': 0.1, 'grad_norm': nan, 'reward': 0.4, 'frac_reward_zero_std': 0.0, 'epoch': 0.1}",
        "  5%|█ | 1/20 {'loss': '0.1', 'grad_norm': '0.3', 'reward': '0.5', 'frac_reward_zero_std': '0'}",
    ]
    (tmp_path / "out.txt").write_text("\n".join(lines))
    log = read_log([tmp_path / "out.txt"])
    assert [(r["step"], r["reward"]) for r in log.records] == [(1, 0.4), (2, 0.5)]
    assert log.records[0]["grad_norm"] != log.records[0]["grad_norm"]  # NaN is news
    assert log.notes == [
        "out.txt has no steps; its rows are counted",
        "numbers that are NaN or infinite in step 1: they are in no mean and no baseline",
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.jsonl", None, "no such file"),
        ("none.csv", None, "no such file"),
        ("a.jsonl", "{broken", "line 1"),
        ("a.json", "{broken", "not JSON"),
        ("a.json", '{"a": 1}', "trainer_state"),
        ("a.jsonl", '{"step": 1, "temperature": 3}\n', "no metrics of Sleuth, verl or TRL"),
        ("a.csv", "Step,run - something\n1,2\n", "no metrics of Sleuth, verl or TRL"),
        ("a.csv", "", "no metrics"),
        ("a.log", "hello\n", "no line with metrics"),
        ("a.log", "", "no line with metrics"),
        ("a.bin", b"\xff\xfe\x00\x01", "not UTF-8"),
        ("a.jsonl", '{"step": 1, "data": {"actor/lr": 1e-6}}\n', "no step with a reward"),
    ],
)
def test_what_holds_no_metrics_is_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as error:
        read_log([path])
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_metrics_is_one_line(tmp_path):
    with pytest.raises(UserError, match="is a folder"):
        read_log([tmp_path])


def test_a_reward_alone_is_of_the_trainer_whose_prefix_it_has(tmp_path):
    rows = [{"train/global_step": step, "train/reward": 0.4} for step in range(1, 9)]
    assert read_log([write(tmp_path / "wandb.jsonl", rows)]).engine == "trl"
    rows = [{"step": step, "reward": 0.4} for step in range(1, 9)]
    assert read_log([write(tmp_path / "metrics.jsonl", rows)]).engine == "sleuth"


def test_files_of_two_trainers_are_not_one_run(tmp_path):
    verl = write(tmp_path / "verl.jsonl", [{"step": 1, "data": VERL}])
    trl = write(tmp_path / "trl.jsonl", [{"step": 1, **TRL}])
    with pytest.raises(UserError, match=r"verl\.jsonl is verl's, .*trl\.jsonl is TRL's: these are not one run"):
        read_log([verl, trl])


def test_steps_that_are_there_twice_are_said(tmp_path):
    rows = [{"step": s, **TRL, "reward": r} for s, r in ((1, 0.1), (2, 0.2), (3, 0.3), (2, 0.25), (3, 0.35))]
    log = read_log([write(tmp_path / "resumed.jsonl", rows)])
    assert [r["reward"] for r in log.records] == [0.1, 0.25, 0.35]
    assert log.notes == ["resumed.jsonl has steps 2, 3 more than once; the last one counts"]
