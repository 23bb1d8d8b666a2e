"""``report.html``: what a run, a rollouts file or a comparison shows, in one static file that opens without a network.

:func:`sleuth.report.collect.collect` gathers, :func:`sleuth.report.page.render` makes the page. Everything that a model
or a retriever wrote is data in it, never markup.
"""
