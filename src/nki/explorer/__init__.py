"""The profile explorer: one front end, as a local web app and as a report in one file."""
