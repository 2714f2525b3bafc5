"""Web page of runtimes: classes, handlers, features and the way of each pod, to be read only.

    path ─▶ Site ─▶ Reader (lists objects as the user) ─▶ views (pure) ─▶ templates ─▶ HTML

The API server of `moor up` reads its own copy (`apiserver/server/web_page.py`); for other API
servers, `server.py` serves it, with a client as the reader.

It needs neither JavaScript nor other servers, so that it works offline and with a screen reader.
"""

from moorage.apiserver.web_page.doors import Reader
from moorage.apiserver.web_page.site import Page, Site

__all__ = ["Page", "Reader", "Site"]
