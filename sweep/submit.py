"""`python -m sweep.submit`: run a study on a cluster by Ray Jobs, Slurm or KubeRay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sweep import application
from sweep.application import app


@app.command()
def submit(
    study: application.StudyOption = "digits",
    address: Annotated[
        str | None, typer.Option(help="The cluster's dashboard, e.g. http://head:8265: submit now and follow the log.")
    ] = None,
    slurm: Annotated[Path | None, typer.Option(help="Write an sbatch file.")] = None,
    kuberay: Annotated[Path | None, typer.Option(help="Write a RayJob manifest.")] = None,
    store: Annotated[
        str | None, typer.Option(help="Where results go: a folder that every node sees, or s3://…")
    ] = None,
    data_dir: Annotated[str | None, typer.Option(help="Where the data sets are, on every node.")] = None,
    settings: application.SetOption = None,
    methods: application.MethodsOption = None,
    seeds: application.SeedsOption = None,
    budget: application.BudgetOption = None,
    plugin: application.PluginOption = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")] = False,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the sweep. Repeatable.")] = None,
    token: Annotated[
        str | None,
        typer.Option(help="File with the cluster's token; otherwise RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray."),
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="The cluster asks for none.")] = False,
    python: Annotated[str, typer.Option(help="--address: the cluster's interpreter that has the packages.")] = "python",
    nodes: Annotated[int, typer.Option(help="Slurm, KubeRay: machines that train.")] = 1,
    gpus_per_node: Annotated[int | None, typer.Option(help="Slurm, KubeRay: what a trial needs, if absent.")] = None,
    cpus_per_node: Annotated[
        int | None, typer.Option(help="Slurm: all of a node, if absent. KubeRay: 8 for each GPU.")
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Slurm: e.g. 64G, all of a node if absent. KubeRay: e.g. 64Gi; 16Gi per GPU."),
    ] = None,
    wait_for_nodes: Annotated[
        float | None, typer.Option(min=1, help="Seconds that nodes may take to come up and answer; 300 if absent.")
    ] = None,
    resubmit: Annotated[
        bool, typer.Option("--resubmit", help="Slurm: each job submits its successor, where requeueing is not allowed.")
    ] = False,
    min_nodes: Annotated[
        int | None, typer.Option(help="KubeRay: scale between so many and --nodes, as there is work.")
    ] = None,
    node_selector: Annotated[list[str] | None, typer.Option(help="KubeRay: KEY=VALUE. Repeatable.")] = None,
    toleration: Annotated[list[str] | None, typer.Option(help="KubeRay: KEY=VALUE:NoSchedule. Repeatable.")] = None,
    time: Annotated[str, typer.Option(help="Slurm's time limit.")] = "24:00:00",
    partition: Annotated[str | None, typer.Option(help="Slurm's partition.")] = None,
    folder: Annotated[str, typer.Option(help="Slurm: the project's folder, seen by all nodes.")] = ".",
    venv: Annotated[str | None, typer.Option(help="Slurm: a virtual environment to use, e.g. .venv.")] = None,
    image: Annotated[str, typer.Option(help="KubeRay: an image with this project installed.")] = "robustsweep:latest",
    claim: Annotated[
        str | None, typer.Option(help="KubeRay: a PersistentVolumeClaim to mount, for store and data.")
    ] = None,
    mount: Annotated[str, typer.Option(help="KubeRay: where it is mounted.")] = "/shared",
    out: Annotated[str | None, typer.Option(help="Folder for tables, on the cluster. Default: STORE/reports.")] = None,
    sbatch: Annotated[
        str | None, typer.Option(help="Slurm: more options of sbatch, e.g. '--account=x --qos=y'.")
    ] = None,
    module: Annotated[list[str] | None, typer.Option(help="Slurm: module load this first. Repeatable.")] = None,
    array: Annotated[
        int | None, typer.Option(help="Slurm: so many jobs of one node each on one store, instead of --nodes.")
    ] = None,
) -> None:
    """Run a study on a cluster. Submit it at once by Ray Jobs (--address), or write a file for Slurm or KubeRay.

    --store and --data-dir are paths on the cluster: absolute, or s3://.
    """
    from sweep.store.files import write_text
    from sweep.studies.options import StudyOptions
    from sweep.submission import jobs
    from sweep.submission import options as submission

    options = submission.SubmitOptions(
        study=StudyOptions(study, settings, methods, seeds, plugin),
        store=store,
        data_dir=data_dir,
        budget=budget,
        env=tuple(env or ()),
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        cpus_per_node=cpus_per_node,
        memory=memory,
        wait_for_nodes=wait_for_nodes,
        resubmit=resubmit,
        min_nodes=min_nodes,
        node_selectors=tuple(node_selector or ()),
        tolerations=tuple(toleration or ()),
        time=time,
        partition=partition,
        folder=folder,
        venv=venv,
        image=image,
        claim=claim,
        mount=mount,
        out=out,
        sbatch=sbatch,
        modules=tuple(module or ()),
        array=array,
        retry_failed=retry_failed,
    )
    files = {way: path for way, path in (("slurm", slurm), ("kuberay", kuberay)) if path is not None}
    submission.check(options, [*files, *(["address"] if address else [])])
    if address:
        if no_token:
            jobs.use_no_token()
        else:
            jobs.use_token(token)
        raise typer.Exit(jobs.run(options, address, python))
    for way, path in files.items():
        write_text(path, submission.render(options, way, path.name))
        typer.echo(f"written: {path.absolute()}")


if __name__ == "__main__":
    application.main(["submit", *sys.argv[1:]])
