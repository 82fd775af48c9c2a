"""The report: one HTML file that shows a run in a browser, with no server and no network."""
