"""`tandem metrics`."""

import click

from tandem.cli._output import open_client


@click.command()
def metrics() -> None:
    """Print the metrics of jobs and GPUs in the text format of Prometheus.

    For Prometheus itself, let the daemon listen: set metrics.listen in its configuration.

    \b
    Examples:
      tandem metrics
      tandem metrics | grep tandem_job_finding
    """
    with open_client() as client:
        click.echo(client.metrics(), nl=False)
