"""`tandem metrics`."""

import click

from tandem.cli._output import open_client


@click.command()
def metrics() -> None:
    """Print what can be counted of the jobs and GPUs, as Prometheus' text.

    For Prometheus itself let the daemon listen: key metrics.listen of its configuration.

    \b
    Examples:
      tandem metrics
      tandem metrics | grep tandem_job_finding
    """
    with open_client() as client:
        click.echo(client.metrics(), nl=False)
