"""The page that a one-time link opens: it gives the secret behind the # to the server, and says who one is then.

The secret is in no request line and no log, and a program that merely fetches the link, as chats and mail readers do,
uses nothing up.
"""

from ade.operations.kit import Asked, Content, Office

_POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in - ADE</title>
<script src="/login.js" type="module"></script>
</head>
<body>
<main>
<h1>ADE</h1>
<p id="said" role="status">Signing in&hellip;</p>
<p id="on" hidden>You may close this page, or look at <a href="/api/v1/me">who you are</a>.</p>
<noscript><p>This page needs JavaScript to keep the secret of the link out of every log.</p></noscript>
</main>
</body>
</html>
"""
_SCRIPT = """const said = document.getElementById("said");
const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);

async function signIn() {
  if (!secret) {
    said.textContent = "Open the whole link, with what stands behind the #.";
    return;
  }
  const answer = await fetch("/api/v1/sessions/login-link", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ secret }),
  });
  const told = await answer.json();
  said.textContent = answer.ok ? `You are signed in as ${told.account}.` : told.detail;
  document.getElementById("on").hidden = !answer.ok;
}

signIn().catch(() => {
  said.textContent = "The server does not answer. Reload the page to try again.";
});
"""


async def get_login_page(office: Office, asked: Asked) -> Content:
    return Content(media_type="text/html; charset=utf-8", body=_PAGE.encode(), policy=_POLICY)


async def get_login_script(office: Office, asked: Asked) -> Content:
    return Content(media_type="text/javascript; charset=utf-8", body=_SCRIPT.encode())
