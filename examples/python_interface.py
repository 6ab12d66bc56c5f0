# %% [markdown]
# robustsweep from Python, cell by cell: a study of about a minute, its results as frames, a comparison, and a model of
# one's own under attack. Run it as a script, or cell by cell in an editor that knows `# %%`.

# %% A small study: two methods, two seeds, a few hundred digits. What is stored already is not computed again.
import torch
from torch import nn

import robustsweep

if __name__ == "__main__":
    found = robustsweep.run(
        "digits",
        methods=["at", "sovr"],
        seeds=[0, 1],
        settings={
            "search.sovr.pin": True,
            "train_images": 200,
            "test_images": 60,
            "train.epochs": 2,
            "selection.validation": 40,
            "evaluation.suite": None,
            "evaluation.attacks": ["clean", "pgd-20"],
            "evaluation.images": 40,
            "evaluation.diagnostics": False,
        },
        store="store",
    )

    # %% Cells, evaluations, curves and verdicts are frames; hyperparameters are columns, epsilon is a number too.
    print(found.cells[["label", "seed", "status", "hyperparameter_M", "hyperparameter_lam"]])
    print(found.evaluations.groupby(["label", "attack", "epsilon_value"])["accuracy"].agg(["mean", "std", "count"]))
    print(found.curves(label="sovr")[["seed", "epoch", "validation_pgd_accuracy"]])
    hardest = found.verdicts("pgd-20").groupby("image")["correct"].mean().nsmallest(3)
    print("the images that fewest models withstand on:", list(hardest.index))

    # %% Two methods, with what two seeds can say.
    compared = found.compare("digits", "sovr", "at", "pgd-20")
    print(f"sovr - at: {compared.difference:+.1f} points, p = {compared.p_value}, n = {compared.seeds}")

    # %% A model of one's own, in memory, in two norms.
    torch.manual_seed(0)
    images, labels = torch.rand(50, 1, 8, 8), torch.randint(10, (50,))
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    evaluated = robustsweep.evaluate(
        model, images, labels, attacks=["clean", "pgd-20", "pgd-20@l2:0.25"], epsilon="0.02"
    )
    print(evaluated.frame[["attack", "norm", "epsilon_value", "accuracy"]])
    print(f"{evaluated.worst:.0%} of the images withstand all of them")
