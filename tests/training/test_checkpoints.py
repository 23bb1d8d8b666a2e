"""Which checkpoints can be trusted, and what a full disk does."""

import errno
import shutil

import pytest
from safetensors import SafetensorError

from sleuth.errors import RunFailed
from sleuth.training.checkpoints import SEAL, damage, full_disk_is_said, newest_whole, seal
from sleuth.training.run_folder import RunFolder


@pytest.fixture
def run(tmp_path):
    run = RunFolder(tmp_path / "run")
    for step in (1, 2, 3):
        folder = run.checkpoint(step)
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(bytes(1000 + step))
        (folder / "optimizer.pt").write_bytes(b"state")
        (folder / "teacher.safetensors").write_bytes(b"teacher")
        seal(folder)
    return run


def _cut(file):
    file.write_bytes(file.read_bytes()[:-1])


def _flip(file):
    file.write_bytes(b"\x01" + file.read_bytes()[1:])


def test_an_undamaged_checkpoint_is_taken_with_what_was_added_or_dropped_later(run):
    (run.checkpoint(3) / "README.md").write_text("card")
    run.drop_optimizers()
    assert newest_whole(run, print) == 3


def test_only_the_model_is_left_where_nothing_is_to_be_trained_on(run):
    run.drop_optimizers()
    for step in (1, 2, 3):
        files = {file.name for file in run.checkpoint(step).iterdir()}
        assert files == {"model.safetensors", "trainer_state.json", SEAL}
        assert not run.has_optimizer(step)


FSDP_PARTS = ["optimizer_0/.metadata", "optimizer_0/__0_0.distcp", "optimizer_0/__1_0.distcp"]
FSDP_WEIGHTS = ["pytorch_model_fsdp_0/.metadata", "pytorch_model_fsdp_0/__0_0.distcp"]
DEEPSPEED = [
    "latest",
    "global_step8/zero_pp_rank_0_mp_rank_00_optim_states.pt",
    "global_step8/mp_rank_00_model_states.pt",
]


@pytest.fixture
def shaped(tmp_path):
    """``shaped(*names)``: a run whose only checkpoint, of step 1, has these empty files beside the usual ones."""

    def make(*names):
        run = RunFolder(tmp_path / "shaped")
        for name in ("trainer_state.json", "scheduler.pt", "model.safetensors", *names):
            file = run.checkpoint(1) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        seal(run.checkpoint(1))
        return run

    return make


@pytest.mark.parametrize(
    ("names", "can"),
    [
        (["optimizer.pt"], True),
        ([*FSDP_PARTS, *FSDP_WEIGHTS], True),
        (["optimizer.bin", "pytorch_model_fsdp.bin"], True),
        (DEEPSPEED, True),
        ([], False),
        (FSDP_WEIGHTS, False),
        (["optimizer_0_rank0.bin", "optimizer_0_rank1.bin"], False),
    ],
    ids=["whole", "FSDP in parts", "FSDP in one file", "DeepSpeed", "none", "weights alone", "FSDP, local"],
)
def test_a_checkpoint_can_be_trained_on_where_the_engine_finds_an_optimiser(shaped, names, can):
    run = shaped(*names)
    assert run.has_optimizer(1) is can
    assert newest_whole(run, print) == 1


@pytest.mark.parametrize("names", [FSDP_PARTS, ["optimizer.bin"]], ids=["in parts", "in one file"])
def test_a_sharded_optimiser_is_dropped_whole(shaped, names):
    run = shaped(*names, *FSDP_WEIGHTS)
    run.drop_optimizers()
    assert not run.has_optimizer(1)
    left = {path.name for path in run.checkpoint(1).iterdir()}
    assert left == {"trainer_state.json", "scheduler.pt", "model.safetensors", "pytorch_model_fsdp_0", SEAL}
    assert newest_whole(run, print) == 1


def test_deepspeeds_folder_is_not_dropped_as_it_holds_the_weights(shaped):
    run = shaped(*DEEPSPEED)
    run.drop_optimizers()
    assert run.has_optimizer(1)
    assert newest_whole(run, print) == 1


@pytest.mark.parametrize("lost", [FSDP_PARTS[1], DEEPSPEED[1]])
def test_a_lost_part_of_a_sharded_optimiser_is_damage(shaped, lost):
    run = shaped(*FSDP_PARTS, *DEEPSPEED)
    (run.checkpoint(1) / lost).unlink()
    assert damage(run.checkpoint(1)) == f"{lost} is missing"


@pytest.mark.parametrize("spoil", [_cut, _flip, lambda file: file.unlink()], ids=["cut", "flipped bit", "gone"])
def test_a_damaged_one_is_set_aside_and_the_one_before_it_taken(run, spoil):
    spoil(run.checkpoint(3) / "model.safetensors")
    said = []
    assert newest_whole(run, said.append) == 2
    assert "step 3 is damaged (model.safetensors" in said[0]
    assert "the one before it is used" in said[0]
    assert run.checkpoint_steps() == [1, 2]
    assert (run.checkpoints / "damaged-step-3").is_dir()


def test_a_damaged_seal_is_damage_and_none_is_none(run):
    (run.checkpoint(3) / SEAL).write_text("{")
    assert damage(run.checkpoint(3)) is not None
    (run.checkpoint(2) / SEAL).unlink()
    assert damage(run.checkpoint(2)) is None


def test_without_a_whole_one_training_starts_anew(run):
    for step in (1, 2, 3):
        _cut(run.checkpoint(step) / "trainer_state.json")
    assert newest_whole(run, lambda line: None) is None
    shutil.rmtree(run.checkpoints)
    assert newest_whole(run, print) is None


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
        RuntimeError("[enforce fail at inline_container.cc:668] . unexpected pos 64 vs 0"),
    ],
)
def test_a_full_disk_is_a_line_whichever_library_finds_out(run, error):
    half = run.checkpoints / "checkpoint-8"
    half.mkdir()
    with pytest.raises(RunFailed, match=r"disk is full.*--resume"), full_disk_is_said(run, 4):
        raise error
    assert not half.exists()
    assert run.checkpoint_steps() == [1, 2, 3]


def test_another_error_stays_what_it_is(run):
    with pytest.raises(RuntimeError, match="else"), full_disk_is_said(run, 4):
        raise RuntimeError("something else")
