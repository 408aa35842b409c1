"""Profiles as one HTML file that needs nothing else: the front end and the data, no server and no network."""

from __future__ import annotations

import base64

from nki.explorer.assets import digest, page, script, style
from nki.explorer.shown import Page, Shown, title
from nki.explorer.steps import ShownStep


def report(shown: Page) -> str:
    """The text of the file for one profile, for two that are compared, or for a step.

    A policy in the page allows its own script and style by their hashes, and no connection to anywhere.
    """
    policy = (
        f"default-src 'none'; script-src {digest(script())}; style-src {digest(style())}; "
        "base-uri 'none'; form-action 'none'"
    )
    blocks = [
        f'<script type="application/octet-stream" id="profile-{number}">{_text(each)}</script>'
        for number, each in enumerate(shown)
    ]
    return page(
        title=title(shown),
        mode="report",
        count=len(shown),
        policy=f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        style_tag=f"<style>{style()}</style>",
        data="\n".join(blocks),
        script_tag=f"<script>{script()}</script>",
    )


def _text(shown: Shown | ShownStep) -> str:
    return base64.b64encode(shown.block()).decode()
